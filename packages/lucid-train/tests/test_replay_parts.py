"""The parts that replay a step: each gives the native bytes, notices what changes, and ends with its fit."""

import copy
import pickle
from types import SimpleNamespace

import pytest
import torch
from lightning import Trainer

import lucid_train.replay.loss as loss_module
from lucid_capture import GuardedRegion, Reason, ReplayWarning, TapeBackend, same_bytes
from lucid_models import BranchOutput, DetectionLoss, HeadOutput, build_detector, make_points
from lucid_train import ConfigError, DetectionLitModule, FitConfig
from lucid_train.callbacks import Replay
from lucid_train.callbacks.replay import MEASURED, SETTLING, lend, take_back
from lucid_train.replay import REPLAY_SWITCHES, NetworkRoute, ReplayedDetection, ReplayPlan, replay_plan

SIDE = 32
BY_NAME = {"capture_step", "compile_step"}


def predictions(seed):
    generator = torch.Generator().manual_seed(seed)
    count = len(make_points(SIDE, SIDE)[0])
    branches = []
    for _ in range(2):
        cls = torch.randn(2, count, 2, generator=generator).requires_grad_()
        box = (torch.randn(2, count, 4, generator=generator).abs() + 1).requires_grad_()
        branches.append(BranchOutput(cls=cls, box=box))
    return HeadOutput(*branches)


def targets(rows, seed=0):
    generator = torch.Generator().manual_seed(seed)
    corner = torch.rand(2, rows, 2, generator=generator) * 12
    boxes = torch.cat([corner, corner + 6 + torch.rand(2, rows, 2, generator=generator) * 12], dim=2)
    labels = torch.randint(0, 2, (2, rows), generator=generator)
    valid = torch.arange(rows)[None] < torch.tensor([[rows], [rows // 2]])
    return boxes * valid[..., None], labels * valid, valid


def outcome(criterion, seed, rows, alpha=0.8):
    """Return everything a loss gives for one batch, gradients included."""
    output = predictions(seed)
    result = criterion(output, *make_points(SIDE, SIDE), *targets(rows, seed), alpha=alpha)
    result.total.backward()
    leaves = (output.o2m.cls, output.o2m.box, output.o2o.cls, output.o2o.box)
    values = [result.total.detach(), *result.o2m, *result.o2o, *result.o2m_assignment, *result.o2o_assignment]
    return [value.detach() for value in values] + [leaf.grad for leaf in leaves]


@pytest.fixture
def replayed():
    return ReplayedDetection(DetectionLoss(2), TapeBackend(), torch.device("cpu"))


def test_the_replayed_loss_has_the_native_bytes_while_targets_grow_shrink_and_vanish(replayed):
    for step, rows in enumerate([3, 3, 4, 1, 0, 4, 6, 7, 2]):
        alpha = 0.8 - 0.1 * (step // 3)
        native = outcome(DetectionLoss(2), step, rows, alpha)
        comparison = same_bytes(native, outcome(replayed, step, rows, alpha))
        assert comparison, f"step {step}: {comparison}"
    assert replayed.region.counts == {
        Reason.FIRST_SIGHTING: 2,
        Reason.RECORDED: 2,
        Reason.REPLAYED: 4,
        Reason.DECLINED: 1,
    }


def test_rows_left_from_a_larger_batch_would_be_found(replayed, monkeypatch):
    outcome(replayed, 0, 4), outcome(replayed, 1, 4)
    honest = loss_module.padded

    def stale(values, capacity, valid):
        wide = honest(values, capacity, valid)
        return SimpleNamespace(values=wide.values, valid=torch.ones_like(wide.valid))

    monkeypatch.setattr(loss_module, "padded", stale)
    assert not same_bytes(outcome(DetectionLoss(2), 2, 2), outcome(replayed, 2, 2))


def test_more_targets_than_the_limit_are_native(monkeypatch):
    monkeypatch.setattr(loss_module, "MOST_ROWS", 4)
    replayed = ReplayedDetection(DetectionLoss(2), TapeBackend(), torch.device("cpu"))
    assert same_bytes(outcome(DetectionLoss(2), 0, 6), outcome(replayed, 0, 6))
    assert replayed.region.counts == {Reason.DECLINED: 1}


def test_a_wrong_label_is_refused_also_when_the_loss_replays(replayed):
    outcome(replayed, 0, 3), outcome(replayed, 1, 3)
    boxes, labels, valid = targets(3)
    labels[0, 1] = 9
    with pytest.raises(ValueError, match="label 9 in image 0, row 1"):
        replayed(predictions(2), *make_points(SIDE, SIDE), boxes, labels, valid, alpha=0.5)


def test_a_changed_gain_retires_the_replayed_loss_and_counts_at_once(replayed):
    outcome(replayed, 0, 3), outcome(replayed, 1, 3)
    replayed.box_gain = 1.0
    with pytest.warns(ReplayWarning, match="loss"):
        found = outcome(replayed, 2, 3)
    assert same_bytes(outcome(DetectionLoss(2, box_gain=1.0), 2, 3), found)
    assert replayed.region.retired_by is Reason.CONTRACT


def test_without_gradients_the_loss_is_native_and_not_counted(replayed):
    with torch.no_grad():
        replayed(predictions(0), *make_points(SIDE, SIDE), *targets(3), alpha=0.5)
    assert not replayed.region.counts


def test_a_hook_on_the_detector_is_called_and_the_parts_run_natively():
    torch.manual_seed(0)
    detector = build_detector("segment", "n", num_classes=2)
    route, calls = NetworkRoute(detector, ("features", "heads"), TapeBackend()), []
    detector.register_forward_hook(lambda *_: calls.append(1))
    route(torch.rand(2, 3, SIDE, SIDE), 1)
    assert calls == [1]
    assert all(region.counts == {Reason.HOOKS: 1} for region in route.regions.values())


def module_with_everything():
    torch.manual_seed(0)
    module = DetectionLitModule("pose", "n", 1, num_keypoints=3)
    switches = [name for name in REPLAY_SWITCHES if "pose" in REPLAY_SWITCHES[name].tasks]
    plan = ReplayPlan("step", tuple(switches), TapeBackend())
    wanted = {"capture_orthogonalization": True, "capture_updates": True}
    module.optimizer_captures = {**wanted, "backend": plan.backend}
    lent = lend(module, module.configure_optimizers(), plan)
    return module, lent


def test_every_switch_of_a_task_lends_its_regions():
    _, lent = module_with_everything()
    assert {name: [region.name for region in regions] for name, regions in lent.items()} == {
        "capture_network": ["features", "heads"],
        "capture_loss": ["loss"],
        "capture_gradient_norm": ["gradient norm"],
        "capture_orthogonalization": ["orthogonalization"],
        "capture_updates": ["updates 0"],
    }


@pytest.mark.parametrize("copied", [copy.deepcopy, lambda module: pickle.loads(pickle.dumps(module))])
def test_a_copy_of_a_module_replays_nothing(copied):
    module, _ = module_with_everything()
    twin = copied(module)
    assert (twin.network_route, twin.clipper, twin.optimizer_captures) == (None, None, {})
    assert type(twin.criterion.detection) is DetectionLoss


def test_what_was_lent_leaves_no_trace_in_weights_and_none_after_it_is_taken_back():
    module, _ = module_with_everything()
    keys = list(DetectionLitModule("pose", "n", 1, num_keypoints=3).state_dict())
    assert list(module.state_dict()) == keys
    take_back(module)
    assert type(module.criterion.detection) is DetectionLoss
    assert (module.network_route, module.clipper, module.optimizer_captures) == (None, None, {})


@pytest.fixture
def attached(tmp_path):
    """Return a function that attaches a replay of the network to a module, as a fit's start does."""

    def attach(measured=False, clock=lambda: 0.0):
        module, trainer = DetectionLitModule("detect", "n", 2), Trainer(accelerator="cpu", logger=False)
        trainer.strategy.optimizers = [module.configure_optimizers()]
        plan = ReplayPlan("auto", ("capture_network",), TapeBackend(), measured)
        replay = Replay(plan, tmp_path / "replay.json", clock)
        replay.on_fit_start(trainer, module)
        return replay, trainer, module

    return attach


def test_a_failed_fit_takes_everything_back_and_the_hooks_ignore_another_trainer(attached):
    replay, trainer, module = attached()
    replay.on_exception(Trainer(accelerator="cpu", logger=False), module, RuntimeError())
    assert module.network_route is not None
    region = module.network_route.regions["network"]
    replay.on_exception(trainer, module, RuntimeError())
    assert module.network_route is None
    assert region.state.value == "closed"


@pytest.mark.parametrize(("slow", "kept"), [("native", "replayed"), ("replayed", "native")])
def test_a_measured_replay_keeps_the_faster_route(attached, slow, kept):
    now = [0.0]
    replay, trainer, module = attached(measured=True, clock=lambda: now[0])
    region = module.network_route.regions["network"]
    for batch in range(2 * (SETTLING + MEASURED)):
        replay.on_train_batch_start(trainer, module)
        phase = "native" if batch < SETTLING + MEASURED else "replayed"
        assert bool(region._paused) == (phase == "native")
        now[0] += 2.0 if phase == slow else 1.0
        replay.on_train_batch_end(trainer, module)
    assert replay.report()["kept"] == kept
    assert bool(region._paused) == (kept == "native")


def test_auto_without_a_cuda_device_stays_native_and_says_so(caplog):
    caplog.set_level("INFO", logger="lucid")
    plan = replay_plan(FitConfig().updated(replay={"mode": "auto"}, run={"device": "cpu"}))
    assert (plan.switches, plan.backend) == ((), None)
    assert "no CUDA device" in caplog.text


def test_auto_on_the_tape_turns_on_what_the_task_has_and_measures():
    plan = replay_plan(FitConfig().updated(replay={"mode": "auto", "backend": "tape"}, run={"device": "cpu"}))
    assert plan.measured
    assert set(plan.switches) == set(REPLAY_SWITCHES) - {"capture_segment_heads", *BY_NAME}


def test_a_switch_that_is_off_stays_off_when_the_whole_step_is_to_replay():
    replay = {"mode": "step", "backend": "tape", "capture_updates": False}
    plan = replay_plan(FitConfig().updated(replay=replay, run={"device": "cpu"}))
    assert set(plan.switches) == set(REPLAY_SWITCHES) - {
        "capture_segment_heads",
        "capture_updates",
        *BY_NAME,
    }


@pytest.mark.parametrize(
    ("sections", "message"),
    [
        (
            {"replay": {"capture_network": True}},
            r"capture_network needs a CUDA device.*--replay-backend tape",
        ),
        ({"replay": {"mode": "step"}}, r"replay\.mode = 'step' needs a CUDA device"),
        ({"replay": {"capture_updates": True, "backend": "cuda"}}, r"capture_updates needs a CUDA device"),
        ({"replay": {"capture_segment_heads": True}}, r"capture_segment_heads belongs to segment.*detect"),
        (
            {"replay": {"capture_loss": True}, "model": {"task": "obb"}},
            r"capture_loss belongs to detect, pose",
        ),
        (
            {"replay": {"capture_segment_heads": True}, "model": {"task": "segment"}},
            r"bf16-mixed only; use --precision bf16-mixed",
        ),
        (
            {"replay": {"capture_gradient_norm": True}, "optimizer": {"clip_norm": None}},
            r"capture_gradient_norm .* optimizer\.clip_norm is null",
        ),
    ],
)
def test_a_switch_that_cannot_be_had_is_refused_in_one_line_with_the_remedy(sections, message):
    run = {"device": "cpu"} | sections.get("run", {})
    with pytest.raises(ConfigError, match=message) as caught:
        replay_plan(FitConfig().updated(**sections | {"run": run}))
    assert "\n" not in str(caught.value)


def test_several_processes_are_told_that_every_step_is_native(caplog):
    several = {"device": "cpu", "devices": 2}
    with caplog.at_level("WARNING", "lucid"):
        plan = replay_plan(FitConfig().updated(replay={"mode": "step", "backend": "tape"}, run=several))
    assert plan.has("capture_network")  # its region counts the calls that it leaves native
    assert "every step is native" in caplog.text


def test_a_region_that_never_replays_is_told_apart_by_its_launches(replayed, monkeypatch):
    monkeypatch.setattr(GuardedRegion, "__call__", lambda self, *args: self._native(Reason.REPLAYED, args))
    for step in range(3):
        outcome(replayed, step, 3)
    assert replayed.region.launches.forward == 0
