"""Early stopping, frozen stages, balanced sampling, several sizes, loggers and automatic batches."""

import logging
import math
import sys
from types import SimpleNamespace

import pytest
import torch

import lucid_train.batch_size
import lucid_train.loggers
from lucid_data import Batch
from lucid_train import ConfigError, DetectionDataModule, DetectionLitModule, evaluate, fit, load_config
from lucid_train.balance import balanced, repeat_factors
from lucid_train.batch_size import fitting_batch, is_out_of_memory
from lucid_train.callbacks import EarlyStop
from lucid_train.launch import is_lost_connection
from lucid_train.loggers import build_loggers
from lucid_train.multiscale import resized, sizes, step_size
from lucid_train.replay import replay_plan

FIT = sys.modules["lucid_train.fit"]  # the package exports a function of that name


@pytest.fixture
def tiny(small_config):
    """Two steps an epoch on the six validation scenes, at 32 pixels."""

    def build(name="run", **overrides):
        small = {"data.train_split": "val", "data.image_size": 32, "data.batch": 4, "augment.mosaic": 0.0}
        return small_config(name, **small | overrides)

    return build


def trainer(score=None):
    metrics = {} if score is None else {"val/mAP": torch.tensor(score)}
    return SimpleNamespace(sanity_checking=False, callback_metrics=metrics, should_stop=False)


def test_a_run_stops_after_the_given_number_of_validations_without_a_higher_score():
    stop, stopped = EarlyStop("val/mAP", 2), []
    for score in (0.1, 0.3, 0.3, 0.2):
        now = trainer(score)
        stop.on_validation_end(now, None)
        stop.on_train_epoch_end(now, None)
        stopped.append(now.should_stop)
    assert stopped == [False, False, False, True]
    resumed = EarlyStop("val/mAP", 2)
    resumed.load_state_dict(stop.state_dict())
    again = trainer()
    resumed.on_train_start(again, None)
    assert again.should_stop


def test_a_run_that_stopped_early_has_its_files_stays_stopped_and_says_so(tiny, monkeypatch, caplog):
    caplog.set_level(logging.INFO, logger="lucid")
    monkeypatch.setattr(
        EarlyStop, "exhausted", property(lambda self: self.waited + (self.best is not None) >= 1)
    )
    config = tiny("early", **{"run.patience": 1, "run.epochs": 5})
    result = fit(config)
    assert result.metrics["epoch"] == 0
    assert "val/mAP" in result.metrics
    assert "nothing was left to do" not in caplog.text
    assert fit(config, resume="last").fingerprint == result.fingerprint
    assert "nothing was left to do" in caplog.text


def test_frozen_stages_keep_weights_and_statistics_and_the_others_learn(tiny, monkeypatch):
    modules = []
    build = FIT.build_module

    def remembered(config, data):
        modules.append(build(config, data))
        modules.append({k: v.clone() for k, v in modules[0].detector.state_dict().items()})
        return modules[0]

    monkeypatch.setattr(FIT, "build_module", remembered)
    fit(tiny("frozen", **{"model.freeze": ["backbone", "neck"], "run.epochs": 1}))
    after, before = modules[0].detector.state_dict(), modules[1]
    moved = {name.partition(".")[0] for name in before if not torch.equal(before[name], after[name])}
    assert moved == {"head"}


@pytest.mark.parametrize(
    ("overrides", "words"),
    [
        ({"model.freeze": ["backbone", "neck", "head"]}, "nothing to learn"),
        ({"run.loggers": ["wandb"]}, "pip install wandb"),
        ({"model.freeze": ["stem"]}, "model.freeze"),
        ({"data.multi_scale": 1.0}, "data.multi_scale"),
        ({"run.patience": 0}, "run.patience"),
        ({"data.balance": 0.0}, "data.balance"),
        ({"data.batch": "most"}, "data.batch"),
    ],
)
def test_what_cannot_be_is_refused_by_name(tiny, monkeypatch, overrides, words):
    monkeypatch.setattr(lucid_train.loggers, "find_spec", lambda name: None)
    with pytest.raises(ConfigError, match=words):
        fit(tiny("never", **overrides))


def test_both_heads_are_scored_where_asked(tiny):
    config = tiny("both", **{"run.both_heads": True, "run.epochs": 1})
    result = fit(config)
    report = evaluate(result.last_checkpoint, config.data.path, split="val", workers=0)["report"]
    for prefix, path in (("val/", "e2e"), ("val/nms_", "nms")):
        assert result.metrics[f"{prefix}mAP50"] == pytest.approx(report[path]["map_50"], abs=1e-6)
    assert "val/nms_mAP75" in (result.run / "metrics.csv").read_text().splitlines()[0]


@pytest.mark.parametrize(
    ("section", "switch"),
    [({"model": {"freeze": ("neck",)}}, "capture_network"), ({"data": {"multi_scale": 0.5}}, "capture_loss")],
)
def test_recordings_of_one_canvas_and_every_stage_refuse_what_changes_them(tiny, section, switch):
    config = tiny().updated(**section)
    with pytest.raises(ConfigError, match=rf"replay\.{switch} records"):
        replay_plan(config.updated(replay={switch: True, "backend": "tape"}))
    every = replay_plan(config.updated(replay={"mode": "step", "backend": "tape"}))
    assert not every.has(switch)
    assert every.has("capture_gradient_norm")


def test_images_of_rare_classes_are_repeated_by_the_square_root_of_their_rarity():
    labels = [{0}] * 15 + [{0, 1}] + [set()] * 4
    factors = repeat_factors(labels, threshold=0.2)
    assert factors == [1.0] * 15 + [math.sqrt(0.2 / (1 / 20))] + [1.0] * 4


def test_a_balanced_catalog_is_a_function_of_the_seed_and_keeps_every_image(small_config):
    catalog = DetectionDataModule(small_config()).train_catalog
    one, again = (balanced(catalog, 1.0, seed=0) for _ in range(2))
    assert one.file_names == again.file_names
    assert set(one.file_names) == set(catalog.file_names)
    assert len(one) > len(catalog)
    assert balanced(catalog, 1e-9, seed=0).file_names == catalog.file_names


def test_sizes_of_steps_are_multiples_of_32_in_their_range_and_a_function_of_their_counters():
    drawn = [step_size(96, 0.4, 3, epoch, step) for epoch in range(5) for step in range(20)]
    assert set(drawn) == {64, 96, 128}
    assert drawn == [step_size(96, 0.4, 3, epoch, step) for epoch in range(5) for step in range(20)]


def batch_of(side):
    images = torch.zeros(1, 3, side, side, dtype=torch.uint8)
    images[..., side // 4 : side // 2, side // 2 :] = 200
    corner, half, quarter = float(side), side / 2, side / 4
    masks = torch.zeros(1, 1, side // 4, side // 4, dtype=torch.bool)
    masks[..., side // 16 : side // 8, side // 8 :] = True
    return Batch(
        images,
        torch.tensor([[[half, quarter, corner, half]]]),
        torch.ones(1, 1, dtype=torch.int64),
        torch.ones(1, 1, dtype=torch.bool),
        torch.tensor([[[0.75 * side, 0.375 * side, half, quarter, 0.3]]]),
        torch.tensor([[[[half, quarter, 2.0]]]]),
        torch.zeros(1, dtype=torch.int64),
        torch.tensor([[side, side]]),
        masks,
        torch.ones(1, 1, dtype=torch.bool),
    )


@pytest.mark.parametrize("side", [64, 128, 192])
def test_a_resized_batch_is_the_scene_drawn_at_that_size(side):
    found, drawn = resized(batch_of(128), side), batch_of(side)
    for name in ("boxes", "rboxes", "keypoints", "masks", "labels", "valid"):
        assert torch.allclose(getattr(found, name).float(), getattr(drawn, name).float()), name
    away = (found.images.int() - drawn.images.int()).abs()
    assert found.images.shape == drawn.images.shape
    assert (away > 2).float().mean() < 0.1  # edges


def test_a_run_of_several_sizes_that_is_stopped_and_resumed_ends_with_the_same_bytes(tiny):
    class Stop(Exception):
        pass

    def stop(progress):
        if progress.phase == "train" and (progress.epoch, progress.step) == (1, 1):
            raise Stop

    settings = {"data.multi_scale": 0.5, "data.image_size": 64, "run.epochs": 2, "run.checkpoint_steps": 1}
    whole = fit(tiny("whole", **settings))
    with pytest.raises(Stop):
        fit(tiny("parts", **settings), observer=stop)
    assert fit(tiny("parts", **settings), resume="last").fingerprint == whole.fingerprint


def test_loggers_are_lightning_s_by_name(tiny, tmp_path, monkeypatch):
    made = {}
    for kind in ("TensorBoardLogger", "WandbLogger", "MLFlowLogger"):
        monkeypatch.setattr(
            lucid_train.loggers.loggers, kind, lambda kind=kind, **given: made.setdefault(kind, given)
        )
    config = tiny().updated(run={"loggers": ("tensorboard", "wandb", "mlflow")})
    assert len(build_loggers(config, tmp_path / "fit-3")) == 3
    assert made["WandbLogger"]["name"] == made["MLFlowLogger"]["run_name"] == "fit-3"
    assert made["TensorBoardLogger"]["save_dir"] == tmp_path / "fit-3"


@pytest.mark.parametrize(
    ("free", "most", "batch"),
    [(10_000, 64, 64), (4_000, 64, 16), (10_000, 24, 16), (100, 64, 1), (-8_000, 64, 1)],
)
def test_the_batch_that_fits_lies_on_the_line_through_two_trials(free, most, batch):
    # 100 bytes for the network and 100 for each image, in four fifths of what is free
    assert fitting_batch({2: 300, 4: 500}, free, most) == batch


def test_an_automatic_batch_is_chosen_and_stored(tiny, monkeypatch):
    monkeypatch.setattr(lucid_train.batch_size, "free_bytes", lambda device: 1 << 40)
    config = tiny("chosen", **{"data.batch": "auto", "run.epochs": 1})
    assert config.data.batch is None
    assert load_config(fit(config).run / "config.yaml").data.batch == 4  # six images


def test_a_resumed_run_keeps_the_batch_that_was_chosen(tiny, monkeypatch):
    monkeypatch.setattr(FIT, "measured_batch", lambda *_: 2)
    config = tiny("kept", **{"data.batch": "auto", "run.epochs": 1})
    begun = fit(config)
    monkeypatch.setattr(FIT, "measured_batch", lambda *_: 4)
    again = fit(config, resume="last")
    assert load_config(again.run / "config.yaml").data.batch == 2
    assert again.fingerprint == begun.fingerprint


def test_out_of_memory_names_the_batch_that_fits(tiny, monkeypatch):
    def full(*_):
        raise torch.OutOfMemoryError("CUDA out of memory")

    monkeypatch.setattr(DetectionLitModule, "training_step", full)
    monkeypatch.setattr(FIT, "measured_batch", lambda *_: 1)
    with pytest.raises(MemoryError, match=r"at 4 images a step; --batch 1 fits .*optimizer\.accumulate=4"):
        fit(tiny("full"))
    assert not tiny("full").run.output.exists()


def test_errors_of_memory_are_told_from_others():
    assert is_out_of_memory(RuntimeError("[enforce fail] DefaultCPUAllocator: can't allocate memory: you"))
    assert is_out_of_memory(torch.OutOfMemoryError("CUDA out of memory"))
    assert not is_out_of_memory(RuntimeError("shapes differ"))
    assert not is_out_of_memory(MemoryError("the pictures need 12 GiB in /dev/shm"))


def test_canvases_stay_within_their_spread():
    for size, spread in ((320, 0.15), (32, 0.9), (64, 0.25), (640, 0.5)):
        found = list(sizes(size, spread))
        assert size in found
        assert all(side % 32 == 0 and abs(side - size) <= spread * size + 1e-6 for side in found)


def test_a_lost_connection_is_told_from_a_failure_of_its_own():
    assert is_lost_connection(RuntimeError("[gloo/transport/tcp] Connection closed by peer"))
    assert not is_lost_connection(RuntimeError("DataLoader worker (pid 7) is killed by signal: Bus error"))
    assert not is_lost_connection(ValueError("gloo"))
