import copy
import gc
import warnings
from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch import Tensor, nn

from lucid_capture import (
    POLICY,
    CaptureError,
    CountedCalls,
    FunctionCertificate,
    GuardedRegion,
    ModuleCertificate,
    Outcome,
    Reason,
    RefusingBackend,
    ReplayWarning,
    State,
    TapeBackend,
    count_launches,
    same_bytes,
)

MakeNet = Callable[[], nn.Module]
MakeRegion = Callable[..., GuardedRegion]


def images(seed: int, batch: int = 2) -> Tensor:
    return torch.randn(batch, 2, 8, 8, generator=torch.Generator().manual_seed(seed))


def state(net: nn.Module) -> dict[str, Any]:
    return {"grads": [p.grad for p in net.parameters()], "weights": dict(net.state_dict())}


def scalar(outputs: dict[str, Tensor]) -> Tensor:
    return outputs["main"].square().mean() + outputs["side"].abs().mean()


def train(call: Callable[..., Any], net: nn.Module, steps: int, accumulate: int = 1) -> list[Any]:
    """Losses, gradients and weights of SGD steps; the random generator starts from one seed."""
    torch.manual_seed(7)
    optimizer = torch.optim.SGD(net.parameters(), lr=0.1, momentum=0.9)
    seen = []
    for step in range(steps):
        for micro in range(accumulate):
            loss = scalar(call(images(10 * step + micro)))
            if micro == 0:
                optimizer.zero_grad()
            loss.backward()
            seen.append(loss.detach())
        seen.append(copy.deepcopy(state(net)))
        optimizer.step()
    return seen


@pytest.mark.parametrize("accumulate", [1, 3])
def test_training_through_replay_gives_the_bytes_of_native_training(
    make_net: MakeNet, make_region: MakeRegion, accumulate: int
) -> None:
    native, replayed = make_net(), make_net()
    region = make_region(replayed)
    expected = train(native, native, 4, accumulate)
    actual = train(region, replayed, 4, accumulate)
    result = same_bytes(expected, actual)
    assert result, str(result)
    assert region.counts[Reason.RECORDED] == 1
    assert region.counts[Reason.REPLAYED] == 4 * accumulate - 1


def test_two_native_trainings_give_the_same_bytes(make_net: MakeNet) -> None:
    a, b = make_net(), make_net()
    assert same_bytes(train(a, a, 3), train(b, b, 3))


def test_each_call_launches_once_forward_and_once_backward_and_python_does_not_run(
    make_net: MakeNet, make_region: MakeRegion
) -> None:
    net, backend = make_net(), TapeBackend()
    region = make_region(net, backend=backend)
    region.native = CountedCalls(net)
    train(region, net, 1)
    calls = region.native.calls
    with count_launches(backend) as launches:
        train(region, net, 3)
    assert region.native.calls == calls
    assert (launches.forward_launches, launches.backward_launches, launches.records) == (3, 3, 0)


def test_earlier_results_keep_their_values(make_net: MakeNet, make_region: MakeRegion) -> None:
    region = make_region(make_net())
    first = region(images(0))
    before = copy.deepcopy({k: v.detach() for k, v in first.items()})
    scalar(first).backward()
    scalar(region(images(1))).backward()
    assert same_bytes(before, {k: v.detach() for k, v in first.items()})


def test_a_gradient_that_is_absent_natively_stays_absent(make_net: MakeNet, make_region: MakeRegion) -> None:
    net = make_net()
    region = make_region(net)
    for _ in range(2):
        net.zero_grad()
        region(images(0))["main"].sum().backward()
        assert net.side.weight.grad is None
        assert net.head.weight.grad is not None


def test_recording_leaves_buffers_and_random_state_as_one_native_call_would(
    make_net: MakeNet, make_region: MakeRegion
) -> None:
    native, replayed = make_net(), make_net()
    draws = []
    for call, net in ((native, native), (make_region(replayed), replayed)):
        torch.manual_seed(5)
        call(images(0))
        draws.append({"next": torch.rand(3), **dict(net.named_buffers())})
    assert same_bytes(*draws)


def test_synchronisation_comes_before_the_buffers_are_put_back(
    make_net: MakeNet, make_region: MakeRegion
) -> None:
    net = make_net()

    class Late(TapeBackend):
        """Side effects of recording that land only when the device is waited for."""

        def synchronize(self) -> None:
            net.norm.running_mean.fill_(1e6)

    make_region(net, backend=Late())(images(0))
    assert net.norm.running_mean.abs().max() < 10


def test_gradient_reaches_inputs_and_keeps_their_layout() -> None:
    region = GuardedRegion(
        "f", lambda x, y: x * y.exp(), backend=TapeBackend(), differentiable=True, record_after=0
    )
    for step in range(3):
        x = torch.randn(2, 3, 4, 4).to(memory_format=torch.channels_last).requires_grad_()
        y = torch.randn(2, 3, 4, 4) * step
        region(x, y).sum().backward()
        torch.testing.assert_close(x.grad, y.exp())


def test_outputs_without_gradient_stay_without(make_net: MakeNet, make_region: MakeRegion) -> None:
    outputs = make_region(make_net())(images(0))
    assert outputs["main"].requires_grad
    assert not outputs["index"].requires_grad


def test_a_pure_region_is_replayed_with_fresh_memory_each_time() -> None:
    region = GuardedRegion("f", lambda x: (x + 1, [x * 2]), backend=TapeBackend(), record_after=0)
    a = region(torch.zeros(2))
    b = region(torch.ones(2))
    assert a[0].tolist() == [1.0, 1.0]
    assert b[1][0].tolist() == [2.0, 2.0]
    assert region.counts[Reason.REPLAYED] == 1


def test_autocast_is_frozen_into_the_recording_and_its_parameters_are_not(
    make_net: MakeNet, make_region: MakeRegion
) -> None:
    native, replayed = make_net(), make_net()
    region = make_region(replayed)

    def cast(call: Callable[..., Any]) -> Callable[..., Any]:
        def under_autocast(image: Tensor) -> Any:
            with torch.autocast("cpu", torch.bfloat16):
                return call(image)

        return under_autocast

    expected, actual = train(cast(native), native, 3), train(cast(region), replayed, 3)
    result = same_bytes(expected, actual)
    assert result, str(result)
    assert region.counts[Reason.REPLAYED] == 2


# -- one producer per reason --

Produce = Callable[[GuardedRegion, nn.Module], None]
PRODUCERS: dict[Reason, Produce] = {}


def produces(reason: Reason) -> Callable[[Produce], Produce]:
    def register(function: Produce) -> Produce:
        PRODUCERS[reason] = function
        return function

    return register


def run(region: GuardedRegion, seed: int = 1, batch: int = 2) -> None:
    scalar(region(images(seed, batch))).backward()


@produces(Reason.REPLAYED)
def _replayed(region: GuardedRegion, net: nn.Module) -> None:
    run(region)


@produces(Reason.RECORDED)
def _recorded(region: GuardedRegion, net: nn.Module) -> None:
    region.drop()
    run(region)


@produces(Reason.FIRST_SIGHTING)
def _first_sighting(region: GuardedRegion, net: nn.Module) -> None:
    region.drop()
    region.record_after = 1
    run(region)


@produces(Reason.SIGNATURE)
def _signature(region: GuardedRegion, net: nn.Module) -> None:
    run(region, batch=1)


@produces(Reason.HELD)
def _held(region: GuardedRegion, net: nn.Module) -> None:
    outstanding = scalar(region(images(1)))
    run(region)
    outstanding.backward()


@produces(Reason.GRAD_MODE)
def _grad_mode(region: GuardedRegion, net: nn.Module) -> None:
    with torch.no_grad():
        region(images(1))


@produces(Reason.MODE)
def _mode(region: GuardedRegion, net: nn.Module) -> None:
    net.eval()
    run(region)
    net.train()


@produces(Reason.IN_CAPTURE)
def _in_capture(region: GuardedRegion, net: nn.Module) -> None:
    region.backend._capturing = True  # type: ignore[attr-defined]
    run(region)
    region.backend._capturing = False  # type: ignore[attr-defined]


@produces(Reason.GLOBAL_HOOKS)
def _global_hooks(region: GuardedRegion, net: nn.Module) -> None:
    handle = nn.modules.module.register_module_forward_hook(lambda *a: None)
    run(region)
    handle.remove()


@produces(Reason.UNSUPPORTED)
def _unsupported(region: GuardedRegion, net: nn.Module) -> None:
    region.drop()
    region.backend = RefusingBackend()
    run(region)


@produces(Reason.STORAGE)
def _storage(region: GuardedRegion, net: nn.Module) -> None:
    net.conv.weight.data = net.conv.weight.data.clone()
    run(region)


@produces(Reason.TRAINABLE)
def _trainable(region: GuardedRegion, net: nn.Module) -> None:
    net.conv.bias.requires_grad_(False)
    run(region)


@produces(Reason.STRUCTURE)
def _structure(region: GuardedRegion, net: nn.Module) -> None:
    net.head.forward = net.head.forward  # an instance override, even of the same function
    run(region)


@produces(Reason.HOOKS)
def _hooks(region: GuardedRegion, net: nn.Module) -> None:
    net.head.register_forward_hook(lambda *a: None)
    run(region)


@produces(Reason.PRECISION)
def _precision(region: GuardedRegion, net: nn.Module) -> None:
    with torch.autocast("cpu", torch.bfloat16):
        run(region)


@produces(Reason.CONTRACT)
def _contract(region: GuardedRegion, net: nn.Module) -> None:
    gain = [1.0]
    region.certificate = Gained(net, gain)
    region.drop()
    run(region)
    gain[0] = 2.0
    run(region)


class Gained(ModuleCertificate):
    """A module with a host constant its work bakes in."""

    def __init__(self, net: nn.Module, gain: list[float]) -> None:
        super().__init__(net)
        self._constants = FunctionCertificate(gain=lambda: gain[0])

    def facts(self) -> Any:
        return {**super().facts(), **self._constants.facts()}


@produces(Reason.RECORDING_FAILED)
def _recording_failed(region: GuardedRegion, net: nn.Module) -> None:
    region.drop()
    region.backend.fail_at = "backward"  # type: ignore[attr-defined]
    with pytest.raises(CaptureError, match="injected"):
        run(region)


@produces(Reason.RETIRED)
def _retired(region: GuardedRegion, net: nn.Module) -> None:
    _hooks(region, net)
    run(region)


@produces(Reason.CLOSED)
def _closed(region: GuardedRegion, net: nn.Module) -> None:
    region.close()
    run(region)


@pytest.fixture
def active(make_net: MakeNet, make_region: MakeRegion) -> tuple[GuardedRegion, nn.Module]:
    net = make_net()
    region = make_region(net)
    run(region, seed=0)
    region.counts.clear()
    return region, net


@pytest.mark.parametrize("reason", list(Reason), ids=lambda r: r.name)
def test_every_reason_has_a_call_that_produces_it(
    active: tuple[GuardedRegion, nn.Module], reason: Reason
) -> None:
    region, net = active
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always", ReplayWarning)
        PRODUCERS[reason](region, net)
    assert region.counts[reason] == 1
    told = [w for w in caught if issubclass(w.category, ReplayWarning)]
    retires = POLICY[reason] is Outcome.RETIRE or reason is Reason.RETIRED
    assert len(told) == (1 if retires else 0)
    assert (region.state is State.RETIRED) == retires


TRANSIENT = [
    r
    for r in Reason
    if POLICY[r] is Outcome.NATIVE_ONCE and r not in (Reason.RETIRED, Reason.CLOSED, Reason.FIRST_SIGHTING)
]


@pytest.mark.parametrize("reason", TRANSIENT, ids=lambda r: r.name)
def test_after_a_transient_reason_the_recording_is_used_again(
    active: tuple[GuardedRegion, nn.Module], reason: Reason
) -> None:
    region, net = active
    PRODUCERS[reason](region, net)
    before = region.counts[Reason.REPLAYED]
    run(region)
    assert region.counts[Reason.REPLAYED] == before + 1


NATIVE = [r for r in Reason if POLICY[r] in (Outcome.NATIVE_ONCE, Outcome.RETIRE)]


@pytest.mark.parametrize("reason", NATIVE, ids=lambda r: r.name)
def test_a_native_call_gives_native_bytes(
    active: tuple[GuardedRegion, nn.Module], make_net: MakeNet, reason: Reason
) -> None:
    region, net = active
    twin = make_net()
    scalar(twin(images(0))).backward()
    states = []
    for r, n, make in ((region, net, PRODUCERS[reason]), (NativeTwin(twin), twin, PRODUCERS[reason])):
        n.zero_grad()
        torch.manual_seed(9)
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", ReplayWarning)
            make(r, n)  # type: ignore[arg-type]
        states.append(state(n))
    result = same_bytes(*states)
    assert result, str(result)


class NativeTwin:
    """Answers a region's methods by running the network: what every guard is held to."""

    def __init__(self, net: nn.Module) -> None:
        self.net = net
        self.backend = TapeBackend()

    def __call__(self, *args: Any) -> Any:
        return self.net(*args)

    def drop(self) -> None: ...

    def close(self) -> None: ...


@pytest.mark.parametrize(
    "reason",
    [Reason.MODE, Reason.STORAGE, Reason.HOOKS, Reason.PRECISION, Reason.CONTRACT],
    ids=lambda r: r.name,
)
def test_without_its_guard_the_change_is_not_noticed(
    active: tuple[GuardedRegion, nn.Module], reason: Reason, monkeypatch: pytest.MonkeyPatch
) -> None:
    region, net = active
    original = region._facts
    monkeypatch.setattr(region, "_facts", lambda: {k: v for k, v in original().items() if k is not reason})
    region.drop()
    run(region, seed=0)
    PRODUCERS[reason](region, net)
    assert region.counts[reason] == 0
    assert region.state is not State.RETIRED


# -- ownership, holds, life cycle --


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


def test_a_hold_ends_with_the_graph_that_was_never_used(active: tuple[GuardedRegion, nn.Module]) -> None:
    region, _ = active
    outputs = region(images(1))
    assert region.state is State.HELD
    del outputs
    gc.collect()
    assert region.state is State.ACTIVE


def test_a_skipped_backward_can_be_given_up_and_then_refuses_to_run(
    active: tuple[GuardedRegion, nn.Module],
) -> None:
    region, _ = active
    skipped = scalar(region(images(1)))
    region.release()
    run(region)
    with pytest.raises(RuntimeError, match="overwritten"):
        skipped.backward()


def test_a_second_cause_is_silent(active: tuple[GuardedRegion, nn.Module]) -> None:
    region, net = active
    with pytest.warns(ReplayWarning, match="hooks"):
        _hooks(region, net)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        _storage(region, net)
    assert region.retired_by is Reason.HOOKS


def test_a_copy_carries_no_recording_and_watches_its_own_module(
    active: tuple[GuardedRegion, nn.Module],
) -> None:
    region, net = active
    twin, twin_net = copy.deepcopy((region, net))
    assert twin.state is State.IDLE
    run(twin)
    assert twin_net.conv.weight.grad is not None
    assert twin.native is twin_net
    assert region.state is State.ACTIVE


def test_a_failed_recording_publishes_nothing_and_restores_everything(
    make_net: MakeNet, make_region: MakeRegion
) -> None:
    net = make_net()
    before = copy.deepcopy(net.state_dict())
    region = make_region(net, backend=TapeBackend(fail_at="forward"))
    assert gc.isenabled()
    rng = torch.get_rng_state()
    with pytest.raises(CaptureError):
        region(images(0))
    assert gc.isenabled()
    assert region.state is State.IDLE
    assert same_bytes(before, net.state_dict())
    assert torch.equal(rng, torch.get_rng_state())


def test_a_failed_recording_may_retire_instead(make_net: MakeNet, make_region: MakeRegion) -> None:
    policy = {Reason.RECORDING_FAILED: Outcome.RETIRE}
    region = make_region(make_net(), backend=TapeBackend(fail_at="forward"), policy=policy)
    with pytest.warns(ReplayWarning, match="recording raised"):
        run(region)
    assert region.retired_by is Reason.RECORDING_FAILED


def test_policy_can_make_a_reason_an_error(make_net: MakeNet, make_region: MakeRegion) -> None:
    region = make_region(make_net(), policy={Reason.SIGNATURE: Outcome.RAISE})
    run(region)
    with pytest.raises(CaptureError, match="'net'"):
        run(region, batch=1)


def test_several_signatures_are_kept_up_to_the_capacity(make_net: MakeNet, make_region: MakeRegion) -> None:
    region = make_region(make_net(), capacity=2)
    for batch in (1, 2, 3, 1, 2, 3):
        run(region, batch=batch)
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
