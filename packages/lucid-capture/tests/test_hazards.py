"""Every hazard of replay: a check that it is handled, and a mutant without the guard that the check catches."""

import copy
import functools
import gc
import pickle
import sys
import warnings
import weakref
from collections.abc import Callable, Iterator
from contextlib import contextmanager, nullcontext
from typing import Any

import pytest
import torch
from torch import Tensor, nn
from torch.utils._python_dispatch import TorchDispatchMode

from lucid_capture import (
    Capacity,
    CaptureError,
    ExecutionProbe,
    GraphedStep,
    GuardedRegion,
    Hazard,
    HostScalars,
    ModuleCertificate,
    Padded,
    Poison,
    Reason,
    RegionGroup,
    ReplayWarning,
    State,
    TapeBackend,
    padded,
    same_bytes,
    verify,
)

Check = Callable[[], None]
Mutate = Callable[[pytest.MonkeyPatch], None]
CHECKS: dict[Hazard, Check] = {}
MUTANTS: dict[Hazard, Mutate] = {}


def module(name: str) -> Any:
    return sys.modules[f"lucid_capture.{name}"]


def checks(*hazards: Hazard) -> Callable[[Check], Check]:
    def register(function: Check) -> Check:
        CHECKS.update(dict.fromkeys(hazards, function))
        return function

    return register


def mutant(*hazards: Hazard) -> Callable[[Mutate], Mutate]:
    def register(function: Mutate) -> Mutate:
        MUTANTS.update(dict.fromkeys(hazards, function))
        return function

    return register


@pytest.mark.parametrize("hazard", list(Hazard), ids=lambda h: h.name)
def test_the_hazard_is_handled(hazard: Hazard) -> None:
    with quiet():
        CHECKS[hazard]()


@pytest.mark.parametrize("hazard", list(Hazard), ids=lambda h: h.name)
def test_without_the_guard_the_check_fails(hazard: Hazard, monkeypatch: pytest.MonkeyPatch) -> None:
    MUTANTS[hazard](monkeypatch)
    with quiet(), pytest.raises((AssertionError, RuntimeError, TypeError, pytest.fail.Exception)):
        CHECKS[hazard]()


@contextmanager
def quiet() -> Iterator[None]:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", ReplayWarning)
        warnings.simplefilter("ignore", FutureWarning)  # torch.jit.trace is on its way out
        yield


class Net(nn.Module):
    """A gain, a norm with statistics, dropout, and a branch that a loss may leave out."""

    def __init__(self) -> None:
        super().__init__()
        self.first, self.norm = nn.Linear(3, 3), nn.BatchNorm1d(3)
        self.main, self.side = nn.Linear(3, 1), nn.Linear(3, 1)
        self.gain = 1.0

    def forward(self, x: Tensor) -> tuple[Tensor, Tensor]:
        y = nn.functional.dropout(self.norm(self.first(x)) * self.gain, 0.2, self.training)
        return self.main(y), self.side(y)


def make() -> Net:
    torch.default_generator.manual_seed(0)
    return Net()


def batch(seed: int, rows: int = 4) -> Tensor:
    return torch.randn(rows, 3, generator=torch.Generator().manual_seed(seed))


def region_of(net: nn.Module, **options: Any) -> GuardedRegion:
    options = {"backend": TapeBackend(), "record_after": 0, "differentiable": True, **options}
    return GuardedRegion("net", net, certificate=ModuleCertificate(net), **options)


def run(call: Callable[..., Any], seed: int, rows: int = 4) -> None:
    main, side = call(batch(seed, rows))
    (main.square().sum() + side.square().sum()).backward()


def state(net: nn.Module) -> dict[str, Any]:
    return {"grads": [p.grad for p in net.parameters()], **net.state_dict()}


def compare(*events: Callable[[Callable[..., Any], Net], None]) -> GuardedRegion:
    """Run events on a native network and on a recorded one; both must hold the same bytes after each."""
    native, recorded = make(), make()
    region = region_of(recorded)
    for number, event in enumerate((lambda call, net: run(call, 0), *events)):
        for call, net in ((native, native), (region, recorded)):
            torch.default_generator.manual_seed(number)
            event(call, net)
        result = same_bytes(state(native), state(recorded))
        assert result, str(result)
    return region


def doubled(poison: Poison = Poison.NAN) -> tuple[GuardedRegion, nn.Parameter]:
    w = nn.Parameter(torch.ones(1))
    options: dict[str, Any] = {"differentiable": True, "record_after": 0}
    return GuardedRegion("w", lambda x, p: x * p, backend=TapeBackend(poison), **options), w


# inputs and results


@checks(Hazard.H1)
def each_call_sees_its_own_inputs() -> None:
    region = GuardedRegion("f", lambda x: x + 1, backend=TapeBackend(), record_after=0)
    assert [region(torch.full((1,), float(i))).item() for i in range(3)] == [1.0, 2.0, 3.0]


@mutant(Hazard.H1)
def inputs_are_not_copied_in(patch: pytest.MonkeyPatch) -> None:
    def forward(self: Any, inputs: Any) -> Any:
        self.recording.launch_forward()
        return [t.clone() for t in self.recording.outputs]

    patch.setattr(module("gradients").Replayer, "forward", forward)


@checks(Hazard.H2)
def results_that_were_kept_keep_their_values() -> None:
    region = GuardedRegion("f", lambda x: x + 1, backend=TapeBackend(), record_after=0)
    kept = [region(torch.full((1,), float(i))) for i in range(3)]
    assert [t.item() for t in kept] == [1.0, 2.0, 3.0]


@checks(Hazard.H3)
def two_micro_batches_of_derivative_one_and_three_sum_to_four() -> None:
    for poison in Poison:
        region, w = doubled(poison)
        for x in (1.0, 3.0):
            region(torch.full((1,), x), w).backward()
        assert w.grad.item() == 4.0


@checks(Hazard.H4)
def gradients_survive_the_next_forward() -> None:
    region, w = doubled()
    region(torch.full((1,), 5.0), w).backward()
    region(torch.full((1,), 7.0), w)
    assert w.grad.item() == 5.0


@mutant(Hazard.H2, Hazard.H3, Hazard.H4)
def memory_of_the_recording_is_handed_out(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(module("gradients"), "_owned", lambda tensors: [t.detach() for t in tensors])


# what a recording freezes


@checks(Hazard.H5)
def a_module_attribute_that_changes_is_used() -> None:
    def change(call: Any, net: Net) -> None:
        net.gain = 3.0
        run(call, 1)

    compare(change)


@mutant(Hazard.H5)
def attributes_are_not_compared(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(module("certificate"), "scalar_facts", lambda modules: ())


@checks(Hazard.H6)
def tensors_that_take_the_place_of_others_are_used() -> None:
    def swap(call: Any, net: Net) -> None:
        net.main.weight.data = net.main.weight.data * 2
        run(call, 1)

    compare(swap)


@mutant(Hazard.H6)
def addresses_are_not_compared(patch: pytest.MonkeyPatch) -> None:
    forget_fact(patch, Reason.STORAGE)


@checks(Hazard.H12)
def a_precision_that_changes_is_used() -> None:
    def half(call: Any, net: Net) -> None:
        with torch.autocast("cpu", torch.bfloat16):
            run(call, 1)

    compare(half)


@mutant(Hazard.H12)
def settings_are_not_compared(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(ExecutionProbe, "precision", lambda self: ())


def forget_fact(patch: pytest.MonkeyPatch, reason: Reason) -> None:
    original = ModuleCertificate.facts

    def facts(self: ModuleCertificate) -> Any:
        return {r: fact for r, fact in original(self).items() if r is not reason}

    patch.setattr(ModuleCertificate, "facts", facts)


@checks(Hazard.H24)
def host_scalars_that_compare_equal_are_told_apart() -> None:
    def work(x: Tensor, a: float) -> Tensor:
        return x * a if type(a) is float else x // a

    region = GuardedRegion("f", work, backend=TapeBackend(), record_after=0)
    for a in (0.0, -0.0):
        assert same_bytes(region(torch.ones(1), a), work(torch.ones(1), a))
    region.drop()
    for b in (2, 2.0):
        assert same_bytes(region(torch.full((1,), 3.0), b), work(torch.full((1,), 3.0), b))


@mutant(Hazard.H24)
def scalars_are_keyed_by_value(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(module("signature"), "scalar_bits", lambda value: bytes(str(value + 0.0 or 0.0), "ascii"))


# recording


@checks(Hazard.H7)
def recording_moves_what_one_native_call_moves() -> None:
    native, recorded = make(), make()
    seen = []
    for call, net in ((native, native), (region_of(recorded), recorded)):
        torch.default_generator.manual_seed(1)
        run(call, 0)
        seen.append((torch.rand(2), net.state_dict()))
    assert same_bytes(*seen)


@mutant(Hazard.H7)
def nothing_is_put_back(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(module("_procedure").Saved, "restore", lambda self: None)


@checks(Hazard.H8)
def queued_work_of_a_failed_warm_up_is_waited_for() -> None:
    for stage in ("warmup", "forward", "backward", "replay"):
        net, backend = make(), TapeBackend(fail_at=stage, queued=True)
        before, rng = copy.deepcopy(net.state_dict()), torch.get_rng_state()
        with pytest.raises(CaptureError, match="injected"):
            run(region_of(net, backend=backend), 0)
        backend.synchronize()
        assert same_bytes((before, rng), (net.state_dict(), torch.get_rng_state()))


@mutant(Hazard.H8)
def nobody_waits(patch: pytest.MonkeyPatch) -> None:
    original = module("_procedure").Saved.restore

    class Deaf:
        def synchronize(self) -> None: ...

    def restore(self: Any) -> None:
        self._backend = Deaf()
        original(self)

    patch.setattr(module("_procedure").Saved, "restore", restore)


@checks(Hazard.H18)
def no_garbage_is_collected_while_recording() -> None:
    collecting: list[bool] = []

    class Cycle:
        """Garbage that owns itself."""

    cycle = Cycle()
    cycle.self = cycle  # type: ignore[attr-defined]
    gone = weakref.ref(cycle)
    del cycle

    def work(x: Tensor) -> Tensor:
        collecting.append(gc.isenabled() or gone() is not None)
        return x + 1

    region = GuardedRegion("f", work, backend=TapeBackend(), record_after=0)
    gc.disable()
    gc.enable()
    region(torch.ones(1))
    assert collecting
    assert not any(collecting)
    assert gc.isenabled()


@mutant(Hazard.H18)
def collection_goes_on(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(module("region"), "collected", nullcontext)


# gradients


@checks(Hazard.H9)
def parameters_that_natively_get_no_gradient_get_none() -> None:
    def main_only(call: Any, net: Net) -> None:
        net.zero_grad()
        call(batch(1))[0].sum().backward()

    region = compare(main_only, main_only)
    assert region.counts[Reason.REPLAYED] == 2


@mutant(Hazard.H9)
def everything_is_reached(patch: pytest.MonkeyPatch) -> None:
    def reach(work: Any, inputs: Any, parameters: Any) -> Any:
        return [[True] * (len(inputs) + len(parameters))] * 9

    patch.setattr(module("region"), "reach_of", reach)


class Weight(nn.Module):
    """One parameter."""

    def __init__(self) -> None:
        super().__init__()
        self.weight = nn.Parameter(torch.ones(64))


@checks(Hazard.H10)
def a_sum_in_another_order_is_named() -> None:
    torch.default_generator.manual_seed(0)
    a, b, c = (torch.randn(64) * 10.0**k for k in (0, 4, 8))
    owner = Weight()
    options: dict[str, Any] = {"differentiable": True, "record_after": 0}
    region = GuardedRegion("two", lambda x: (x * a, x * b), backend=TapeBackend(), **options)

    def step(scale: Tensor) -> Tensor:
        owner.zero_grad()
        x = owner.weight * scale
        one, two = region(x)
        outside = x * c
        (one.sum() + two.sum() + outside.sum()).backward()
        return x.detach()

    batches = [(torch.ones(1),), (torch.full((1,), 3.0),)]
    assert "weight.grad" in str(verify(step, batches, regions=[region], state={"owner": owner}))


@mutant(Hazard.H10)
def the_comparison_has_a_tolerance(patch: pytest.MonkeyPatch) -> None:
    def close(a: Any, b: Any) -> Any:
        pairs = zip(leaves(a), leaves(b), strict=True)
        near = all(torch.allclose(x.double(), y.double(), rtol=1e-3) for x, y in pairs)
        return same_bytes(0, 0) if near else same_bytes(0, 1)

    def leaves(tree: Any) -> list[Tensor]:
        return [leaf for leaf in module("_tree").flatten(tree)[0] if isinstance(leaf, Tensor)]

    patch.setattr(module("verify"), "same_bytes", close)


@checks(Hazard.H13)
def two_forwards_before_their_backwards_are_both_right() -> None:
    def crossed(call: Any, net: Net) -> None:
        first, second = call(batch(1))[0].sum(), call(batch(2))[1].sum()
        first.backward()
        second.backward()

    compare(crossed)


@mutant(Hazard.H13)
def nothing_is_held(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(module("gradients").Replayer, "held", False)


@checks(Hazard.H14)
def a_backward_that_never_comes_does_not_stop_replay() -> None:
    region, w = doubled()
    region(torch.ones(1), w).backward()
    skipped = region(torch.ones(1), w)
    group = RegionGroup()
    group.add(region)
    group.begin_batch()
    before = region.counts[Reason.REPLAYED]
    region(torch.ones(1), w).backward()
    assert region.counts[Reason.REPLAYED] == before + 1
    assert skipped.item() == 1.0


@mutant(Hazard.H14)
def holds_are_never_released(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(GuardedRegion, "release", lambda self: None)


# who may see a replay, and where


class Observer(TorchDispatchMode):
    """Counts operators."""

    def __init__(self) -> None:
        super().__init__()
        self.seen = 0

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        self.seen += func._schema.name == "aten::addmm"
        return func(*args, **(kwargs or {}))


@checks(Hazard.H11)
def every_hook_and_observer_is_called() -> None:
    called: list[str] = []

    def observe(call: Any, net: Net) -> None:
        with Observer() as observer:
            run(call, 1)
        assert observer.seen >= 3
        every = nn.modules.module.register_module_forward_hook(lambda *a: called.append("global"))
        run(call, 2)
        every.remove()
        tensor = net.main.weight.register_hook(lambda grad: called.append("tensor"))
        own = net.main.register_forward_hook(lambda *a: called.append("module"))
        run(call, 3)
        own.remove()
        tensor.remove()

    compare(observe)
    assert called == called[: len(called) // 2] * 2
    assert {"global", "module", "tensor"} == set(called)


@mutant(Hazard.H11)
def hooks_are_not_looked_at(patch: pytest.MonkeyPatch) -> None:
    forget_fact(patch, Reason.HOOKS)


@checks(Hazard.H15)
def other_shapes_layouts_and_trainable_inputs_are_native() -> None:
    region = GuardedRegion(
        "f", lambda x: x.t() * 2, backend=TapeBackend(), record_after=0, differentiable=True
    )
    region(torch.ones(2, 2))
    for x in (torch.ones(1, 2), torch.arange(4.0).view(2, 2).t(), torch.ones(2, 2, requires_grad=True)):
        result = region(x)
        assert same_bytes(result, x.t() * 2)
        assert result.requires_grad == x.requires_grad
    assert region.counts[Reason.SIGNATURE] == 3


@mutant(Hazard.H15)
def layouts_are_not_keyed(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(module("signature"), "_leaf", lambda leaf: "leaf")


@checks(Hazard.H16)
def modes_streams_and_captures_of_others_are_native() -> None:
    region = GuardedRegion("f", lambda x: x * 2, backend=TapeBackend(), record_after=0)
    x = torch.ones(2)
    region(x)
    launched = region.launches.forward
    with torch.inference_mode():
        region(x)
    with torch.autograd.set_detect_anomaly(True, check_nan=False):
        region(x)
    assert torch.func.vmap(region)(x).tolist() == [2.0, 2.0]
    torch.jit.trace(lambda t: region(t), x, check_trace=False)
    with region.backend.on_stream("another"):  # type: ignore[attr-defined]
        region(x)
    TapeBackend(warmup=0).record(lambda ts: (region(ts[0]),), [x], (), differentiable=False)
    assert region.launches.forward == launched


@mutant(Hazard.H16)
def modes_are_not_looked_at(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(ExecutionProbe, "mode", lambda self: None)


# life


@checks(Hazard.H17)
def copies_and_pickles_carry_no_recording() -> None:
    net = make()
    region = region_of(net)
    run(region, 0)
    for twin in (copy.copy(region), copy.deepcopy(region), pickle.loads(pickle.dumps(region))):
        assert (twin.state, twin.owned_bytes(), twin.launches.forward) == (State.IDLE, 0, 0)
    assert region.state is State.ACTIVE


@mutant(Hazard.H17)
def recordings_are_written_out(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(GuardedRegion, "__getstate__", lambda self: dict(self.__dict__))


@checks(Hazard.H22)
def nothing_outlives_a_run_that_fails() -> None:
    region = region_of(make())
    with pytest.raises(ZeroDivisionError), RegionGroup() as group:  # noqa: PT012
        group.add(region)
        run(region, 0)
        raise ZeroDivisionError
    assert (region.state, region.owned_bytes()) == (State.CLOSED, 0)


@mutant(Hazard.H22)
def the_group_leaves_regions_open(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(RegionGroup, "__exit__", lambda self, *error: None)


# padding


def mean_area(targets: Padded) -> Tensor:
    boxes = torch.where(targets.valid[..., None], targets.values, 1.0)
    return (boxes.prod(-1) * targets.valid).sum() / targets.valid.sum()


@checks(Hazard.H19)
def padding_takes_no_part() -> None:
    items = [torch.rand(n, 4) for n in (1, 3)]
    assert same_bytes(mean_area(padded(items, 3)), mean_area(padded(items, 16)))


@mutant(Hazard.H19)
def padding_counts_as_real(patch: pytest.MonkeyPatch) -> None:
    original = module("padded")._widened

    def widened(tensor: Tensor, valid: Tensor, rows: int) -> Tensor:
        wide = original(tensor, valid, rows)
        return torch.ones_like(wide) if wide.dtype == torch.bool else wide

    patch.setattr(module("padded"), "_widened", widened)


@checks(Hazard.H20)
def rows_of_a_larger_batch_do_not_stay() -> None:
    capacity = Capacity(rows=8)
    padded([torch.ones(7, 4)], capacity)
    assert padded([torch.ones(2, 4)], capacity).values.sum().item() == 8.0


@mutant(Hazard.H20)
def rows_are_reused_as_they_are(patch: pytest.MonkeyPatch) -> None:
    original = functools.cache(lambda shape, dtype: torch.zeros(shape, dtype=dtype))

    def blank(tensor: Tensor, rows: int) -> Tensor:
        return original((tensor.shape[0], rows, *tensor.shape[2:]), tensor.dtype)

    patch.setattr(module("padded"), "_blank", blank)


# steps


def step_of(backend: TapeBackend | None, clip_norm: float = 1e-3) -> tuple[GraphedStep, nn.Linear]:
    torch.default_generator.manual_seed(0)
    net = nn.Linear(3, 2)
    optimizer = torch.optim.SGD(net.parameters(), lr=0.1, fused=True)
    loss = lambda x: net(x).square().sum()  # noqa: E731
    return GraphedStep(net, loss, optimizer, backend=backend, clip_norm=clip_norm), net


@checks(Hazard.H21)
def rates_and_limits_that_change_are_used() -> None:
    step, net = step_of(TapeBackend())
    twin = copy.deepcopy(net)
    for number, (rate, limit) in enumerate(((0.1, 1.0), (0.2, 1.0), (0.0, 1.0), (0.3, 0.01), (0.1, 5.0))):
        step.optimizer.param_groups[0]["lr"] = rate
        step.scalars["clip_norm"] = limit
        step(batch(number))
        plain = torch.optim.SGD(twin.parameters(), lr=rate, fused=True)
        plain.zero_grad()
        twin(batch(number)).square().sum().backward()
        torch.nn.utils.clip_grad_norm_(twin.parameters(), limit)
        plain.step()
        assert same_bytes(state(twin), state(net))
    assert step.region.counts[Reason.REPLAYED] == 3


@mutant(Hazard.H21)
def scalars_are_not_filled(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(HostScalars, "__setitem__", lambda self, name, value: None)


@checks(Hazard.H25)
def clipping_rounds_as_torch_does_for_a_host_number() -> None:
    for limit in (0.3, 0.7, 1.1):
        step, net = step_of(None, clip_norm=limit)
        for number in range(8):
            twin = copy.deepcopy(net)
            twin(batch(number)).square().sum().backward()
            torch.nn.utils.clip_grad_norm_(twin.parameters(), limit)
            step(batch(number))
            expected = [p.grad for p in twin.parameters()]
            assert same_bytes(expected, [p.grad for p in net.parameters()])


@mutant(Hazard.H25)
def clipping_divides_on_the_device(patch: pytest.MonkeyPatch) -> None:
    def clip(self: GraphedStep, gradients: list[Tensor]) -> None:
        total = torch.nn.utils.get_total_norm(gradients)
        limit = self.scalars.tensors["clip_norm"].to(total.dtype)
        torch._foreach_mul_(gradients, torch.clamp(limit / (total + 1e-6), max=1.0))

    patch.setattr(GraphedStep, "_clip", clip)


# memory


class Counter(nn.Module):
    """Work that changes a buffer before it reads its argument."""

    def __init__(self) -> None:
        super().__init__()
        self.register_buffer("count", torch.zeros(2))

    def forward(self, x: Tensor) -> Tensor:
        self.count.add_(1)
        return x * 2


@checks(Hazard.H23)
def an_argument_in_the_memory_of_a_buffer_sees_it_change() -> None:
    net = Counter()
    region = region_of(net, differentiable=False)
    region(torch.zeros(2))
    assert region(net.count).tolist() == [4.0, 4.0]
    assert region.counts[Reason.ALIASED] == 1


@mutant(Hazard.H23)
def shared_memory_is_not_looked_for(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(module("region"), "_surface", lambda tensors: frozenset())
