import copy
import io
import math
import pickle

import pytest
import torch
from torch import Tensor, nn

from lucid_optim import MuSGD, newton_schulz

BOTH = pytest.mark.parametrize("batched", [True, False])


def with_grad(value: Tensor, grad: Tensor) -> nn.Parameter:
    parameter = nn.Parameter(value.clone())
    parameter.grad = grad.clone()
    return parameter


@BOTH
def test_a_vector_takes_a_nesterov_step_without_decay(batched: bool) -> None:
    p = with_grad(torch.tensor([1.0, 2.0]), torch.tensor([1.0, -1.0]))
    optimizer = MuSGD([p], lr=0.1, momentum=0.9, weight_decay=0.5, batched=batched)
    optimizer.step()
    # m = g, n = g + 0.9 g
    torch.testing.assert_close(p.data, torch.tensor([1.0 - 0.19, 2.0 + 0.19]))
    optimizer.step()
    # m = 1.9 g, n = g + 1.71 g
    torch.testing.assert_close(p.data, torch.tensor([1.0 - 0.19 - 0.271, 2.0 + 0.19 + 0.271]))


@BOTH
def test_a_matrix_update_is_the_weighted_sum_of_the_published_terms(batched: bool) -> None:
    torch.manual_seed(0)
    weights, grads = (
        torch.randn(2, 6, 3, 2, 2, dtype=torch.float64),
        torch.randn(2, 6, 3, 2, 2, dtype=torch.float64),
    )
    ps = [with_grad(w, g) for w, g in zip(weights, grads, strict=True)]
    MuSGD(ps, lr=0.1, momentum=0.8, weight_decay=0.3, w_muon=0.7, w_sgd=0.2, batched=batched).step()
    for p, w, g in zip(ps, weights, grads, strict=True):
        n = 1.8 * g
        u, s, vh = torch.linalg.svd((n / n.norm()).reshape(6, 12), full_matrices=False)
        for _ in range(5):
            s = 3.4445 * s - 4.7750 * s**3 + 2.0315 * s**5
        orthogonal = ((u * s) @ vh).reshape(6, 3, 2, 2)
        update = 0.7 * 0.2 * math.sqrt(12) * orthogonal + 0.2 * n + 0.3 * w
        torch.testing.assert_close(p.data, w - 0.1 * update, rtol=0, atol=1e-6)


@BOTH
def test_decay_reads_the_weight_before_the_step_and_touches_matrices_only(batched: bool) -> None:
    matrix, vector = with_grad(torch.ones(2, 2), torch.zeros(2, 2)), with_grad(torch.ones(2), torch.zeros(2))
    MuSGD([matrix, vector], lr=0.5, weight_decay=0.1, batched=batched).step()
    torch.testing.assert_close(matrix.data, torch.full((2, 2), 0.95))
    assert torch.equal(vector.data, torch.ones(2))


@BOTH
def test_a_parameter_without_gradient_gets_no_state_and_no_decay(batched: bool) -> None:
    idle = nn.Parameter(torch.ones(2, 2))
    busy = with_grad(torch.ones(2, 2), torch.ones(2, 2))
    optimizer = MuSGD([idle, busy], lr=0.5, batched=batched)
    optimizer.step()
    assert torch.equal(idle.data, torch.ones(2, 2))
    assert idle not in optimizer.state
    buffer = optimizer.state[busy]["momentum_buffer"].clone()
    busy.grad = None
    optimizer.step()
    assert torch.equal(optimizer.state[busy]["momentum_buffer"], buffer)


@BOTH
def test_gradients_are_left_as_they_were(batched: bool) -> None:
    grad = torch.randn(4, 3)
    p = with_grad(torch.randn(4, 3), grad)
    MuSGD([p], lr=0.1, batched=batched).step()
    assert torch.equal(p.grad, grad)


@BOTH
def test_without_muon_weight_a_gradient_that_is_not_finite_stays_in_its_own_elements(
    batched: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    def fail(*args: object) -> None:
        raise AssertionError("orthogonalisation ran")

    monkeypatch.setattr("lucid_optim.updates.newton_schulz", fail)
    monkeypatch.setattr("lucid_optim.updates.newton_schulz_batch", fail)
    grad = torch.ones(2, 2)
    grad[0, 0] = math.inf
    ps = [with_grad(torch.ones(2, 2), grad) for _ in range(2)]
    MuSGD(ps, lr=0.1, w_muon=0.0, w_sgd=1.0, batched=batched).step()
    for p in ps:
        assert torch.isfinite(p.data.flatten()[1:]).all()


@BOTH
def test_a_closure_runs_once_first_with_gradients_on_and_its_value_returns(batched: bool) -> None:
    p = nn.Parameter(torch.ones(2))
    optimizer = MuSGD([p], lr=0.1, batched=batched)
    calls = []

    def closure() -> Tensor:
        calls.append(torch.is_grad_enabled())
        loss = p.sum()
        loss.backward()
        return loss

    value = optimizer.step(closure)
    assert isinstance(value, Tensor)
    assert value.item() == 2.0
    assert calls == [True]
    assert not torch.equal(p.data, torch.ones(2))
    assert optimizer.step() is None


def test_groups_have_their_own_settings() -> None:
    a, b = (with_grad(torch.zeros(2), torch.ones(2)) for _ in range(2))
    optimizer = MuSGD([{"params": [a]}, {"params": [b], "lr": 1.0, "momentum": 0.0}], lr=0.1, momentum=0.5)
    optimizer.step()
    torch.testing.assert_close(a.data, torch.full((2,), -0.15))
    torch.testing.assert_close(b.data, torch.full((2,), -1.0))
    optimizer.param_groups[0]["lr"] = 0.0
    before = a.data.clone()
    optimizer.step()
    assert torch.equal(a.data, before)


@pytest.mark.parametrize(
    ("setting", "value"),
    [
        ("lr", -0.1),
        ("lr", math.nan),
        ("momentum", 1.0),
        ("momentum", -0.1),
        ("momentum", math.nan),
        ("weight_decay", -1e-4),
        ("w_muon", -0.5),
        ("w_muon", math.nan),
        ("w_sgd", -0.5),
        ("w_sgd", math.nan),
        ("ns_steps", 0),
    ],
)
def test_a_setting_out_of_range_is_refused_by_name(setting: str, value: float) -> None:
    p = nn.Parameter(torch.ones(2))
    with pytest.raises(ValueError, match=setting):
        MuSGD([p], **{"lr": 0.1, setting: value})
    with pytest.raises(ValueError, match=setting):
        MuSGD([{"params": [p], setting: value}], lr=0.1)


def test_complex_and_sparse_are_refused() -> None:
    with pytest.raises(TypeError, match="complex64"):
        MuSGD([nn.Parameter(torch.ones(2, dtype=torch.complex64))], lr=0.1)
    embedding = nn.Embedding(3, 2, sparse=True)
    embedding(torch.tensor([1])).sum().backward()
    with pytest.raises(ValueError, match="dense gradients"):
        MuSGD(embedding.parameters(), lr=0.1).step()


def test_a_fraction_of_a_newton_schulz_step_is_a_type_error() -> None:
    p = with_grad(torch.ones(2, 2), torch.ones(2, 2))
    with pytest.raises(TypeError):
        MuSGD([p], lr=0.1, ns_steps=2.5).step()  # type: ignore[arg-type]


def test_channels_last_changes_nothing_but_the_layout() -> None:
    torch.manual_seed(0)
    values, grads = torch.randn(3, 8, 4, 3, 3), torch.randn(3, 8, 4, 3, 3)
    plain = [with_grad(v, g) for v, g in zip(values, grads, strict=True)]
    last = []
    for v, g in zip(values, grads, strict=True):
        p = nn.Parameter(v.clone(memory_format=torch.contiguous_format).to(memory_format=torch.channels_last))
        p.grad = g.to(memory_format=torch.channels_last)
        last.append(p)
    for ps in (plain, last):
        MuSGD(ps, lr=0.1).step()
    for a, b in zip(plain, last, strict=True):
        assert torch.equal(a.data, b.data)
        assert b.is_contiguous(memory_format=torch.channels_last)


def test_a_half_precision_parameter_keeps_a_float32_buffer_through_saving() -> None:
    p = with_grad(torch.ones(4, 4).bfloat16(), torch.randn(4, 4).bfloat16())
    optimizer = MuSGD([p], lr=0.1)
    optimizer.step()
    optimizer.step()
    buffer = optimizer.state[p]["momentum_buffer"]
    assert buffer.dtype == torch.float32
    other = MuSGD([nn.Parameter(p.data.clone())], lr=0.1)
    other.load_state_dict(optimizer.state_dict())
    restored = other.state[other.param_groups[0]["params"][0]]["momentum_buffer"]
    assert restored.dtype == torch.float32
    assert torch.equal(restored, buffer)
    assert restored.data_ptr() != buffer.data_ptr()


def small_net() -> nn.Sequential:
    return nn.Sequential(
        nn.Conv2d(3, 8, 3, padding=1),
        nn.BatchNorm2d(8),
        nn.ReLU(),
        nn.Conv2d(8, 8, 3, padding=1),
        nn.Flatten(),
    )


def train(model: nn.Module, optimizer: MuSGD, steps: int, seed: int) -> None:
    generator = torch.Generator().manual_seed(seed)
    for _ in range(steps):
        optimizer.zero_grad()
        model(torch.randn(4, 3, 6, 6, generator=generator)).square().mean().backward()
        optimizer.step()


@BOTH
def test_a_run_resumed_from_saved_state_equals_an_uninterrupted_one(batched: bool) -> None:
    torch.manual_seed(0)
    model = small_net()
    optimizer = MuSGD(model.parameters(), lr=0.01, batched=batched)
    train(model, optimizer, 3, seed=1)
    file = io.BytesIO()
    torch.save({"model": model.state_dict(), "optimizer": optimizer.state_dict()}, file)
    file.seek(0)
    saved = torch.load(file, weights_only=True)
    twin = small_net()
    twin.load_state_dict(saved["model"])
    other = MuSGD(twin.parameters(), lr=0.5, batched=batched)
    other.load_state_dict(saved["optimizer"])
    for m, o in ((model, optimizer), (twin, other)):
        train(m, o, 3, seed=2)
    for a, b in zip(model.state_dict().values(), twin.state_dict().values(), strict=True):
        assert torch.equal(a, b)


def test_how_the_optimizer_executes_is_no_part_of_its_state() -> None:
    p = with_grad(torch.ones(2, 2), torch.ones(2, 2))
    states = [MuSGD([p], lr=0.1, batched=b).state_dict() for b in (True, False)]
    assert states[0] == states[1]
    old = copy.deepcopy(states[0])
    old["param_groups"][0]["capture_updates"] = True
    optimizer = MuSGD([p], lr=0.1, batched=False)
    optimizer.load_state_dict(old)
    assert optimizer.batched is False
    assert "capture_updates" not in optimizer.param_groups[0]


@pytest.mark.parametrize("how", [copy.deepcopy, lambda o: pickle.loads(pickle.dumps(o))])
def test_a_copy_executes_as_its_original_does(how: object) -> None:
    p = with_grad(torch.ones(2, 2), torch.ones(2, 2))
    optimizer = how(MuSGD([p], lr=0.1, batched=False))  # type: ignore[operator]
    assert optimizer.batched is False
    optimizer.step()


def test_a_state_has_one_momentum_buffer_per_parameter_and_nothing_else() -> None:
    p = with_grad(torch.ones(2, 2), torch.ones(2, 2))
    optimizer = MuSGD([p], lr=0.1)
    optimizer.step()
    assert list(optimizer.state[p]) == ["momentum_buffer"]


@BOTH
@pytest.mark.parametrize("shape", [(16, 40), (40, 16), (24, 24), (8, 144)])
def test_muon_alone_follows_torch_muon_to_bfloat16_accuracy(shape: tuple[int, int], batched: bool) -> None:
    torch.manual_seed(0)
    start = torch.randn(shape)
    grads = [torch.randn(shape) for _ in range(5)]
    ours, theirs = nn.Parameter(start.clone()), nn.Parameter(start.clone())
    mine = MuSGD([ours], lr=0.02, weight_decay=0.1, w_muon=1.0, w_sgd=0.0, batched=batched)
    muon = torch.optim.Muon(
        [theirs], lr=0.02, weight_decay=0.1, momentum=0.95, adjust_lr_fn="match_rms_adamw"
    )
    for grad in grads:
        ours.grad, theirs.grad = grad.clone(), grad.clone()
        mine.step()
        muon.step()
    moved = (theirs.data - start).norm()
    assert (ours.data - theirs.data).norm() / moved < 0.05


def test_the_scale_follows_the_larger_side_of_the_flattened_kernel() -> None:
    grad = torch.randn(4, 8, 3, 3, dtype=torch.float64)
    p = with_grad(torch.zeros(4, 8, 3, 3, dtype=torch.float64), grad)
    MuSGD([p], lr=1.0, momentum=0.0, weight_decay=0.0, w_muon=1.0, w_sgd=0.0).step()
    expected = -0.2 * math.sqrt(72) * newton_schulz(grad.reshape(4, 72))
    torch.testing.assert_close(p.data.reshape(4, 72), expected)
