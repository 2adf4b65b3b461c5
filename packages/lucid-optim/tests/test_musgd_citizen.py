"""MuSGD beside the rest of torch: schedulers, scalers, hooks, copies, checkpoints, accumulation."""

import copy
import io
import pickle
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch
import torch.distributed.checkpoint as dcp
from torch import nn
from torch.distributed.checkpoint.state_dict import get_optimizer_state_dict, set_optimizer_state_dict

from lucid_capture import same_bytes
from lucid_optim import MuSGD, param_groups


def net(seed: int = 0, dtype: torch.dtype = torch.float32) -> nn.Sequential:
    torch.manual_seed(seed)
    return nn.Sequential(nn.Conv2d(3, 6, 3), nn.BatchNorm2d(6), nn.Flatten(), nn.Linear(96, 3)).to(dtype)


def train(
    model: nn.Module, optimizer: MuSGD, steps: int, seed: int, after: Callable[[], Any] = lambda: None
) -> None:
    generator = torch.Generator().manual_seed(seed)
    dtype = next(model.parameters()).dtype
    for _ in range(steps):
        optimizer.zero_grad()
        model(torch.randn(2, 3, 6, 6, generator=generator).to(dtype)).square().mean().backward()
        optimizer.step()
        after()


def everything(model: nn.Module, optimizer: MuSGD) -> dict[str, Any]:
    buffers = [optimizer.state[p]["momentum_buffer"] for g in optimizer.param_groups for p in g["params"]]
    return {"model": model.state_dict(), "buffers": buffers}


def through_torch_save(state: dict[str, Any]) -> dict[str, Any]:
    file = io.BytesIO()
    torch.save(state, file)
    file.seek(0)
    loaded: dict[str, Any] = torch.load(file, weights_only=True)
    return loaded


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
def test_a_run_stopped_under_a_scheduler_resumes_to_the_same_bytes(dtype: torch.dtype) -> None:
    def build() -> tuple[nn.Module, MuSGD, torch.optim.lr_scheduler.OneCycleLR]:
        model = net(dtype=dtype)
        optimizer = MuSGD(param_groups(model, {"3.*": {"lr": 0.02}}), lr=0.01)
        # cycles the momentum too
        return model, optimizer, torch.optim.lr_scheduler.OneCycleLR(optimizer, 0.05, total_steps=8)

    model, optimizer, scheduler = build()
    train(model, optimizer, 3, 1, scheduler.step)
    parts = (model, optimizer, scheduler)
    saved = [through_torch_save(part.state_dict()) for part in parts]
    train(model, optimizer, 4, 2, scheduler.step)
    others = build()
    for part, state in zip(others, saved, strict=True):
        part.load_state_dict(state)
    train(others[0], others[1], 4, 2, others[2].step)
    comparison = same_bytes(everything(model, optimizer), everything(others[0], others[1]))
    assert comparison, str(comparison)


@pytest.mark.parametrize(
    "make",
    [
        lambda o: torch.optim.lr_scheduler.LambdaLR(o, lambda step: 1 / (step + 1)),
        lambda o: torch.optim.lr_scheduler.CosineAnnealingLR(o, 5),
        lambda o: torch.optim.lr_scheduler.CyclicLR(o, 0.01, 0.1, step_size_up=2),
        lambda o: torch.optim.lr_scheduler.SequentialLR(
            o,
            [torch.optim.lr_scheduler.LinearLR(o), torch.optim.lr_scheduler.ExponentialLR(o, 0.5)],
            milestones=[2],
        ),
    ],
)
def test_schedulers_drive_it(make: Callable[[MuSGD], Any]) -> None:
    model = net()
    optimizer = MuSGD(model.parameters(), lr=0.1)
    scheduler = make(optimizer)
    rates = []
    train(model, optimizer, 4, 0, lambda: (rates.append(optimizer.param_groups[0]["lr"]), scheduler.step()))
    assert len(set(rates)) > 1
    assert all(torch.isfinite(p).all() for p in model.parameters())


def test_the_rate_of_the_moment_scales_the_step() -> None:
    moved = []
    for rate in (0.1, 0.2):
        model = net(dtype=torch.float64)
        before = model[0].weight.detach().clone()
        optimizer = MuSGD(model.parameters(), lr=1.0)
        optimizer.param_groups[0]["lr"] = rate
        train(model, optimizer, 1, 0)
        moved.append(model[0].weight.detach() - before)
    torch.testing.assert_close(moved[1], 2 * moved[0])


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
def test_a_learning_rate_in_a_tensor_gives_the_steps_of_a_number_within_rounding(dtype: torch.dtype) -> None:
    results = []
    for rate in (0.03125, torch.tensor(0.03125)):
        model = net(dtype=dtype)
        train(model, MuSGD(model.parameters(), lr=rate), 3, 0)
        results.append(model.state_dict())
    for a, b in zip(results[0].values(), results[1].values(), strict=True):
        torch.testing.assert_close(a, b)


def test_a_group_added_mid_run_trains_from_then_on() -> None:
    model = net()
    optimizer = MuSGD(model[0].parameters(), lr=0.1)
    before = model[3].weight.detach().clone()
    train(model, optimizer, 2, 0)
    assert torch.equal(model[3].weight, before)
    optimizer.add_param_group({"params": model[3].parameters(), "lr": 0.01})
    train(model, optimizer, 1, 0)
    assert not torch.equal(model[3].weight, before)
    assert optimizer.param_groups[1]["momentum"] == 0.95
    with pytest.raises(ValueError, match="more than one parameter group"):
        optimizer.add_param_group({"params": model[3].parameters()})
    with pytest.raises(ValueError, match="w_sgd"):
        optimizer.add_param_group({"params": model[1].parameters(), "w_sgd": -1})
    assert len(optimizer.param_groups) == 2


@pytest.mark.parametrize("how", [copy.deepcopy, lambda pair: pickle.loads(pickle.dumps(pair))])
def test_a_copied_pair_continues_like_the_original(how: Callable[[Any], Any]) -> None:
    model = net()
    optimizer = MuSGD(model.parameters(), lr=0.1, route="direct")
    train(model, optimizer, 2, 0)
    twin, other = how((model, optimizer))
    assert other.route == "direct"
    for m, o in ((model, optimizer), (twin, other)):
        train(m, o, 2, 1)
    comparison = same_bytes(everything(model, optimizer), everything(twin, other))
    assert comparison, str(comparison)
    assert twin[0].weight.data_ptr() != model[0].weight.data_ptr()


def test_step_hooks_and_state_hooks_are_called() -> None:
    model = net()
    optimizer = MuSGD(model.parameters(), lr=0.1)
    events: list[str] = []
    optimizer.register_step_pre_hook(lambda *_: events.append("before"))
    optimizer.register_step_post_hook(lambda *_: events.append("after"))
    optimizer.register_state_dict_post_hook(lambda *_: events.append("saved"))
    optimizer.register_load_state_dict_post_hook(lambda *_: events.append("loaded"))
    train(model, optimizer, 1, 0)
    optimizer.load_state_dict(optimizer.state_dict())
    assert events == ["before", "after", "saved", "loaded"]


def test_a_scaler_unscales_and_skips_steps_that_overflowed() -> None:
    scaled, plain = net(), net()
    scaler = torch.amp.GradScaler("cpu", init_scale=1024.0)
    for model, use in ((scaled, True), (plain, False)):
        optimizer = MuSGD(model.parameters(), lr=0.1)
        for step in range(3):
            optimizer.zero_grad()
            x = torch.randn(2, 3, 6, 6, generator=torch.Generator().manual_seed(step))
            loss = model(x).square().mean()
            if not use:
                # the scaled run skips the middle step
                if step != 1:
                    loss.backward()
                    optimizer.step()
                continue
            scaler.scale(loss).backward()
            if step == 1:
                model[0].weight.grad[0, 0, 0, 0] = float("inf")
            scaler.step(optimizer)
            scaler.update()
    for a, b in zip(scaled.parameters(), plain.parameters(), strict=True):
        torch.testing.assert_close(a, b)


def test_accumulated_micro_batches_give_the_step_of_their_sum() -> None:
    x = torch.randn(4, 3, 6, 6, dtype=torch.float64)
    results = []
    for parts in (1, 2):
        torch.manual_seed(0)
        model = nn.Sequential(nn.Conv2d(3, 4, 3), nn.Flatten(), nn.Linear(64, 2)).double()
        optimizer = MuSGD(model.parameters(), lr=0.1)
        for chunk in x.chunk(parts):
            model(chunk).square().sum().backward()
        optimizer.step()
        results.append(list(model.parameters()))
    for a, b in zip(*results, strict=True):
        torch.testing.assert_close(a, b)


@pytest.mark.filterwarnings("ignore:torch.distributed is disabled:UserWarning")
def test_a_distributed_checkpoint_restores_model_and_momentum(tmp_path: Path) -> None:
    model = net()
    optimizer = MuSGD(param_groups(model), lr=0.1)
    train(model, optimizer, 2, 0)
    saved = {"model": model.state_dict(), "optimizer": get_optimizer_state_dict(model, optimizer)}
    dcp.save(saved, checkpoint_id=tmp_path, no_dist=True)
    twin = net(seed=1)
    other = MuSGD(param_groups(twin), lr=0.5)
    loaded = {"model": twin.state_dict(), "optimizer": get_optimizer_state_dict(twin, other)}
    dcp.load(loaded, checkpoint_id=tmp_path, no_dist=True)
    twin.load_state_dict(loaded["model"])
    set_optimizer_state_dict(twin, other, loaded["optimizer"])
    assert other.param_groups[0]["lr"] == 0.1
    for m, o in ((model, optimizer), (twin, other)):
        train(m, o, 2, 1)
    comparison = same_bytes(everything(model, optimizer), everything(twin, other))
    assert comparison, str(comparison)


def test_settings_a_state_lacks_keep_their_values_and_execution_entries_are_ignored() -> None:
    model = net()
    optimizer = MuSGD(model.parameters(), lr=0.1, ns_preset="classic", route="direct")
    state = optimizer.state_dict()
    del state["param_groups"][0]["ns_preset"]
    state["param_groups"][0] |= {"capture_updates": True, "capture_orthogonalization": True, "batched": False}
    optimizer.load_state_dict(through_torch_save(state))
    assert optimizer.param_groups[0]["ns_preset"] == "classic"
    assert (optimizer.batched, optimizer.route, optimizer.capture_updates) == (True, "direct", False)
    assert not {"batched", "capture_updates", "capture_orthogonalization"} & set(optimizer.param_groups[0])
    train(model, optimizer, 1, 0)


def test_a_state_of_another_number_of_groups_is_refused() -> None:
    model = net()
    one = MuSGD(model.parameters(), lr=0.1)
    two = MuSGD(param_groups(model, {"3.*": {}}), lr=0.1)
    with pytest.raises(ValueError, match="parameter groups"):
        two.load_state_dict(one.state_dict())


def test_a_preset_changes_the_step_and_an_unknown_one_is_refused_by_name() -> None:
    weights = []
    for preset in ("quintic", "polar_express"):
        model = net()
        train(model, MuSGD(model.parameters(), lr=0.1, ns_preset=preset), 1, 0)
        weights.append(model[3].weight.detach())
    assert not torch.equal(*weights)
    for wrong in ({"ns_preset": "cubic"}, {"route": "fast"}):
        with pytest.raises(ValueError, match=next(iter(wrong))):
            MuSGD(net().parameters(), lr=0.1, **wrong)  # type: ignore[arg-type]


def test_momentum_restored_in_another_shape_goes_the_way_of_the_definition() -> None:
    p = nn.Parameter(torch.ones(2, 3))
    p.grad = torch.ones(2, 3)
    optimizer = MuSGD([p], lr=0.1)
    optimizer.state[p]["momentum_buffer"] = torch.zeros(1, 3)
    with pytest.raises(RuntimeError, match="shape"):
        optimizer.step()
