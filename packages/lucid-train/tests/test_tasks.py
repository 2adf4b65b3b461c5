"""Segment, pose and obb train, stop, go on, are scored and predict as detect does."""

import csv
import json
import math

import pytest
import torch

from lucid_data import open_catalog, synthetic
from lucid_models import Predictor, describe
from lucid_train import TASK_TABLE, Interrupted, Observer, evaluate, fit, load_config, recipes

TASKS = ("segment", "pose", "obb")
EXTRA = {"segment": ["mask", "semantic"], "pose": ["rle", "oks", "visibility"], "obb": ["angle"]}


@pytest.fixture(scope="module")
def run(tmp_path_factory):
    """Return a function that trains two epochs of two steps of a task's scenes and gives its result."""
    root = tmp_path_factory.mktemp("tasks")
    made = {}

    def trained(task, name="run", observer: Observer | None = None, resume=None):
        data = root / f"{task}-scenes"
        if not data.exists():
            synthetic.write_coco(data, splits={"train": 8, "val": 3}, size=64, seed=3, task=task)
        if (task, name) not in made or resume or observer:
            settings = {
                "data.path": str(data),
                "data.image_size": 64,
                "data.batch": 4,
                "data.workers": 0,
                "run.epochs": 2,
                "run.device": "cpu",
                "run.fingerprint": True,
                "run.checkpoint_steps": 1,
                "run.output": str(root / f"{task}-{name}"),
            }
            made[task, name] = fit(load_config(task, settings), observer=observer, resume=resume)
        return data, made[task, name]

    return trained


def test_every_task_has_a_recipe_of_its_name():
    assert set(TASK_TABLE) <= set(recipes())
    assert all(load_config(task).model.task == task for task in TASK_TABLE)


@pytest.mark.parametrize("task", TASKS)
def test_the_table_of_a_run_has_the_tasks_own_terms_and_scores(run, task):
    _, result = run(task)
    with (result.run / "metrics.csv").open() as stream:
        rows = list(csv.DictReader(stream))
    wanted = [f"{stage}/{term}" for stage in ("train", "val") for term in EXTRA[task]]
    for column in [*wanted, *TASK_TABLE[task].logged]:
        assert all(math.isfinite(float(row[column])) for row in rows), column
    assert TASK_TABLE[task].headline in rows[0]


@pytest.mark.parametrize("task", TASKS)
def test_a_checkpoint_is_scored_on_both_paths_by_the_tasks_protocols(run, task):
    data, result = run(task)
    document = evaluate(result.last_checkpoint, data, workers=0)
    assert document["info"]["eval_backend"] == ("rotated" if task == "obb" else "pycocotools")
    for path in ("e2e", "nms"):
        assert set(TASK_TABLE[task].logged.values()) <= set(document["report"][path])


@pytest.mark.parametrize("task", TASKS)
def test_validation_in_training_and_a_score_of_the_checkpoint_agree(run, task):
    data, result = run(task)
    report = evaluate(result.last_checkpoint, data, workers=0, path="e2e")["report"]["e2e"]
    for column, name in TASK_TABLE[task].logged.items():
        assert report[name] == pytest.approx(result.metrics[column], abs=2e-3)


@pytest.mark.parametrize("task", TASKS)
def test_a_checkpoint_predicts_what_the_task_promises(run, task):
    data, result = run(task)
    image = open_catalog(data, "val", task).image(0)
    (found,) = Predictor(result.last_checkpoint, confidence=0.0, max_detections=4)([image])
    assert describe(result.last_checkpoint).task == task
    assert (found.masks is not None, found.keypoints is not None, found.rboxes is not None) == tuple(
        task == one for one in ("segment", "pose", "obb")
    )


@pytest.mark.parametrize("task", TASKS)
def test_a_run_that_is_stopped_inside_an_epoch_ends_with_the_bytes_of_one_that_was_not(run, task):
    _, whole = run(task)

    def stop(progress):
        if progress.phase == "train" and (progress.epoch, progress.step) == (0, 1):
            raise Interrupted("stopped", None)

    with pytest.raises(Interrupted):
        run(task, "stopped", observer=stop)
    _, resumed = run(task, "stopped", resume="last")
    assert resumed.fingerprint == whole.fingerprint


def test_splits_with_different_numbers_of_keypoints_are_refused(tmp_path):
    data = synthetic.write_coco(tmp_path / "scenes", splits={"train": 2, "val": 2}, size=64, task="pose")
    file = data / "annotations" / "person_keypoints_val.json"
    document = json.loads(file.read_text())
    # names without a side, two fewer than the other split has
    for category in document["categories"]:
        category["keypoints"] = ["head", "tail"]
    for annotation in document["annotations"]:
        annotation["keypoints"] = annotation["keypoints"][:6]
    file.write_text(json.dumps(document))
    settings = {
        "data.path": str(data),
        "data.image_size": 64,
        "run.device": "cpu",
        "run.output": str(tmp_path / "r"),
    }
    with pytest.raises(ValueError, match=r"split 'train' has \d+ keypoints, 'val' has \d+"):
        fit(load_config("pose", settings))


def test_points_of_the_density_are_saved_and_resumed(run):
    _, result = run("pose")
    state = torch.load(result.last_checkpoint, weights_only=True)["state_dict"]
    assert any(key.startswith("criterion.") for key in state)
