"""Each guard that decides whether a recording may be used: taken away, the test that names it fails."""

from types import SimpleNamespace

import pytest
import torch
from lightning import Trainer
from lightning.pytorch.utilities.exceptions import MisconfigurationException

from lucid_capture import Reason, ReplayWarning, TapeBackend
from lucid_models import DetectionLoss, build_detector
from lucid_train import ConfigError, DetectionLitModule, FitConfig
from lucid_train.callbacks import Replay
from lucid_train.replay import NetworkRoute, ReplayedDetection, ReplayPlan, replay_plan

SIDE = 32
IMAGES = torch.rand(2, 3, SIDE, SIDE, generator=torch.Generator().manual_seed(0))


def backward(output):
    torch.cat([output.o2m.cls.flatten(), output.o2o.box.flatten()]).sum().backward()


@pytest.fixture
def recorded():
    """Return a function that builds a detector and a route of some parts that has recorded them."""

    def build(*parts):
        detector = build_detector("detect", "n", num_classes=2)
        route = NetworkRoute(detector, parts, TapeBackend())
        for _ in range(2):
            backward(route(IMAGES, 1))
        assert all(region.counts[Reason.RECORDED] == 1 for region in route.regions.values())
        return detector, route

    return build


@pytest.mark.parametrize(
    ("part", "stages"),
    [("network", ("backbone", "neck", "head")), ("features", ("backbone", "neck")), ("heads", ("head",))],
)
def test_the_certificate_of_a_part_covers_all_of_its_stages(part, stages):
    detector = build_detector("detect", "n", num_classes=2)
    certificate = NetworkRoute(detector, (part,), TapeBackend()).regions[part].certificate
    for kind in ("parameters", "buffers"):
        wanted = {id(x) for stage in stages for x in getattr(getattr(detector, stage), kind)()}
        assert wanted <= {id(x) for x in getattr(certificate, kind)()}


def test_a_recorded_part_is_given_up_when_a_weight_lives_elsewhere(recorded):
    detector, route = recorded("heads")
    parameter = next(detector.head.parameters())
    parameter.data = parameter.data.clone()
    with pytest.warns(ReplayWarning, match="heads"):
        backward(route(IMAGES, 1))
    assert route.regions["heads"].retired_by is Reason.STORAGE


@pytest.mark.parametrize("part", ["network", "heads"])
def test_a_hook_put_on_a_recorded_stage_is_called(recorded, part):
    detector, route = recorded(part)
    calls = []
    detector.head.register_forward_hook(lambda *_: calls.append(1))
    with pytest.warns(ReplayWarning, match="hooks"):
        backward(route(IMAGES, 1))
    assert calls == [1]


def test_heads_are_native_for_a_batch_without_objects_and_features_are_not(recorded):
    _, route = recorded("features", "heads")
    before = {name: region.counts[Reason.REPLAYED] for name, region in route.regions.items()}
    backward(route(IMAGES, 0))
    assert route.regions["heads"].counts[Reason.PAUSED] == 1
    assert route.regions["features"].counts[Reason.REPLAYED] == before["features"] + 1


@pytest.mark.parametrize("name", ["form", "num_classes", "class_gain", "l1_gain", "fused_assignment"])
def test_every_setting_of_the_loss_is_part_of_its_certificate(name):
    replayed = ReplayedDetection(DetectionLoss(2), TapeBackend(), torch.device("cpu"))
    before = replayed.region.certificate.facts()
    assert replayed.region.certificate.facts() == before
    setattr(replayed, name, 7)
    assert replayed.region.certificate.facts()[Reason.CONTRACT] != before[Reason.CONTRACT]


@pytest.fixture
def fitting(tmp_path):
    """A module whose network is replayed, its callback and its trainer."""
    module, trainer = DetectionLitModule("detect", "n", 2), Trainer(accelerator="cpu", logger=False)
    trainer.strategy.optimizers = [module.configure_optimizers()]
    replay = Replay(ReplayPlan("step", ("capture_network",), TapeBackend()), tmp_path / "replay.json")
    replay.on_fit_start(trainer, module)
    for _ in range(2):
        backward(module.network_route(IMAGES, 1))
    return replay, trainer, module


def test_a_backward_pass_that_was_skipped_keeps_the_recording_busy_until_the_next_batch(fitting):
    replay, trainer, module = fitting
    region = module.network_route.regions["network"]
    skipped = module.network_route(IMAGES, 1)
    module.network_route(IMAGES, 1)
    assert region.counts[Reason.HELD] == 1
    before = region.counts[Reason.REPLAYED]
    replay.on_train_batch_start(trainer, module)
    module.network_route(IMAGES, 1)
    assert (region.counts[Reason.HELD], region.counts[Reason.REPLAYED]) == (1, before + 1)
    del skipped


def test_an_epoch_begins_with_the_full_walk_of_every_certificate(fitting, monkeypatch):
    replay, trainer, module = fitting
    walks, certificate = [], module.network_route.regions["network"].certificate
    monkeypatch.setattr(certificate, "refresh", lambda: walks.append(1))
    replay.on_train_epoch_start(trainer, module)
    assert walks == [1]


def test_a_limit_other_than_the_trainer_s_is_refused_and_not_clipped_to():
    module = DetectionLitModule("detect", "n", 2)
    module.clipper = SimpleNamespace(clip_=lambda *_: pytest.fail("clipped"))
    module._trainer = Trainer(accelerator="cpu", logger=False, gradient_clip_val=10.0)
    with pytest.raises(MisconfigurationException):
        module.configure_gradient_clipping(None, 3.0, "norm")


@pytest.mark.parametrize("name", ["capture_network", "capture_loss"])
def test_recordings_of_one_canvas_refuse_several(name):
    sections = {"data": {"multi_scale": 0.5}, "run": {"device": "cpu"}}
    with pytest.raises(ConfigError, match=f"{name} records one canvas"):
        replay_plan(FitConfig().updated(replay={name: True, "backend": "tape"}, **sections))


def test_the_tape_is_for_a_cpu(monkeypatch):
    monkeypatch.setattr("lucid_train.replay.plan.chosen_device", lambda device: "cuda")
    with pytest.raises(ConfigError, match="'tape' follows work on a CPU, and this run is on cuda"):
        replay_plan(FitConfig().updated(replay={"capture_updates": True, "backend": "tape"}))
