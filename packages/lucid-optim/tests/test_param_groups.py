import pytest
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
