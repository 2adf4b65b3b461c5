"""Whole fits with parts of the step replayed by the tape learn the bytes of native ones, and every launch is counted.

Each fit has a validation in its middle, accumulation, clipping, a partial last batch and one batch without objects.
"""

import json
from collections import Counter

import pytest

from lucid_capture import GuardedRegion, Reason
from lucid_data import synthetic
from lucid_train import DetectionDataModule, Interrupted, fit, load_config

BATCH = 3
CASES = [
    ("detect", "capture_network"),
    ("detect", "capture_loss"),
    ("detect", "capture_orthogonalization"),
    ("detect", "capture_updates"),
    ("detect", "capture_gradient_norm"),
    ("detect", "all"),
    ("detect", "whole"),
    ("pose", "all"),
    ("segment", "capture_segment_heads"),
    ("segment", "all"),
    ("obb", "all"),
    ("obb", "whole"),
]
# two epochs of a whole, a whole and a partial batch, where the second epoch's first has no objects; two batches a step
LAUNCHES = {
    "network": (3, 3),
    "features": (3, 3),
    "heads": (2, 2),
    "gradient norm": (3, 0),
    "updates 0": (3, 0),
}


class Fits:
    """Trains a task on its scenes, each configuration once."""

    def __init__(self, root):
        self.root, self.done, self.rows = root, {}, {}

    def config(self, task, name, **overrides):
        settings = {
            "data.path": str(self.root / task),
            "data.image_size": 32,
            "data.batch": BATCH,
            "data.workers": 0,
            "augment.mosaic": 0.0,
            "augment.mixup": 0.0,
            "optimizer.accumulate": 2,
            "run.epochs": 2,
            "run.device": "cpu",
            "run.precision": "bf16-mixed" if task == "segment" else "32",
            "run.fingerprint": True,
            "run.output": str(self.root / f"{task}-{name}"),
        }
        return load_config(task, settings | overrides)

    def scenes(self, task):
        """Write a task's scenes and take the labels of the second epoch's first batch away."""
        synthetic.write_coco(self.root / task, splits={"train": 8, "val": 2}, size=64, seed=3, task=task)
        loader = DetectionDataModule(self.config(task, "probe")).train_dataloader()
        loader.set_epoch(1)
        emptied = {index + 1 for index in next(iter(loader)).indices.tolist()}
        (file,) = (self.root / task / "annotations").glob("*_train.json")
        document = json.loads(file.read_text())
        order = sorted(image["id"] for image in document["images"])
        gone = {order[place - 1] for place in emptied}
        document["annotations"] = [one for one in document["annotations"] if one["image_id"] not in gone]
        file.write_text(json.dumps(document))
        loader = DetectionDataModule(self.config(task, "probe")).train_dataloader()
        self.rows[task] = [(len(batch), batch.labels.shape[1]) for _ in range(2) for batch in loader]

    def run(self, task, name, **overrides):
        if not (self.root / task).exists():
            self.scenes(task)
        if (task, name) not in self.done:
            self.done[task, name] = fit(self.config(task, name, **overrides))
        return self.done[task, name]

    def replayed(self, task, switch):
        on = {"replay.mode": "step"} if switch in ("all", "whole") else {f"replay.{switch}": True}
        if switch == "whole":
            on["replay.capture_step"] = True
        return self.run(task, switch, **on, **{"replay.backend": "tape"})


@pytest.fixture(scope="module")
def fits(tmp_path_factory):
    return Fits(tmp_path_factory.mktemp("replay"))


def regions(result):
    options = json.loads((result.run / "replay.json").read_text())["options"]
    return {region["name"]: region for found in options.values() for region in found}


def loss_launches(rows):
    """Return how often the loss replays: whole batches with objects whose capacity a whole batch had before."""
    capacity, seen, launches = 0, Counter(), 0
    for images, count in rows:
        if count > capacity:
            capacity = 1 << (count - 1).bit_length()
        if images == BATCH and count:
            launches += seen[capacity] > 0
            seen[capacity] += 1
    return launches


@pytest.mark.parametrize(("task", "switch"), CASES)
def test_a_replayed_fit_has_the_fingerprint_of_the_native_one(fits, task, switch):
    assert fits.replayed(task, switch).fingerprint == fits.run(task, "native").fingerprint
    assert [count for images, count in fits.rows[task] if images == BATCH].count(0) == 1
    assert [images for images, _ in fits.rows[task]] == [3, 3, 2, 3, 3, 2]


@pytest.mark.parametrize(("task", "switch"), CASES)
def test_every_recording_of_a_fit_is_launched_exactly_as_often_as_expected(fits, task, switch):
    found = regions(fits.replayed(task, switch))
    for name, region in found.items():
        launches = region["forward_launches"], region["backward_launches"]
        if name in ("loss", "step"):
            assert launches == (loss_launches(fits.rows[task]),) * 2
        elif name == "orthogonalization":
            # inside the recorded updates it is part of their recording
            assert launches == ((0, 0) if switch in ("all", "whole") else (3 * region["recorded"], 0))
            assert switch in ("all", "whole") or region["recorded"] > 1
        else:
            assert launches == LAUNCHES[name], name
        assert region["retired_by"] is None
    assert found


@pytest.mark.parametrize(
    ("task", "name", "native"),
    [
        ("detect", "network", {"first_sighting": 1, "signature": 2}),
        ("pose", "heads", {"first_sighting": 1, "signature": 2, "paused": 1}),
        ("detect", "gradient norm", {"first_sighting": 1}),
    ],
)
def test_native_calls_are_counted_by_their_reason(fits, task, name, native):
    assert regions(fits.replayed(task, "all"))[name]["native"] == native


def test_a_fit_whose_replay_is_turned_into_native_calls_is_found_by_its_counters(fits, monkeypatch):
    fits.run("detect", "native")
    monkeypatch.setattr(GuardedRegion, "__call__", lambda self, *args: self._native(Reason.REPLAYED, args))
    result = fits.run("detect", "mutant", **{"replay.mode": "step", "replay.backend": "tape"})
    assert result.fingerprint == fits.run("detect", "native").fingerprint
    assert regions(result)["network"]["forward_launches"] != LAUNCHES["network"][0]


def test_a_native_fit_reports_that_nothing_is_replayed(fits):
    result = fits.run("detect", "native")
    stored = json.loads((result.run / "replay.json").read_text())
    assert stored == {"mode": "none", "backend": None, "kept": None, "options": {}}
    assert result.replay == stored


def test_a_replaying_run_that_is_stopped_and_resumed_ends_with_the_native_bytes(fits):
    def stop(progress):
        if progress.phase == "train" and (progress.epoch, progress.step) == (1, 2):
            raise Interrupted("stopped", None)

    native = fits.run("detect", "native").fingerprint
    config = fits.config(
        "detect", "stopped", **{"replay.mode": "step", "replay.backend": "tape", "run.checkpoint_steps": 1}
    )
    with pytest.raises(Interrupted):
        fit(config, observer=stop)
    assert fit(config, resume="last").fingerprint == native


def test_a_replaying_run_is_resumed_natively_and_the_other_way_round(fits):
    from lucid_train.run_folder import require_same, stored_config

    config = stored_config(fits.replayed("detect", "all").run)
    require_same(config, config.updated(replay={"mode": "none", "backend": "auto"}))
