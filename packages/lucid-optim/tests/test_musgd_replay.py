"""Replayed orthogonalisation and replayed preparation of updates: the bytes of native steps, and the guards."""

import copy
import gc
import io
import pickle
from collections.abc import Callable, Iterator
from typing import Any

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import Tensor, nn

from lucid_capture import (
    CaptureError,
    CountedCalls,
    GraphedStep,
    Reason,
    ReplayReport,
    TapeBackend,
    count_launches,
    same_bytes,
)
from lucid_optim import MuSGD, param_groups
from lucid_optim import replay as replay_module
from lucid_optim import updates as updates_module

SHAPES = ((4, 2, 3, 3), (4, 2, 3, 3), (3, 7), (7, 3), (5,), (2, 2))
ORTHOGONALIZATION = {"capture_orthogonalization": True}
UPDATES = {"capture_updates": True}
MODES = pytest.mark.parametrize("flags", [ORTHOGONALIZATION, UPDATES, ORTHOGONALIZATION | UPDATES])
Event = Callable[["Run"], None]


@pytest.fixture(autouse=True, scope="module")
def _short_collections() -> Iterator[None]:
    """Recording collects garbage; what was imported before need not be walked every time."""
    gc.collect()
    gc.freeze()
    yield
    gc.unfreeze()


class Run:
    """Parameters, an optimizer on them, and gradients that depend on the step alone."""

    def __init__(self, shapes: tuple[tuple[int, ...], ...] = SHAPES, **options: Any) -> None:
        g = torch.Generator().manual_seed(0)
        self.parameters = [nn.Parameter(torch.randn(s, generator=g)) for s in shapes]
        self.backend = TapeBackend()
        if any(name.startswith("capture") for name in options):
            options = {"backend": self.backend, **options}
        self.optimizer = MuSGD(self.parameters, lr=0.02, **options)
        self.steps = 0

    def gradients(self) -> None:
        g = torch.Generator().manual_seed(100 + self.steps)
        for p in self.parameters:
            p.grad = torch.randn(p.shape, generator=g)
        self.steps += 1

    def step(self) -> None:
        self.gradients()
        self.optimizer.step()

    def bytes(self) -> list[Any]:
        buffers = [
            self.optimizer.state[p].get("momentum_buffer")
            for p in self.parameters
            if p in self.optimizer.state
        ]
        return [[p.detach() for p in self.parameters], buffers]

    def counts(self, reason: Reason) -> int:
        return sum(region.counts[reason] for region in self.optimizer.regions)


def follow(run: Run, *events: Event | None) -> list[Any]:
    """The bytes after every event; None is a plain step."""
    seen = []
    for event in events:
        run.step() if event is None else event(run)
        seen.append(copy.deepcopy(run.bytes()))
    return seen


def agree(flags: dict[str, bool], *events: Event | None, **options: Any) -> Run:
    """Assert that a replayed run has the bytes of a native one after every event; return the replayed one."""
    run = Run(**flags, **options)
    comparison = same_bytes(follow(Run(**options), *events), follow(run, *events))
    assert comparison, str(comparison)
    return run


def setting(name: str, value: Any) -> Event:
    def change(run: Run) -> None:
        run.optimizer.param_groups[0][name] = value

    return change


def without_one_gradient(run: Run) -> None:
    run.gradients()
    run.parameters[2].grad = None
    run.optimizer.step()


def with_moved_storage(run: Run) -> None:
    run.parameters[0].data = run.parameters[0].data.clone() + 1


def with_channels_last_gradients(run: Run) -> None:
    run.gradients()
    for p in run.parameters:
        if p.dim() == 4:
            p.grad = p.grad.to(memory_format=torch.channels_last)
    run.optimizer.step()


def with_zero_gradients(run: Run) -> None:
    run.gradients()
    for p in run.parameters:
        p.grad.mul_(-0.0)
    run.optimizer.step()


def with_infinite_gradients(run: Run) -> None:
    run.gradients()
    run.parameters[0].grad[0] = float("inf")
    run.optimizer.step()


def reloaded(run: Run) -> None:
    file = io.BytesIO()
    torch.save(run.optimizer.state_dict(), file)
    file.seek(0)
    run.optimizer.load_state_dict(torch.load(file, weights_only=True))


def under_autocast(run: Run) -> None:
    with torch.autocast("cpu", dtype=torch.bfloat16):
        run.step()


def under_inference_mode(run: Run) -> None:
    run.gradients()
    with torch.inference_mode():
        run.optimizer.step()


def under_anomaly_detection(run: Run) -> None:
    with torch.autograd.set_detect_anomaly(True):
        run.step()


def at_another_precision(run: Run) -> None:
    before = torch.get_float32_matmul_precision()
    torch.set_float32_matmul_precision("high")
    try:
        run.step()
    finally:
        torch.set_float32_matmul_precision(before)


@MODES
def test_replayed_steps_have_the_bytes_of_native_ones(flags: dict[str, bool]) -> None:
    run = agree(flags, *[None] * 5)
    assert run.counts(Reason.REPLAYED) > 0


def test_after_recording_every_step_is_one_launch_and_runs_no_python_of_the_preparation(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    work = CountedCalls(updates_module.look_ahead)
    monkeypatch.setattr(updates_module, "look_ahead", work)
    run = Run(**UPDATES)
    follow(run, None, None)
    done = work.calls
    with count_launches(run.backend) as launches:
        follow(run, None, None, None)
    assert (launches.forward_launches, launches.records) == (3, 0)
    assert work.calls == done


def test_after_recording_no_python_of_the_orthogonalisation_runs(monkeypatch: pytest.MonkeyPatch) -> None:
    work = CountedCalls(replay_module.orthogonalize_batch)
    monkeypatch.setattr(replay_module, "orthogonalize_batch", work)
    run = Run(**ORTHOGONALIZATION)
    follow(run, None, None)
    done = work.calls
    with count_launches(run.backend) as launches:
        follow(run, None, None)
    # the kernels, the padded pair, and the square, two steps
    assert (launches.forward_launches, launches.records) == (6, 0)
    assert work.calls == done


@MODES
def test_the_learning_rate_is_never_part_of_a_recording(flags: dict[str, bool]) -> None:
    events = [e for rate in (0.1, 0.05, 0.0, 0.2) for e in (setting("lr", rate), None)]
    run = agree(flags, None, None, *events)
    # one recording serves them all
    assert run.counts(Reason.RECORDED) == (3 if flags == ORTHOGONALIZATION else 1)
    assert run.counts(Reason.CONTRACT) == 0


@pytest.mark.parametrize("flags", [ORTHOGONALIZATION, UPDATES])
@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("momentum", 0.5),
        ("weight_decay", 0.0),
        ("weight_decay", 0.3),
        ("w_muon", 0.1),
        ("w_muon", 0.0),
        ("w_sgd", 0.9),
        ("ns_steps", 3),
        ("ns_preset", "polar_express"),
    ],
)
def test_a_changed_setting_acts_at_once_and_replay_comes_back(
    flags: dict[str, bool], name: str, value: Any
) -> None:
    run = agree(flags, None, None, None, setting(name, value), None, None, None, None)
    if flags == UPDATES:
        assert (run.counts(Reason.CONTRACT), run.counts(Reason.RECORDED)) == (1, 2)
        assert run.optimizer.regions[0].counts[Reason.REPLAYED] == 2


def test_a_momentum_of_minus_zero_is_another_momentum() -> None:
    agree(UPDATES, None, None, None, setting("momentum", -0.0), with_zero_gradients, momentum=0.0)


@MODES
@pytest.mark.parametrize("batched", [True, False])
def test_a_fraction_of_a_step_is_the_native_error_though_an_equal_integer_was_recorded(
    flags: dict[str, bool], batched: bool
) -> None:
    run = Run(**flags, batched=batched)
    follow(run, None, None, None)
    run.optimizer.param_groups[0]["ns_steps"] = 5.0
    for _ in range(3):
        with pytest.raises(TypeError, match="float"):
            run.step()


def on_another_stream(run: Run) -> None:
    with run.backend.on_stream(1):
        run.step()


GUARDED: dict[str, tuple[Event, Reason]] = {
    "a gradient is missing": (without_one_gradient, Reason.DECLINED),
    "gradients have another layout": (with_channels_last_gradients, Reason.SIGNATURE),
    "autocast": (under_autocast, Reason.DECLINED),
    "anomaly detection": (under_anomaly_detection, Reason.MODE),
    "another stream": (on_another_stream, Reason.STREAM),
    "another precision": (at_another_precision, Reason.PRECISION),
}


@pytest.mark.parametrize("case", list(GUARDED))
def test_a_guard_of_the_updates_makes_the_step_native_and_the_next_ones_replay(case: str) -> None:
    event, reason = GUARDED[case]
    run = agree(UPDATES, None, None, event, None, None, None)
    assert run.counts(reason) == 1
    with count_launches(run.backend) as launches:
        run.step()
    assert launches.forward_launches == 1


@MODES
def test_absent_gradients_moved_weights_zeros_and_infinities_keep_native_bytes(
    flags: dict[str, bool],
) -> None:
    agree(
        flags, None, None, without_one_gradient, None, with_moved_storage, None, None, None, with_zero_gradients,
        with_channels_last_gradients, reloaded, None, None, None, with_infinite_gradients, None,
    )  # fmt: skip


EVENTS = st.sampled_from(
    [
        None,
        None,
        without_one_gradient,
        with_channels_last_gradients,
        with_zero_gradients,
        with_moved_storage,
        reloaded,
        under_autocast,
        at_another_precision,
        setting("lr", 0.3),
        setting("momentum", 0.5),
        setting("momentum", 0.95),
        setting("weight_decay", 0.0),
        setting("w_muon", 0.0),
        setting("w_muon", 0.5),
    ]
)


@given(events=st.lists(EVENTS, min_size=3, max_size=10), flags=st.sampled_from([ORTHOGONALIZATION, UPDATES]))
@settings(max_examples=10)
def test_any_sequence_of_events_keeps_native_bytes(
    flags: dict[str, bool], events: list[Event | None]
) -> None:
    agree(flags, None, None, *events, None)


def test_a_state_loaded_drops_every_recording() -> None:
    run = Run(**ORTHOGONALIZATION)
    follow(run, None, None)
    assert run.optimizer.regions[0].state.value == "active"
    reloaded(run)
    assert run.optimizer.regions[0].state.value == "idle"
    assert run.optimizer.capture_orthogonalization is True


@MODES
@pytest.mark.parametrize("how", [copy.deepcopy, lambda o: pickle.loads(pickle.dumps(o))])
def test_copies_carry_no_recording_and_run_natively(
    flags: dict[str, bool], how: Callable[[MuSGD], MuSGD]
) -> None:
    run = Run(**flags)
    follow(run, None, None)
    twin = how(run.optimizer)
    assert twin.regions == ()
    for p in twin.param_groups[0]["params"]:
        p.grad = torch.ones_like(p)
    twin.step()
    assert run.counts(Reason.RECORDED) > 0


def test_execution_is_no_part_of_the_state() -> None:
    assert Run(**UPDATES).optimizer.state_dict() == Run().optimizer.state_dict()


def test_a_capture_without_a_backend_is_refused() -> None:
    for flags in (ORTHOGONALIZATION, UPDATES):
        with pytest.raises(ValueError, match="backend"):
            MuSGD([nn.Parameter(torch.ones(2))], lr=0.1, **flags)


def test_what_the_backend_does_not_take_runs_natively_without_a_warning(
    recwarn: pytest.WarningsRecorder,
) -> None:
    class Elsewhere(TapeBackend):
        def refusal(self, tensors: Any) -> str | None:
            return "tensors of another device"

    for flags in (ORTHOGONALIZATION, UPDATES):
        run = agree(flags, None, None, None)
        refused = Run(**flags, backend=Elsewhere())
        assert same_bytes(follow(Run(), None, None), follow(refused, None, None))
        assert refused.counts(Reason.UNSUPPORTED) > 0
        assert refused.counts(Reason.RECORDED) == 0
        assert run.counts(Reason.RECORDED) > 0
    assert not recwarn.list


@MODES
def test_a_scaler_that_skips_a_step_leaves_recordings_alone(flags: dict[str, bool]) -> None:
    scaler = {}

    def scaled(infinite: bool) -> Event:
        def event(run: Run) -> None:
            own = scaler.setdefault(id(run), torch.amp.GradScaler("cpu", init_scale=4.0))
            run.gradients()
            own.scale(torch.ones(()))
            if infinite:
                run.parameters[1].grad[0] = float("inf")
            own.step(run.optimizer)
            own.update()

        return event

    run = agree(flags, scaled(False), scaled(False), scaled(True), scaled(False), scaled(False))
    assert run.counts(Reason.REPLAYED) > 0


def test_overlapping_parameters_take_the_definition_and_are_counted() -> None:
    results = []
    for flags in ({}, UPDATES):
        flat = torch.arange(24.0)
        ps = [nn.Parameter(flat[:16].view(4, 4)), nn.Parameter(flat[8:].view(4, 4))]
        options = {"backend": TapeBackend(), **flags} if flags else {}
        optimizer = MuSGD(ps, lr=0.1, weight_decay=0.5, **options)
        for _ in range(3):
            for p in ps:
                p.grad = torch.ones(4, 4)
            optimizer.step()
        results.append(flat)
    assert same_bytes(*results)
    assert optimizer.regions[0].counts[Reason.ALIASED] == 3


def test_other_dtypes_take_no_recording_of_updates_but_one_of_orthogonalisation() -> None:
    for flags, recorded in ((UPDATES, 0), (ORTHOGONALIZATION, 1)):
        results = []
        for options in ({}, {"backend": TapeBackend(), **flags}):
            p = nn.Parameter(torch.ones(3, 4, dtype=torch.float64))
            optimizer = MuSGD([p], lr=0.1, **options)
            for step in range(4):
                p.grad = torch.full((3, 4), float(step), dtype=torch.float64)
                optimizer.step()
            results.append(p.detach())
        assert same_bytes(*results)
        assert optimizer.regions[0].counts[Reason.RECORDED] == recorded


def test_a_subclass_that_rewrites_the_updates_replays_orthogonalisation_only() -> None:
    class Halved(MuSGD):
        def _updates(self, group: dict[str, Any]) -> Iterator[tuple[list[Tensor], list[Tensor]]]:
            for parameters, updates in super()._updates(group):
                yield parameters, [u / 2 for u in updates]

    results = []
    for options in ({}, {"backend": TapeBackend(), **UPDATES, **ORTHOGONALIZATION}):
        p = nn.Parameter(torch.ones(3, 4))
        optimizer = Halved([p], lr=0.1, **options)
        for _ in range(3):
            p.grad = torch.ones(3, 4)
            optimizer.step()
        results.append(p.detach())
    assert same_bytes(*results)
    orthogonalization, updates = optimizer.regions
    assert (orthogonalization.counts[Reason.RECORDED], updates.counts[Reason.RECORDED]) == (1, 0)


def test_each_group_has_a_recording_of_its_own_also_one_added_later() -> None:
    def groups(run: Run) -> None:
        run.optimizer.add_param_group({"params": [extra[id(run)]], "momentum": 0.1})
        run.parameters.append(extra[id(run)])

    runs = [Run(), Run(**UPDATES)]
    extra = {id(run): nn.Parameter(torch.ones(3, 5)) for run in runs}
    native, replayed_run = (follow(run, None, None, groups, None, None, None) for run in runs)
    assert same_bytes(native, replayed_run)
    assert [r.counts[Reason.RECORDED] for r in runs[1].optimizer.regions] == [1, 1]
    assert "updates 1" in ReplayReport.of(runs[1].optimizer.regions).table()


@pytest.mark.parametrize("stage", ["warmup", "forward"])
@MODES
def test_a_recording_that_fails_raises_and_leaves_momentum_and_gradients_alone(
    flags: dict[str, bool], stage: str
) -> None:
    run = Run(**{**flags, "backend": TapeBackend(fail_at=stage)})
    run.step()
    before = copy.deepcopy(run.bytes())
    run.gradients()
    grads = [p.grad for p in run.parameters]
    with pytest.raises(CaptureError):
        run.optimizer.step()
    if "capture_updates" in flags:
        assert same_bytes(before, run.bytes())
    assert all(p.grad is g for p, g in zip(run.parameters, grads, strict=True))
    assert run.counts(Reason.RECORDED) == 0
    assert all(region.owned_bytes() == 0 for region in run.optimizer.regions)


def test_named_groups_and_a_module_train_the_same_with_every_capture_on() -> None:
    results = []
    for options in ({}, {"backend": TapeBackend(), **UPDATES, **ORTHOGONALIZATION}):
        torch.manual_seed(0)
        net = nn.Sequential(nn.Conv2d(3, 4, 3), nn.BatchNorm2d(4), nn.Flatten(), nn.Linear(16, 2))
        optimizer = MuSGD(param_groups(net, {"3.*": {"lr": 0.2}}), lr=0.1, **options)
        scheduler = torch.optim.lr_scheduler.CosineAnnealingLR(optimizer, 6)
        for step in range(6):
            optimizer.zero_grad()
            x = torch.randn(2, 3, 4, 4, generator=torch.Generator().manual_seed(step))
            net(x).square().mean().backward()
            optimizer.step()
            scheduler.step()
        results.append([net.state_dict(), optimizer.state_dict()["state"]])
    comparison = same_bytes(*results)
    assert comparison, str(comparison)


def test_a_group_put_into_the_list_by_hand_runs_natively() -> None:
    run = Run(**UPDATES)
    extra = nn.Parameter(torch.ones(2, 3))
    run.optimizer.param_groups.append({**run.optimizer.param_groups[0], "params": [extra]})
    extra.grad = torch.ones(2, 3)
    follow(run, None, None, None)
    assert not torch.equal(extra.detach(), torch.ones(2, 3))
    assert run.counts(Reason.REPLAYED) == 1


def test_the_cache_holds_as_many_recordings_as_there_are_matrices() -> None:
    run = Run(**ORTHOGONALIZATION)
    assert run.optimizer.regions[0].capacity == sum(len(shape) >= 2 for shape in SHAPES)


def test_a_whole_step_with_the_rate_in_a_tensor_replays_to_native_bytes() -> None:
    def build() -> tuple[nn.Module, MuSGD]:
        torch.manual_seed(0)
        net = nn.Sequential(nn.Conv2d(3, 4, 3), nn.BatchNorm2d(4), nn.Flatten(), nn.Linear(16, 2))
        return net, MuSGD(param_groups(net), lr=torch.tensor(0.1))

    def batch(step: int) -> Tensor:
        return torch.randn(2, 3, 4, 4, generator=torch.Generator().manual_seed(step))

    native, optimizer = build()
    recorded, other = build()
    graphed = GraphedStep(recorded, lambda x: recorded(x).square().mean(), other, backend=TapeBackend())
    for step in range(5):
        for o in (optimizer, other):
            o.param_groups[0]["lr"].fill_(0.1 / (step + 1))
        optimizer.zero_grad()
        native(batch(step)).square().mean().backward()
        optimizer.step()
        graphed(batch(step))
    states = ([m.state_dict(), o.state_dict()["state"]] for m, o in ((native, optimizer), (recorded, other)))
    comparison = same_bytes(*states)
    assert comparison, str(comparison)
    assert graphed.region.counts[Reason.REPLAYED] == 3
