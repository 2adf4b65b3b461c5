"""Starting from other weights: other classes, keypoints, canvases and tasks, with an account of every tensor."""

import logging
from collections.abc import Callable
from pathlib import Path

import pytest
import torch

from lucid_models import TASKS, Detector, build_detector, checkpoint_header, load, load_weights

OfTask = Callable[[str], Detector]


def build(task: str, classes: int, points: int | None = 5, **rest: int) -> Detector:
    points = None if TASKS[task].num_keypoints is None else points
    return build_detector(task, "n", num_classes=classes, num_keypoints=points, **rest)


def save(detector: Detector, folder: Path) -> Path:
    torch.save({"lucid": checkpoint_header(detector)}, folder / "a.ckpt")
    return folder / "a.ckpt"


@pytest.mark.parametrize("task", TASKS)
@pytest.mark.parametrize(("before", "after"), [(80, 2), (2, 80), (2, 2)])
def test_other_classes_keep_every_tensor_that_fits_and_the_table_is_logged(
    task: str,
    before: int,
    after: int,
    tmp_path: Path,
    caplog: pytest.LogCaptureFixture,
    capsys: pytest.CaptureFixture[str],
) -> None:
    donor = build(task, before)
    with caplog.at_level("INFO", "lucid"):
        loaded = load(save(donor, tmp_path), num_classes=after)
    assert (loaded.num_classes, loaded.task, loaded.training) == (after, task, False)
    assert loaded.num_keypoints == donor.num_keypoints
    given, kept = donor.state_dict(), 0
    for key, value in loaded.state_dict().items():
        fits = given[key].shape == value.shape
        assert not fits or torch.equal(value, given[key])
        assert fits or ".cls." in key or ".semantic." in key
        kept += fits
    ((logger, level, said),) = caplog.record_tuples
    assert (logger, level) == ("lucid", logging.INFO)
    assert said.startswith(f"{kept} tensors copied, {len(given) - kept} kept for another shape, 0 kept")
    assert (kept == len(given)) == (before == after)
    assert said.count("\n") == len(given) - kept
    assert capsys.readouterr().out == ""


def test_the_same_count_keeps_the_names_and_names_alone_rename(tmp_path: Path) -> None:
    path = save(build_detector(names=["a", "b"]), tmp_path)
    assert load(path, num_classes=2).names == ("a", "b")
    assert load(path, names=["c", "d"]).names == ("c", "d")
    assert load(path, names=["c", "d", "e"]).num_classes == 3
    assert load(path, num_classes=3).names == ("class_0", "class_1", "class_2")


@pytest.mark.parametrize("points", [3, 30])
def test_other_keypoint_counts_touch_the_keypoint_stems_alone(points: int, tmp_path: Path) -> None:
    donor = build("pose", 1)
    loaded = load(save(donor, tmp_path), num_keypoints=points)
    assert loaded.num_keypoints == points
    given = donor.state_dict()
    differ = [key for key, value in loaded.state_dict().items() if given[key].shape != value.shape]
    assert differ
    assert all(".extra." in key for key in differ)


@pytest.mark.parametrize("task", TASKS)
def test_another_canvas_carries_everything(
    task: str, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    donor = build(task, 3, image_size=320).eval()
    with caplog.at_level("INFO", "lucid"):
        loaded = load(save(donor, tmp_path), image_size=96)
    assert loaded.image_size == 96
    images = torch.rand(1, 3, 96, 64)
    assert torch.equal(loaded(images).o2o.box, donor(images).o2o.box)
    assert "0 kept for another shape" in caplog.text


@pytest.mark.parametrize("task", [task for task in TASKS if task != "detect"])
def test_a_detect_checkpoint_starts_every_other_task(task: str) -> None:
    donor, detector = build("detect", 3), build(task, 3)
    transfer = load_weights(detector, donor.state_dict())
    assert transfer.count("copied") == len(donor.state_dict())
    missing = [row.key for row in transfer.rows if row.action == "missing"]
    assert missing
    assert all(".extra." in key or ".masks." in key for key in missing)


def test_loading_as_it_is_says_nothing(
    tmp_path: Path, caplog: pytest.LogCaptureFixture, capsys: pytest.CaptureFixture[str]
) -> None:
    with caplog.at_level("DEBUG"):
        load(save(build("detect", 3), tmp_path))
    assert caplog.text == ""
    assert capsys.readouterr().out == ""


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ({"num_classes": 0}, "at least 1, got 0"),
        ({"num_keypoints": 4}, "'detect' predicts no keypoints"),
        ({"names": ["a"], "num_classes": 2}, "1 names for num_classes=2"),
        ({"image_size": 65}, "multiple of 32, got 65"),
    ],
)
def test_what_makes_no_sense_is_refused_with_the_path(
    arguments: dict[str, int], message: str, tmp_path: Path
) -> None:
    path = save(build("detect", 3), tmp_path)
    with pytest.raises(ValueError, match=message) as caught:
        load(path, **arguments)  # type: ignore[arg-type]
    assert str(path) in str(caught.value)
