import io
import math

import pytest
import torch
from torch import Tensor, nn

from lucid_optim import ModelEMA


def net() -> nn.Sequential:
    torch.manual_seed(0)
    return nn.Sequential(nn.Conv2d(1, 2, 3), nn.BatchNorm2d(2))


def move(module: nn.Module) -> None:
    with torch.no_grad():
        for p in module.parameters():
            p.add_(torch.randn(p.shape))
        for b in module.buffers():
            if b.is_floating_point():
                b.add_(torch.rand(b.shape))


def snapshot(module: nn.Module) -> dict[str, Tensor]:
    return {k: v.clone() for k, v in module.state_dict().items()}


# the ramp starts near 0: early blends use lerp's branch above weight one half, late ones the other
@pytest.mark.parametrize("tau", [1.0, 3.0, 2000.0])
def test_the_shadow_follows_the_ramped_recursion(tau: float) -> None:
    module = net()
    ema = ModelEMA(module, decay=0.9, tau=tau)
    expected = {k: v.double() for k, v in snapshot(module).items() if v.is_floating_point()}
    for n in range(1, 8):
        move(module)
        ema.update(module)
        d = 0.9 * (1 - math.exp(-n / tau))
        live = module.state_dict()
        expected = {k: d * v + (1 - d) * live[k].double() for k, v in expected.items()}
    for name, value in expected.items():
        torch.testing.assert_close(ema.shadow[name].double(), value, rtol=1e-6, atol=1e-6)


def test_integer_buffers_are_not_averaged() -> None:
    assert not any("num_batches" in name for name in ModelEMA(net()).shadow)
    assert "1.running_var" in ModelEMA(net()).shadow


def test_only_every_kth_step_blends() -> None:
    module = net()
    ema = ModelEMA(module, update_every=3)
    for _ in range(7):
        ema.update(module)
    assert (ema.steps_seen, ema.num_updates) == (7, 2)


def test_swapping_keeps_addresses_and_restores_every_byte() -> None:
    module = net()
    ema = ModelEMA(module)
    move(module)
    live, addresses = snapshot(module), [p.data_ptr() for p in module.parameters()]
    ema.swap_in(module)
    assert torch.equal(module[0].weight, ema.shadow["0.weight"])
    assert not torch.equal(module[0].weight, live["0.weight"])
    ema.swap_out(module)
    ema.swap_out(module)
    assert [p.data_ptr() for p in module.parameters()] == addresses
    for name, value in module.state_dict().items():
        assert torch.equal(value, live[name])


def test_a_swapped_module_can_be_neither_averaged_nor_swapped_again() -> None:
    module = net()
    ema = ModelEMA(module)
    ema.swap_in(module)
    with pytest.raises(RuntimeError, match="swap_out"):
        ema.update(module)
    with pytest.raises(RuntimeError, match="swap_out"):
        ema.swap_in(module)


def test_the_shadow_is_independent_of_the_module() -> None:
    module = net()
    ema = ModelEMA(module)
    before = {k: v.clone() for k, v in ema.shadow.items()}
    move(module)
    assert all(torch.equal(ema.shadow[k], v) for k, v in before.items())


def test_state_survives_a_safe_load_and_continues_alike() -> None:
    module = net()
    ema = ModelEMA(module, tau=5)
    move(module)
    ema.update(module)
    file = io.BytesIO()
    torch.save(ema.state_dict(), file)
    file.seek(0)
    other = ModelEMA(net(), tau=5)
    other.load_state_dict(torch.load(file, weights_only=True))
    move(module)
    for e in (ema, other):
        e.update(module)
    assert other.num_updates == 2
    assert all(torch.equal(ema.shadow[k], other.shadow[k]) for k in ema.shadow)


def test_the_older_name_of_the_step_count_is_read() -> None:
    ema = ModelEMA(net())
    state = ema.state_dict()
    state["batches_seen"] = state.pop("steps_seen") + 4
    ema.load_state_dict(state)
    assert ema.steps_seen == 4


def test_a_state_of_another_module_is_refused_by_name() -> None:
    ema = ModelEMA(net())
    with pytest.raises(ValueError, match="weight"):
        ema.load_state_dict(ModelEMA(nn.Linear(2, 2)).state_dict())
    state = ema.state_dict()
    state["shadow"]["0.bias"] = torch.zeros(5)
    with pytest.raises(ValueError, match="0\\.bias"):
        ema.load_state_dict(state)


def test_a_module_of_other_names_is_refused() -> None:
    with pytest.raises(ValueError, match="does not match"):
        ModelEMA(net()).update(nn.Linear(2, 2))


def test_weights_overlay_every_name_of_a_shared_parameter() -> None:
    module = nn.ModuleDict({"a": nn.Linear(2, 2), "b": nn.Linear(2, 2)})
    module["b"].weight = module["a"].weight
    ema = ModelEMA(module)
    move(module)
    weights = ema.weights(module)
    assert weights.keys() == module.state_dict().keys()
    assert torch.equal(weights["b.weight"], ema.shadow["a.weight"])
    assert not torch.equal(weights["b.weight"], module["b"].weight)


@pytest.mark.parametrize("bad", [{"decay": 1.0}, {"decay": -0.1}, {"tau": 0.0}, {"update_every": 0}])
def test_settings_out_of_range_are_refused_by_name(bad: dict[str, float]) -> None:
    with pytest.raises(ValueError, match=next(iter(bad))):
        ModelEMA(net(), **bad)  # type: ignore[arg-type]
