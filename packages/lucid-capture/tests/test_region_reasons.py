import functools
import warnings
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

import pytest
import torch
from torch import nn

from lucid_capture import (
    POLICY,
    CaptureError,
    FunctionCertificate,
    GuardedRegion,
    ModuleCertificate,
    Outcome,
    Reason,
    RefusingBackend,
    ReplayWarning,
    State,
    TapeBackend,
    same_bytes,
)

MakeNet = Callable[[], nn.Module]
MakeRegion = Callable[..., GuardedRegion]


Produce = Callable[[Any, GuardedRegion, nn.Module], None]
PRODUCERS: dict[Reason, Produce] = {}


def produces(reason: Reason) -> Callable[[Produce], Produce]:
    def register(function: Produce) -> Produce:
        PRODUCERS[reason] = function
        return function

    return register


@produces(Reason.REPLAYED)
def _replayed(toy: Any, region: GuardedRegion, net: nn.Module) -> None:
    toy.run(region)


@produces(Reason.RECORDED)
def _recorded(toy: Any, region: GuardedRegion, net: nn.Module) -> None:
    region.drop()
    toy.run(region)


@produces(Reason.FIRST_SIGHTING)
def _first_sighting(toy: Any, region: GuardedRegion, net: nn.Module) -> None:
    region.drop()
    region.record_after = 1
    toy.run(region)


@produces(Reason.SIGNATURE)
def _signature(toy: Any, region: GuardedRegion, net: nn.Module) -> None:
    toy.run(region, batch=1)


@produces(Reason.HELD)
def _held(toy: Any, region: GuardedRegion, net: nn.Module) -> None:
    outstanding = toy.scalar(region(toy.images(1)))
    toy.run(region)
    outstanding.backward()


@produces(Reason.GRAD_MODE)
def _grad_mode(toy: Any, region: GuardedRegion, net: nn.Module) -> None:
    with torch.no_grad():
        region(toy.images(1))


@produces(Reason.MODE)
def _mode(toy: Any, region: GuardedRegion, net: nn.Module) -> None:
    net.eval()
    toy.run(region)
    net.train()


@produces(Reason.IN_CAPTURE)
def _in_capture(toy: Any, region: GuardedRegion, net: nn.Module) -> None:
    def work(tensors: Any) -> Any:
        toy.run(region)
        return tensors

    TapeBackend(warmup=0).record(work, [torch.ones(1)], (), differentiable=True)


@produces(Reason.GLOBAL_HOOKS)
def _global_hooks(toy: Any, region: GuardedRegion, net: nn.Module) -> None:
    handle = nn.modules.module.register_module_forward_hook(lambda *a: None)
    toy.run(region)
    handle.remove()


@produces(Reason.STREAM)
def _stream(toy: Any, region: GuardedRegion, net: nn.Module) -> None:
    with region.backend.on_stream(1):  # type: ignore[attr-defined]
        toy.run(region)


@produces(Reason.ALIASED)
def _aliased(toy: Any, region: GuardedRegion, net: nn.Module) -> None:
    shared = torch.zeros(260)
    net.norm.running_mean = shared[256:]
    region.drop()
    toy.run(region)
    toy.scalar(region(shared[:256].view(2, 2, 8, 8))).backward()


@produces(Reason.DECLINED)
def _declined(toy: Any, region: GuardedRegion, net: nn.Module) -> None:
    region.admit = lambda image: bool(image.isfinite().all())
    region(torch.full((2, 2, 8, 8), torch.inf))
    region.admit = None


@produces(Reason.PAUSED)
def _paused(toy: Any, region: GuardedRegion, net: nn.Module) -> None:
    with region.paused():
        toy.run(region)


@produces(Reason.UNSUPPORTED)
def _unsupported(toy: Any, region: GuardedRegion, net: nn.Module) -> None:
    region.drop()
    region.backend = RefusingBackend()
    toy.run(region)


@produces(Reason.STORAGE)
def _storage(toy: Any, region: GuardedRegion, net: nn.Module) -> None:
    net.conv.weight.data = net.conv.weight.data.clone()
    toy.run(region)


@produces(Reason.TRAINABLE)
def _trainable(toy: Any, region: GuardedRegion, net: nn.Module) -> None:
    net.conv.bias.requires_grad_(False)
    toy.run(region)


@produces(Reason.STRUCTURE)
def _structure(toy: Any, region: GuardedRegion, net: nn.Module) -> None:
    net.head.forward = net.head.forward  # an instance override, even of the same function
    toy.run(region)


@produces(Reason.HOOKS)
def _hooks(toy: Any, region: GuardedRegion, net: nn.Module) -> None:
    net.head.register_forward_hook(lambda *a: None)
    toy.run(region)


@produces(Reason.PRECISION)
def _precision(toy: Any, region: GuardedRegion, net: nn.Module) -> None:
    with torch.autocast("cpu", torch.bfloat16):
        toy.run(region)


@produces(Reason.CONTRACT)
def _contract(toy: Any, region: GuardedRegion, net: nn.Module) -> None:
    gain = [1.0]
    region.certificate = Gained(net, gain)
    region.drop()
    toy.run(region)
    gain[0] = 2.0
    toy.run(region)


class Gained(ModuleCertificate):
    """A module with a host constant its work bakes in."""

    def __init__(self, net: nn.Module, gain: list[float]) -> None:
        super().__init__(net)
        self._constants = FunctionCertificate(gain=lambda: gain[0])

    def facts(self) -> Any:
        return {**super().facts(), **self._constants.facts()}


@produces(Reason.RECORDING_FAILED)
def _recording_failed(toy: Any, region: GuardedRegion, net: nn.Module) -> None:
    region.drop()
    region.backend.fail_at = "backward"  # type: ignore[attr-defined]
    with pytest.raises(CaptureError, match="injected"):
        toy.run(region)


@produces(Reason.RETIRED)
def _retired(toy: Any, region: GuardedRegion, net: nn.Module) -> None:
    _hooks(toy, region, net)
    toy.run(region)


@produces(Reason.CLOSED)
def _closed(toy: Any, region: GuardedRegion, net: nn.Module) -> None:
    region.close()
    toy.run(region)


@pytest.mark.parametrize("reason", list(Reason), ids=lambda r: r.name)
def test_every_reason_has_a_call_that_produces_it(
    toy: Any, active: tuple[GuardedRegion, nn.Module], reason: Reason
) -> None:
    region, net = active
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always", ReplayWarning)
        PRODUCERS[reason](toy, region, net)
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
    toy: Any, active: tuple[GuardedRegion, nn.Module], reason: Reason
) -> None:
    region, net = active
    PRODUCERS[reason](toy, region, net)
    before = region.counts[Reason.REPLAYED]
    toy.run(region)
    assert region.counts[Reason.REPLAYED] == before + 1


NATIVE = [r for r in Reason if POLICY[r] in (Outcome.NATIVE_ONCE, Outcome.RETIRE)]


@pytest.mark.parametrize("reason", NATIVE, ids=lambda r: r.name)
def test_a_native_call_gives_native_bytes(
    toy: Any, active: tuple[GuardedRegion, nn.Module], make_net: MakeNet, reason: Reason
) -> None:
    region, net = active
    twin = make_net()
    toy.scalar(twin(toy.images(0))).backward()
    states = []
    for r, n, make in ((region, net, PRODUCERS[reason]), (NativeTwin(twin), twin, PRODUCERS[reason])):
        n.zero_grad()
        torch.default_generator.manual_seed(9)
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", ReplayWarning)
            make(toy, r, n)  # type: ignore[arg-type]
        states.append(toy.state(n))
    result = same_bytes(*states)
    assert result, str(result)


class NativeTwin:
    """Answers a region's methods by running the network: what every guard is held to."""

    def __init__(self, net: nn.Module) -> None:
        self.net = net
        self.backend = TapeBackend()

    def __call__(self, *args: Any) -> Any:
        return self.net(*args)

    @contextmanager
    def paused(self) -> Iterator[None]:
        yield

    def drop(self) -> None: ...

    def close(self) -> None: ...


# A mutant removes one guard. The test above must then fail for the reason that the guard gave.

Mutate = Callable[[pytest.MonkeyPatch, GuardedRegion], None]
MUTANTS: dict[Reason, Mutate] = {}


def mutant(*reasons: Reason) -> Callable[[Callable[..., None]], Callable[..., None]]:
    def register(function: Callable[..., None]) -> Callable[..., None]:
        for reason in reasons:
            MUTANTS[reason] = functools.partial(function, reason)
        return function

    return register


@mutant(
    Reason.HELD,
    Reason.GRAD_MODE,
    Reason.IN_CAPTURE,
    Reason.GLOBAL_HOOKS,
    Reason.DECLINED,
)
def no_guard_of_the_call(reason: Reason, patch: pytest.MonkeyPatch, region: GuardedRegion) -> None:
    patch.setattr(region, "_transient", lambda args, tensors: None)


@mutant(
    Reason.MODE,
    Reason.STORAGE,
    Reason.TRAINABLE,
    Reason.STRUCTURE,
    Reason.PRECISION,
    Reason.CONTRACT,
)
def no_such_fact(reason: Reason, patch: pytest.MonkeyPatch, region: GuardedRegion) -> None:
    original = region._facts
    patch.setattr(region, "_facts", lambda: {k: v for k, v in original().items() if k is not reason})
    region.drop()
    image = torch.zeros(2, 2, 8, 8)
    region(image)


@mutant(Reason.HOOKS, Reason.STREAM, Reason.ALIASED, Reason.REPLAYED)
def wrong_answer_about_a_recording(reason: Reason, patch: pytest.MonkeyPatch, region: GuardedRegion) -> None:
    original = region._replayable
    other = Reason.SIGNATURE if reason is Reason.REPLAYED else Reason.REPLAYED

    def mutated(*args: Any) -> Reason:
        found = original(*args)
        return other if found is reason else found

    patch.setattr(region, "_replayable", mutated)


@mutant(Reason.FIRST_SIGHTING, Reason.SIGNATURE, Reason.UNSUPPORTED, Reason.RECORDED)
def wrong_answer_about_a_new_signature(
    reason: Reason, patch: pytest.MonkeyPatch, region: GuardedRegion
) -> None:
    original = region._recordable
    other = Reason.SIGNATURE if reason is Reason.RECORDED else Reason.RECORDED

    def mutated(*args: Any) -> Reason:
        found = original(*args)
        return other if found is reason else found

    patch.setattr(region, "_recordable", mutated)


@mutant(Reason.RETIRED, Reason.CLOSED, Reason.PAUSED)
def never_out_of_service(reason: Reason, patch: pytest.MonkeyPatch, region: GuardedRegion) -> None:
    patch.setattr(region, "_standing", lambda: None)


@mutant(Reason.RECORDING_FAILED)
def a_failed_recording_is_hidden(reason: Reason, patch: pytest.MonkeyPatch, region: GuardedRegion) -> None:
    region.policy = {**region.policy, reason: Outcome.NATIVE_ONCE}


@pytest.mark.parametrize("reason", list(Reason), ids=lambda r: r.name)
def test_without_its_guard_the_reason_is_not_given(
    toy: Any, active: tuple[GuardedRegion, nn.Module], reason: Reason, monkeypatch: pytest.MonkeyPatch
) -> None:
    region, net = active
    MUTANTS[reason](monkeypatch, region)
    region.counts.clear()
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", ReplayWarning)
        with pytest.raises((AssertionError, RuntimeError, pytest.fail.Exception)):  # noqa: PT012
            PRODUCERS[reason](toy, region, net)
            assert region.counts[reason] == 1


def test_without_the_hold_an_outstanding_backward_fails(
    toy: Any, active: tuple[GuardedRegion, nn.Module], monkeypatch: pytest.MonkeyPatch
) -> None:
    region, net = active
    monkeypatch.setattr(region, "_transient", lambda args, tensors: None)
    with pytest.raises(RuntimeError, match="overwritten"):
        PRODUCERS[Reason.HELD](toy, region, net)
