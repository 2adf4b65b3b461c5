import copy
import gc
import warnings
from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch import Tensor, nn

from lucid_capture import (
    CaptureError,
    ExecutionProbe,
    GuardedRegion,
    Outcome,
    Reason,
    ReplayWarning,
    State,
    TapeBackend,
    same_bytes,
)

MakeNet = Callable[[], nn.Module]
MakeRegion = Callable[..., GuardedRegion]


def test_two_micro_batches_of_derivative_one_and_three_sum_to_four() -> None:
    w = nn.Parameter(torch.ones(1))
    region = GuardedRegion(
        "w", lambda x, p: x * p, backend=TapeBackend(), differentiable=True, record_after=0
    )
    for x in (1.0, 3.0):
        region(torch.full((1,), x), w).backward()
    assert w.grad.item() == 4.0


def test_handing_out_the_recordings_own_buffers_breaks_accumulation(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("lucid_capture.gradients._owned", lambda tensors: [t.detach() for t in tensors])
    w = nn.Parameter(torch.ones(1))
    region = GuardedRegion(
        "w", lambda x, p: x * p, backend=TapeBackend(), differentiable=True, record_after=0
    )
    for x in (1.0, 3.0):
        region(torch.full((1,), x), w).backward()
    assert w.grad.item() != 4.0


def test_not_copying_inputs_in_scores_stale_data(monkeypatch: pytest.MonkeyPatch) -> None:
    region = GuardedRegion("f", lambda x: x + 1, backend=TapeBackend(), record_after=0)
    region(torch.zeros(1))
    monkeypatch.setattr(Tensor, "copy_", lambda self, other, *a: self)
    stale = region(torch.ones(1))
    monkeypatch.undo()
    assert stale.item() != 2.0
    assert region(torch.ones(1)).item() == 2.0


def test_a_hold_ends_with_the_graph_that_was_never_used(
    toy: Any, active: tuple[GuardedRegion, nn.Module]
) -> None:
    region, _ = active
    outputs = region(toy.images(1))
    assert region.state is State.HELD
    del outputs
    gc.collect()
    assert region.state is State.ACTIVE


def test_a_skipped_backward_can_be_given_up_and_then_refuses_to_run(
    toy: Any,
    active: tuple[GuardedRegion, nn.Module],
) -> None:
    region, _ = active
    skipped = toy.scalar(region(toy.images(1)))
    region.release()
    toy.run(region)
    with pytest.raises(RuntimeError, match="overwritten"):
        skipped.backward()


def test_a_second_cause_is_silent(toy: Any, active: tuple[GuardedRegion, nn.Module]) -> None:
    region, net = active
    net.head.register_forward_hook(lambda *a: None)
    with pytest.warns(ReplayWarning, match="hooks"):
        toy.run(region)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        net.conv.weight.data = net.conv.weight.data.clone()
        toy.run(region)
    assert region.retired_by is Reason.HOOKS


def test_a_copy_carries_no_recording_and_watches_its_own_module(
    toy: Any,
    active: tuple[GuardedRegion, nn.Module],
) -> None:
    region, net = active
    twin, twin_net = copy.deepcopy((region, net))
    assert twin.state is State.IDLE
    toy.run(twin)
    assert twin_net.conv.weight.grad is not None
    assert twin.native is twin_net
    assert region.state is State.ACTIVE


def test_a_failed_recording_publishes_nothing_and_restores_everything(
    toy: Any, make_net: MakeNet, make_region: MakeRegion
) -> None:
    net = make_net()
    before = copy.deepcopy(net.state_dict())
    region = make_region(net, backend=TapeBackend(fail_at="forward"))
    assert gc.isenabled()
    rng = torch.get_rng_state()
    with pytest.raises(CaptureError):
        region(toy.images(0))
    assert gc.isenabled()
    assert region.state is State.IDLE
    assert same_bytes(before, net.state_dict())
    assert torch.equal(rng, torch.get_rng_state())


def test_a_failed_recording_may_retire_instead(toy: Any, make_net: MakeNet, make_region: MakeRegion) -> None:
    policy = {Reason.RECORDING_FAILED: Outcome.RETIRE}
    region = make_region(make_net(), backend=TapeBackend(fail_at="forward"), policy=policy)
    with pytest.warns(ReplayWarning, match="recording raised"):
        toy.run(region)
    assert region.retired_by is Reason.RECORDING_FAILED


def test_policy_can_make_a_reason_an_error(toy: Any, make_net: MakeNet, make_region: MakeRegion) -> None:
    region = make_region(make_net(), policy={Reason.SIGNATURE: Outcome.RAISE})
    toy.run(region)
    with pytest.raises(CaptureError, match="'net'"):
        toy.run(region, batch=1)


def test_several_signatures_are_kept_up_to_the_capacity(
    toy: Any, make_net: MakeNet, make_region: MakeRegion
) -> None:
    region = make_region(make_net(), capacity=2)
    for batch in (1, 2, 3, 1, 2, 3):
        toy.run(region, batch=batch)
    assert region.counts == {Reason.RECORDED: 2, Reason.SIGNATURE: 2, Reason.REPLAYED: 2}


def test_a_region_that_returns_a_host_value_cannot_be_recorded() -> None:
    region = GuardedRegion("f", lambda x: (x, 3), backend=TapeBackend(), record_after=0)
    with pytest.raises(CaptureError, match="returns a int"):
        region(torch.ones(1))


def test_host_scalars_are_part_of_the_signature() -> None:
    region = GuardedRegion("f", lambda x, a: x * a, backend=TapeBackend(), record_after=0)
    assert region(torch.ones(1), 2.0).item() == 2.0
    assert region(torch.ones(1), 3.0).item() == 3.0
    assert region.counts[Reason.SIGNATURE] == 1


def test_with_several_processes_a_region_is_native_and_says_so_once(
    toy: Any, make_net: MakeNet, make_region: MakeRegion
) -> None:
    class Two(ExecutionProbe):
        def processes(self) -> int:
            return 2

    region = make_region(make_net(), probe=Two())
    with pytest.warns(ReplayWarning, match="several processes") as told:
        toy.run(region)
    with warnings.catch_warnings():
        warnings.simplefilter("error", ReplayWarning)
        toy.run(region)
    assert len(told) == 1
    assert region.counts == {Reason.UNSUPPORTED: 1, Reason.RETIRED: 1}


def test_a_policy_may_drop_and_record_again_instead_of_retiring(
    toy: Any, make_net: MakeNet, make_region: MakeRegion
) -> None:
    net = make_net()
    region = make_region(net, policy={Reason.STORAGE: Outcome.DROP})
    toy.run(region)
    net.conv.weight.data = net.conv.weight.data.clone()
    for _ in range(3):
        toy.run(region)
    assert region.counts == {Reason.RECORDED: 2, Reason.STORAGE: 1, Reason.REPLAYED: 1}
    assert region.state is State.ACTIVE
