"""The step as one recording: native bytes of everything it touches, what it notices, and what does not go with it."""

import copy

import pytest
import torch

import lucid_train.replay.whole as whole_module
from lucid_capture import HostScalars, Padded, Reason, ReplayWarning, TapeBackend, same_bytes
from lucid_geometry import rboxes_to_boxes
from lucid_models import PaddedTargets, TaskLoss, build_detector, build_loss, make_points
from lucid_train import ConfigError, DetectionLitModule, FitConfig
from lucid_train.callbacks.replay import lend, take_back
from lucid_train.replay import ReplayedStep, ReplayPlan, replay_plan

SIDE = 32
GRID = make_points(SIDE, SIDE)
TASKS = ("detect", "obb")


def batch(rows, seed):
    """Return images and targets; the second image has half the rows of the first, at least one."""
    generator = torch.Generator().manual_seed(seed)
    centre = 8 + torch.rand(2, rows, 2, generator=generator) * 16
    sides = 5 + torch.rand(2, rows, 2, generator=generator) * 12
    angle = torch.rand(2, rows, 1, generator=generator)
    rboxes = torch.cat([centre, sides, angle], dim=2)
    labels = torch.randint(0, 2, (2, rows), generator=generator)
    valid = torch.arange(rows)[None] < torch.tensor([[rows], [(rows + 1) // 2]])
    rboxes, boxes = rboxes * valid[..., None], rboxes_to_boxes(rboxes) * valid[..., None]
    return torch.rand(2, 3, SIDE, SIDE, generator=generator), PaddedTargets(
        boxes, labels * valid, valid, rboxes=rboxes
    )


def outcome(call, detector, seed, rows, alpha=0.8):
    """Return every value, gradient and buffer of one step."""
    detector.zero_grad()
    images, targets = batch(rows, seed)
    result = call(images, *GRID, targets, alpha)
    result.total.backward()
    parts = result.detection
    values = [result.total, parts.total, *parts.o2m, *parts.o2o, *parts.o2m_assignment]
    values += [*parts.o2o_assignment, *result.extra.values()]
    assert all(p.grad is not None for p in detector.parameters())
    return [value.detach() for value in values] + [
        tensor.clone() for tensor in (*(p.grad for p in detector.parameters()), *detector.buffers())
    ]


class Twins:
    """A replayed step and its native twin, of equal weights."""

    def __init__(self, task):
        torch.manual_seed(0)
        self.detector = build_detector(task, "n", num_classes=2).train()
        self.other = copy.deepcopy(self.detector)
        self.criterion, self.native_criterion = build_loss(task, 2), build_loss(task, 2)
        self.step = ReplayedStep(self, TapeBackend(), torch.device("cpu"))
        self.region = self.step.region

    def same(self, seed, rows, alpha=0.8):
        native = outcome(self.native, self.other, seed, rows, alpha)
        return same_bytes(native, outcome(self.step, self.detector, seed, rows, alpha))

    def native(self, images, points, strides, targets, alpha):
        return self.native_criterion(self.other(images), points, strides, targets, alpha)


@pytest.mark.parametrize("task", TASKS)
def test_the_replayed_step_has_the_native_bytes_while_targets_grow_shrink_and_vanish(task):
    twins = Twins(task)
    for seed, rows in enumerate([3, 3, 4, 1, 0, 4, 6, 7, 2]):
        comparison = twins.same(seed, rows, 0.8 - 0.1 * (seed // 3))
        assert comparison, f"step {seed}: {comparison}"
    assert twins.region.counts == {
        Reason.FIRST_SIGHTING: 2,
        Reason.RECORDED: 2,
        Reason.REPLAYED: 4,
        Reason.DECLINED: 1,
    }
    assert (twins.region.launches.forward, twins.region.launches.backward) == (6, 6)


@pytest.fixture
def recorded():
    twins = Twins("obb")
    assert twins.same(0, 4)
    assert twins.same(1, 4)
    return twins


def test_only_the_total_carries_a_gradient(recorded):
    images, targets = batch(4, 2)
    result = recorded.step(images, *GRID, targets, 0.5)
    parts = result.detection
    assert result.total.requires_grad
    others = [parts.total, *parts.o2m, *parts.o2o, *result.extra.values()]
    assert not any(value.requires_grad for value in others)


def test_in_bfloat16_it_has_the_bytes_of_a_native_step():
    twins = Twins("obb")

    def cast(call):
        def run(*args):
            with torch.autocast("cpu", torch.bfloat16):
                return call(*args)

        return run

    for seed in range(4):  # the backward pass runs outside of the cast, as a trainer has it
        native = outcome(cast(twins.native), twins.other, seed, 3)
        assert same_bytes(native, outcome(cast(twins.step), twins.detector, seed, 3))
    assert twins.region.launches.backward == 3


def test_padding_that_counts_as_objects_would_be_found(recorded, monkeypatch):
    honest = whole_module.padded

    def stale(values, capacity, valid):
        wide = honest(values, capacity, valid)
        return Padded(wide.values, torch.ones_like(wide.valid))

    monkeypatch.setattr(whole_module, "padded", stale)
    assert not recorded.same(2, 2)


def test_a_branch_weight_that_stays_what_it_was_would_be_found(recorded, monkeypatch):
    monkeypatch.setattr(HostScalars, "__setitem__", lambda *_: None)
    assert not recorded.same(2, 4, alpha=0.3)


@pytest.mark.parametrize(
    "name", ["form", "num_classes", "box_gain", "class_gain", "l1_gain", "fused_assignment"]
)
def test_every_setting_of_the_loss_is_part_of_its_certificate(recorded, name):
    before = recorded.region.certificate.facts()
    assert recorded.region.certificate.facts() == before
    setattr(recorded.criterion.detection, name, 7)
    assert recorded.region.certificate.facts()[Reason.CONTRACT] != before[Reason.CONTRACT]


def set_gain(criterion):
    criterion.detection.class_gain = 3.0


def set_gain_of_the_task(criterion):
    criterion.gains["angle"] = 3.0


@pytest.mark.parametrize("change", [set_gain, set_gain_of_the_task])
def test_a_changed_gain_ends_the_recording_with_one_warning(recorded, change, recwarn):
    change(recorded.criterion), change(recorded.native_criterion)
    for seed in range(2, 4):
        assert recorded.same(seed, 4)
    assert recorded.region.retired_by is not None
    assert len([one for one in recwarn if one.category is ReplayWarning]) == 1


@pytest.mark.parametrize("part", ["detector", "criterion"])
def test_another_part_in_place_of_the_recorded_one_is_what_trains(recorded, part):
    other = copy.deepcopy(getattr(recorded, part))
    if part == "criterion":
        set_gain(other), set_gain(recorded.native_criterion)
    setattr(recorded, part, other)
    with pytest.warns(ReplayWarning):
        assert recorded.same(2, 4)


def test_another_detection_loss_is_what_counts(recorded):
    for criterion in (recorded.criterion, recorded.native_criterion):
        criterion.detection = copy.copy(criterion.detection)
        criterion.detection.box_gain = 1.0
    with pytest.warns(ReplayWarning):
        assert recorded.same(2, 4)


def test_a_hook_on_the_loss_is_called(recorded):
    calls = []
    recorded.criterion.register_forward_hook(lambda *_: calls.append(1))
    with pytest.warns(ReplayWarning):
        assert recorded.same(2, 4)
    assert recorded.same(3, 0)
    assert calls == [1, 1]


def test_a_loss_of_one_s_own_is_never_recorded():
    class Halved(TaskLoss):
        def forward(self, *args):
            result = super().forward(*args)
            return result._replace(total=result.total / 2)

    twins = Twins("detect")
    for criterion in (twins.criterion, twins.native_criterion):
        criterion.__class__ = Halved
    assert all(twins.same(seed, 3) for seed in range(3))
    assert twins.region.counts == {Reason.DECLINED: 3}


def test_a_hook_on_the_network_is_called(recorded):
    calls = []
    recorded.detector.register_forward_hook(lambda *_: calls.append(1))
    with pytest.warns(ReplayWarning):
        assert recorded.same(2, 4)
    assert calls == [1]


def test_replaced_weights_are_trained(recorded):
    for detector in (recorded.detector, recorded.other):
        state = {name: value.clone() for name, value in detector.state_dict().items()}
        detector.load_state_dict(state, assign=True)
    with pytest.warns(ReplayWarning):
        assert recorded.same(2, 4)
    assert recorded.region.retired_by is Reason.STORAGE


def test_labels_are_checked_before_anything_is_replayed(recorded):
    images, targets = batch(4, 0)
    wrong = targets._replace(labels=torch.full_like(targets.labels, 9))
    before = recorded.region.launches.forward
    with pytest.raises(ValueError, match="label 9 in image 0, row 0"):
        recorded.step(images, *GRID, wrong, 0.5)
    assert recorded.region.launches.forward == before


def test_more_rows_than_a_recording_may_have_are_native(monkeypatch):
    monkeypatch.setattr(whole_module, "MOST_ROWS", 4)
    twins = Twins("detect")
    assert all(twins.same(seed, 5) for seed in range(2))
    assert twins.region.counts == {Reason.DECLINED: 2}


def test_a_lent_step_is_in_no_copy_and_leaves_no_trace():
    module = DetectionLitModule("obb", "n", 2)
    keys = list(module.state_dict())
    lent = lend(module, None, ReplayPlan("none", ("capture_step",), TapeBackend()))
    assert [region.name for region in lent["capture_step"]] == ["step"]
    assert list(module.state_dict()) == keys
    assert copy.deepcopy(module).whole_step is None
    take_back(module)
    assert module.whole_step is None


ALONE = {"capture_step": True, "backend": "tape"}


@pytest.mark.parametrize(
    ("sections", "message"),
    [
        ({"model": {"task": "pose"}, "replay": ALONE}, "capture_step belongs to detect, obb"),
        ({"replay": ALONE | {"capture_network": True}}, r"capture_step covers what replay\.capture_network"),
        ({"replay": ALONE | {"capture_loss": True}}, r"capture_step covers what replay\.capture_loss"),
        ({"replay": ALONE | {"compile_step": True}}, r"compile_step covers what replay\.capture_step"),
        ({"replay": ALONE, "model": {"freeze": ["backbone"]}}, "capture_step records the backward pass"),
        ({"replay": ALONE, "data": {"multi_scale": 0.5}}, "capture_step records one canvas"),
    ],
)
def test_what_does_not_go_with_it_is_refused(sections, message):
    with pytest.raises(ConfigError, match=message):
        replay_plan(FitConfig().updated(run={"device": "cpu"}, **sections))


@pytest.mark.parametrize("mode", ["step", "auto"])
def test_a_mode_takes_it_by_name_only_and_then_in_place_of_its_parts(mode):
    plans = [
        replay_plan(
            FitConfig().updated(run={"device": "cpu"}, replay={"mode": mode, "backend": "tape"} | more)
        )
        for more in ({}, {"capture_step": True})
    ]
    alone, together = (set(plan.switches) for plan in plans)
    assert alone - together == {"capture_network", "capture_loss"}
    assert together - alone == {"capture_step"}
