"""Written data sets appear when they are complete, or not at all."""

import os

import pytest

from lucid_data import convert, open_catalog, synthetic, tile
from lucid_data.whole import whole_folder


class StoppedError(Exception):
    pass


def stop(done, total):
    assert 1 <= done <= total
    if done == 2:
        raise StoppedError


@pytest.fixture
def scenes(tmp_path):
    return synthetic.write_coco(tmp_path / "scenes", splits={"train": 3}, size=64, seed=1)


@pytest.mark.parametrize("target", ["new", "empty"])
def test_a_conversion_that_is_stopped_leaves_nothing(scenes, target):
    if target == "empty":
        (scenes.parent / target).mkdir()
    before = sorted(scenes.parent.rglob("*"))
    with pytest.raises(StoppedError):
        convert(scenes, scenes.parent / target, "yolo", observer=stop)
    assert sorted(scenes.parent.rglob("*")) == before


def test_a_tiling_that_is_stopped_leaves_nothing(scenes):
    before = sorted(scenes.parent.rglob("*"))
    with pytest.raises(StoppedError):
        tile(scenes, scenes.parent / "tiles", "detect", observer=stop)
    assert sorted(scenes.parent.rglob("*")) == before


def test_drawn_scenes_that_fail_leave_nothing(tmp_path):
    with pytest.raises(ValueError, match="unknown task"):
        synthetic.write_coco(tmp_path / "scenes", splits={"train": 3}, size=64, seed=1, task="boxes")
    assert list(tmp_path.iterdir()) == []


def test_an_empty_target_and_the_working_folder_are_filled(scenes, tmp_path, monkeypatch):
    (tmp_path / "here").mkdir()
    monkeypatch.chdir(tmp_path / "here")
    convert(scenes, ".", "yolo")
    assert len(open_catalog(tmp_path / "here")) == 3
    assert sorted(item.name for item in tmp_path.iterdir()) == ["here", "scenes"]


def test_a_file_in_the_targets_place_is_refused(tmp_path):
    (tmp_path / "taken").write_text("keep")
    with pytest.raises(FileExistsError, match="taken already has content"), whole_folder(tmp_path / "taken"):
        pass
    assert (tmp_path / "taken").read_text() == "keep"


@pytest.mark.parametrize("inside", ["train/new", "annotations/new"])
def test_a_target_among_the_pictures_or_labels_it_is_made_from_is_refused(scenes, inside):
    before = sorted(scenes.rglob("*"))
    for make in (
        lambda: convert(scenes, scenes / inside, "yolo"),
        lambda: tile(scenes, scenes / inside, "detect"),
    ):
        with pytest.raises(ValueError, match="lies inside the data set it is made from"):
            make()
    assert sorted(scenes.rglob("*")) == before


@pytest.mark.parametrize(("mask", "mode"), [(0o077, 0o700), (0o022, 0o755), (0o002, 0o775)])
def test_a_new_folder_has_the_mode_that_the_umask_gives(tmp_path, mask, mode):
    kept = os.umask(mask)
    try:
        with whole_folder(tmp_path / "new") as folder:
            (folder / "a").mkdir()
    finally:
        os.umask(kept)
    assert (tmp_path / "new").stat().st_mode & 0o777 == mode
    assert (tmp_path / "new" / "a").stat().st_mode & 0o777 == mode


def test_an_existing_folder_is_filled_from_within_itself(tmp_path):
    # it may be a disk of its own, which no file can be renamed into
    (tmp_path / "there").mkdir()
    with whole_folder(tmp_path / "there") as folder:
        assert folder.parent == tmp_path / "there"
        (folder / "a").write_text("x")
    assert [item.name for item in (tmp_path / "there").iterdir()] == ["a"]


def test_an_interruption_just_after_the_folder_was_made_leaves_nothing(tmp_path, monkeypatch):
    make = os.mkdir

    def interrupted(path, *rest, **named):
        make(path, *rest, **named)
        if os.path.basename(path).startswith(".new."):
            raise KeyboardInterrupt

    monkeypatch.setattr(os, "mkdir", interrupted)
    with pytest.raises(KeyboardInterrupt), whole_folder(tmp_path / "new"):
        pass
    assert not list(tmp_path.iterdir())
