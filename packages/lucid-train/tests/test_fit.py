"""Whole runs on a small scene set: what they leave behind, and that the same seed learns the same bytes."""

import csv
import json
import shutil

import pytest
import torch

from lucid_models import describe, load
from lucid_train import (
    ConfigError,
    FitConfig,
    evaluate,
    fingerprint,
    fit,
    load_config,
    stored_config,
    task_row,
)


@pytest.fixture(scope="module")
def finished(scenes, tmp_path_factory):
    folder = tmp_path_factory.mktemp("finished") / "run"
    settings = {
        "data.path": str(scenes),
        "data.image_size": 64,
        "data.batch": 8,
        "data.workers": 0,
        "augment.close_mosaic": 1,
        "run.epochs": 3,
        "run.device": "cpu",
        "run.fingerprint": True,
        "run.output": str(folder),
    }
    return fit(load_config("detect", settings))


def test_the_folder_holds_the_promised_files(finished):
    for name in (
        "config.yaml",
        "metrics.csv",
        "fingerprint.json",
        "checkpoints/last.ckpt",
        "checkpoints/best.ckpt",
    ):
        assert (finished.run / name).is_file(), name
    assert not list(finished.run.rglob("*.tmp"))


def test_the_stored_configuration_is_resolved_and_repeats_the_run(finished, tmp_path):
    stored = stored_config(finished.run)
    assert stored.optimizer.lr is not None
    assert stored.ema.tau is not None
    again = fit(stored.updated(run={"output": tmp_path / "again"}))
    assert again.fingerprint == finished.fingerprint


def test_metrics_have_a_row_per_epoch_under_stable_names(finished):
    with (finished.run / "metrics.csv").open() as stream:
        rows = list(csv.DictReader(stream))
    parts = ("loss", "o2m_box", "o2m_cls", "o2m_l1", "o2o_box", "o2o_cls", "o2o_l1")
    head = ("epoch", "step", "lr", "alpha")
    columns = [f"{stage}/{part}" for stage in ("train", "val") for part in parts]
    assert tuple(rows[0]) == (*head, *columns, "val/mAP", "val/mAP50", "val/mAP75")
    assert [int(row["epoch"]) for row in rows] == [0, 1, 2]
    assert [int(row["step"]) for row in rows] == [3, 6, 9]
    assert all(float(row["train/loss"]) > 0 and row["val/mAP"] for row in rows)


def test_alpha_moves_from_the_first_to_the_last_value(finished):
    with (finished.run / "metrics.csv").open() as stream:
        assert [round(float(row["alpha"]), 6) for row in csv.DictReader(stream)] == [0.8, 0.45, 0.1]


def test_the_learning_rate_warms_up_and_ends_at_its_final_factor(finished):
    with (finished.run / "metrics.csv").open() as stream:
        rates = [float(row["lr"]) for row in csv.DictReader(stream)]
    peak = stored_config(finished.run).optimizer.lr
    assert rates[-1] == pytest.approx(peak * 0.01)
    assert rates[0] > rates[1] > rates[2]


def test_the_checkpoint_loads_without_executing_code_and_serves_alone(finished):
    document = torch.load(finished.last_checkpoint, weights_only=True)
    assert document["lucid"]["schema"] == 1
    header = describe(finished.last_checkpoint)
    assert (header.task, header.size, header.image_size) == ("detect", "n", 64)
    detector = load(finished.last_checkpoint)
    assert tuple(detector.names) == tuple(header.names)


def test_the_checkpoint_serves_the_averaged_weights(finished):
    document = torch.load(finished.last_checkpoint, weights_only=True)
    served = document["lucid"]["weights"]
    shadow = next(state["shadow"] for name, state in document["callbacks"].items() if "Ema" in name)
    raw = {name.removeprefix("detector."): value for name, value in document["state_dict"].items()}
    assert all(fingerprint(served[name]) == fingerprint(value) for name, value in shadow.items())
    assert any(not torch.equal(served[name], raw[name]) for name in shadow)


def test_the_fingerprint_file_has_a_digest_per_part(finished):
    digests = json.loads((finished.run / "fingerprint.json").read_text())
    assert set(digests) == {"model", "optimizer", "scheduler", "ema", "losses", "metrics", "all"}
    assert digests == finished.fingerprint


@pytest.mark.parametrize("workers", [1, 2])
def test_the_number_of_workers_does_not_change_what_is_learned(small_config, finished, workers):
    assert fit(small_config(**{"data.workers": workers})).fingerprint == finished.fingerprint


def test_another_seed_learns_something_else(small_config, finished):
    assert fit(small_config(**{"run.seed": 1})).fingerprint["model"] != finished.fingerprint["model"]


def test_asking_for_checkpoints_inside_epochs_changes_nothing(small_config, finished):
    assert fit(small_config(**{"run.checkpoint_steps": 2})).fingerprint == finished.fingerprint


def test_evaluation_reports_both_paths_and_equals_the_last_validation(finished, scenes):
    report = evaluate(finished.last_checkpoint, scenes, workers=0)
    assert set(report["report"]) == {"e2e", "nms"}
    assert report["images"] == 6
    assert report["report"]["e2e"]["map"] == pytest.approx(finished.metrics["val/mAP"], abs=1e-9)


def test_evaluation_numbers_equal_pycocotools_on_the_written_predictions(finished, scenes, tmp_path):
    from pycocotools.coco import COCO
    from pycocotools.cocoeval import COCOeval

    file = tmp_path / "predictions.json"
    report = evaluate(finished.last_checkpoint, scenes, path="e2e", workers=0, predictions=file)
    truth = COCO(str(scenes / "annotations" / "instances_val.json"))
    scored = COCOeval(truth, truth.loadRes(str(file)), "bbox")
    scored.evaluate()
    scored.accumulate()
    scored.summarize()
    numbers = report["report"]["e2e"]
    keys = ("map", "map_50", "map_75", "map_small", "map_medium", "map_large")
    keys += ("mar_1", "mar_10", "mar_100", "mar_small", "mar_medium", "mar_large")
    assert [numbers[key] for key in keys] == pytest.approx(list(scored.stats), abs=1e-12)


def test_initial_weights_carry_over_and_the_transfer_is_told(small_config, finished):
    result = fit(small_config(**{"model.init": str(finished.last_checkpoint), "run.epochs": 1}))
    assert result.transfer


def test_without_a_data_path_the_remedy_is_named():
    with pytest.raises(ValueError, match="--data"):
        fit(FitConfig())


def test_a_task_that_cannot_be_trained_is_refused():
    with pytest.raises(ValueError, match="choose one of: detect, segment, pose, obb"):
        task_row("boxes")


def test_a_finished_run_is_not_overwritten(small_config, finished):
    with pytest.raises(ConfigError, match="already holds a run"):
        fit(small_config().updated(run={"output": finished.run}))


def test_a_run_that_stops_being_finite_stops_and_saves_none_of_it(small_config):
    config = small_config(
        "broken", **{"optimizer.lr": 1e9, "optimizer.warmup_epochs": 0, "optimizer.clip_norm": None}
    )
    with pytest.raises(
        ValueError, match=r"the loss is (nan|inf).*optimizer\.lr.*the batch: \S+\.png, "
    ) as caught:
        fit(config)
    images = {path.name for path in config.data.path.rglob("*.png")}
    assert set(str(caught.value).partition("the batch: ")[2].split(", ")) <= images
    last = config.run.output / "checkpoints" / "last.ckpt"
    if last.exists():
        weights = torch.load(last, weights_only=True)["state_dict"].values()
        assert all(torch.isfinite(weight).all() for weight in weights)


def test_the_last_epoch_is_validated_whatever_the_interval(small_config):
    rows = []
    result = fit(
        small_config(**{"run.validate_every": 5, "run.epochs": 2}),
        observer=lambda progress: rows.append(progress.metrics) if progress.phase == "epoch" else None,
    )
    assert ["val/mAP" in row for row in rows] == [False, True]
    assert "val/mAP" in result.metrics
    assert result.best_checkpoint is not None


@pytest.mark.parametrize(
    ("overrides", "error"),
    [
        ({"run.device": "mps"}, "not available here"),
        ({"run.devices": 4096}, "run.devices = 4096: there is room for"),
        ({"run.precision": "16-mixed"}, "needs an accelerator"),
        ({"model.init": "missing.ckpt"}, r"missing\.ckpt"),
        ({"data.train_split": "holidays"}, "holidays"),
    ],
)
def test_a_run_that_cannot_start_leaves_nothing(small_config, overrides, error):
    config = small_config("never", **overrides)
    with pytest.raises((ValueError, OSError), match=error):
        fit(config)
    assert not config.run.output.exists()


def test_a_run_whose_first_image_is_broken_leaves_nothing(scenes, small_config, tmp_path):
    broken = tmp_path / "broken"
    shutil.copytree(scenes, broken)
    for image in (broken / "train").iterdir():
        image.write_bytes(image.read_bytes()[:50])
    config = small_config("never", **{"data.path": str(broken)})
    with pytest.raises(OSError, match="broken"):
        fit(config)
    assert not config.run.output.exists()


def test_evaluating_a_few_takes_the_first_images_and_keeps_the_paths_apart(finished, scenes, tmp_path):
    file = tmp_path / "results.json"
    report = evaluate(finished.last_checkpoint, scenes, limit=2, workers=0, predictions=file, device="cpu")
    truth = json.loads((scenes / "annotations" / "instances_val.json").read_text())
    first = sorted(image["id"] for image in truth["images"])[:2]
    assert report["images"] == 2
    by_path = [json.loads(path.read_text()) for path in (file, tmp_path / "results-nms.json")]
    for rows in by_path:
        assert {row["image_id"] for row in rows} <= set(first)
    assert by_path[0] != by_path[1]
    assert report["info"]["eval_backend"] == "pycocotools"


def test_evaluation_refuses_classes_of_another_name(finished, scenes, tmp_path):
    other = tmp_path / "other"
    shutil.copytree(scenes, other)
    file = other / "annotations" / "instances_val.json"
    document = json.loads(file.read_text())
    document["categories"][1]["name"] = "owl"
    file.write_text(json.dumps(document))
    with pytest.raises(ValueError, match="class 1 is 'owl'"):
        evaluate(finished.last_checkpoint, other, workers=0)


@pytest.mark.parametrize(
    "arguments",
    [
        {"limit": -1},
        {"batch": 0},
        {"image_size": 0},
        {"image_size": 100},
        {"device": "x"},
        {"engine": "slow"},
    ],
)
def test_evaluation_refuses_arguments_out_of_range(finished, scenes, arguments):
    with pytest.raises(ValueError, match=str(next(iter(arguments.values())))):
        evaluate(finished.last_checkpoint, scenes, **arguments)
