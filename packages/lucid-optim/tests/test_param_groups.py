import pytest
import torch
from torch import nn

from lucid_optim import MuSGD, explain, param_groups


def model() -> nn.Sequential:
    return nn.Sequential(nn.Conv2d(3, 8, 3), nn.BatchNorm2d(8), nn.Linear(8, 2))


def test_every_parameter_is_in_exactly_one_group() -> None:
    net = model()
    groups = param_groups(net, {"2.*": {"lr": 1.0}, "*.bias": {"weight_decay": 0.0}})
    listed = [id(p) for g in groups for _, p in g["params"]]
    assert sorted(listed) == sorted(id(p) for p in net.parameters())


def test_the_first_pattern_that_matches_wins_and_its_settings_apply() -> None:
    optimizer = MuSGD(param_groups(model(), {"2.*": {"lr": 1.0}, "*.bias": {"lr": 2.0}}), lr=0.1)
    rates = {name: g["lr"] for g in optimizer.param_groups for name in g["param_names"]}
    assert rates["2.bias"] == 1.0
    assert rates["0.bias"] == 2.0
    assert rates["0.weight"] == 0.1


def test_a_pattern_that_matches_nothing_is_an_error() -> None:
    with pytest.raises(ValueError, match="'neck\\.\\*'"):
        param_groups(model(), {"neck.*": {"lr": 1.0}})


def test_without_overrides_there_is_one_group() -> None:
    (group,) = param_groups(model())
    assert group["name"] == "default"


def test_the_table_counts_matrices_and_vectors_of_an_optimizer() -> None:
    text = explain(MuSGD(model().parameters(), lr=0.1).param_groups)
    matrix, vector = text.splitlines()[1:]
    assert matrix.split()[:4] == ["0", "matrix", "2", "232"]
    assert vector.split()[:4] == ["0", "vector", "4", "26"]
    assert "lr=0.1" in matrix


def test_named_groups_survive_saving() -> None:
    optimizer = MuSGD(param_groups(model()), lr=0.1)
    other = MuSGD(param_groups(model()), lr=0.2)
    other.load_state_dict(optimizer.state_dict())
    assert other.param_groups[0]["lr"] == 0.1
    assert other.param_groups[0]["param_names"][0] == "0.weight"


class Scaled(nn.Module):
    """A block in the manner of ConvNeXt: depthwise kernel, pointwise layer, (C, 1, 1) layer scale."""

    def __init__(self) -> None:
        super().__init__()
        self.stem = nn.Conv2d(3, 8, 4, stride=4)
        self.depthwise = nn.Conv2d(8, 8, 3, padding=1, groups=8)
        self.pointwise = nn.Conv2d(8, 8, 1)
        self.scale = nn.Parameter(torch.full((8, 1, 1), 1e-6))
        self.fc = nn.Linear(8, 2)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        y = self.stem(x)
        y = y + self.scale * self.pointwise(self.depthwise(y))
        return self.fc(y.mean((2, 3)))


def named(groups: list[dict[str, object]]) -> dict[str, list[str]]:
    return {g["name"]: [name for name, _ in g["params"]] for g in groups}  # type: ignore[attr-defined]


def test_each_kind_that_takes_the_sgd_rule_becomes_a_group_with_its_reason() -> None:
    groups = param_groups(Scaled(), sgd=["one_column", "depthwise", "first_conv", "head"])
    assert named(groups) == {
        "one_column": ["scale"],
        "depthwise": ["depthwise.weight"],
        "first_conv": ["stem.weight"],
        "head": ["fc.weight"],
        "default": ["stem.bias", "depthwise.bias", "pointwise.weight", "pointwise.bias", "fc.bias"],
    }
    assert all(g["w_muon"] == 0 and g["w_sgd"] == 1 and g["why"] for g in groups[:-1])
    assert [g.get("weight_decay") for g in groups] == [0.0, None, None, None, None]


def test_without_options_rank_alone_decides() -> None:
    (group,) = param_groups(Scaled())
    assert [n for n, p in group["params"] if p.dim() >= 2] == [
        "scale", "stem.weight", "depthwise.weight", "pointwise.weight", "fc.weight"
    ]  # fmt: skip


def test_a_pattern_goes_before_a_kind_and_the_first_kind_before_the_next() -> None:
    net = nn.Sequential(nn.Conv2d(4, 4, 3, groups=4))
    assert named(param_groups(net, {"0.weight": {"lr": 1.0}}, sgd=["depthwise"])) == {
        "0.weight": ["0.weight"],
        "default": ["0.bias"],
    }
    assert list(named(param_groups(net, sgd=["head", "depthwise"]))) == ["head", "default"]


def test_grouped_kernels_of_several_channels_are_not_depthwise() -> None:
    assert list(named(param_groups(nn.Conv2d(4, 4, 3, groups=2), sgd=["depthwise"]))) == ["default"]


def test_an_unknown_kind_is_refused_by_name() -> None:
    with pytest.raises(ValueError, match=r"depthwise.*'stem'"):
        param_groups(model(), sgd=["stem"])  # type: ignore[list-item]


def test_the_sgd_rule_is_sgd_with_nesterov_momentum_and_decoupled_decay() -> None:
    net = nn.Conv2d(2, 2, 3, groups=2, bias=False)
    before, grad = net.weight.detach().clone(), torch.randn(2, 1, 3, 3)
    net.weight.grad = grad.clone()
    optimizer = MuSGD(param_groups(net, sgd=["depthwise"]), lr=0.1, momentum=0.9, weight_decay=0.5)
    optimizer.step()
    torch.testing.assert_close(net.weight.data, before - 0.1 * (1.9 * grad + 0.5 * before))


def test_every_parameter_has_a_line_when_asked() -> None:
    lines = explain(param_groups(Scaled(), sgd=["one_column"]), each=True).splitlines()
    assert lines[1].split()[:5] == ["scale", "sgd", "8x1x1", "8", "none"]
    assert len(lines) == 1 + len(list(Scaled().parameters()))
    named_by_optimizer = explain(MuSGD(param_groups(Scaled()), lr=0.1).param_groups, each=True)
    assert "depthwise.weight" in named_by_optimizer
    assert (
        explain(MuSGD(Scaled().parameters(), lr=0.1).param_groups, each=True).splitlines()[1].startswith("0 ")
    )


@pytest.mark.parametrize("sgd", [(), ("one_column", "depthwise")])
@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16, torch.float64])
@pytest.mark.parametrize("batched", [True, False])
def test_layer_scale_depthwise_kernels_and_zero_gradients_train_in_any_dtype(
    sgd: tuple[str, ...], dtype: torch.dtype, batched: bool
) -> None:
    torch.manual_seed(0)
    net = Scaled().to(dtype)
    optimizer = MuSGD(param_groups(net, sgd=sgd), lr=0.01, batched=batched)  # type: ignore[arg-type]
    for step in range(3):
        optimizer.zero_grad()
        net(torch.randn(2, 3, 8, 8, dtype=dtype)).square().mean().backward()
        if step == 1:
            for p in net.parameters():
                p.grad.zero_()
        optimizer.step()
    assert all(torch.isfinite(p).all() for p in net.parameters())
    assert all(p.dtype == dtype for p in net.parameters())
