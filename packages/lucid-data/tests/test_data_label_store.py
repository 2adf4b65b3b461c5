"""Packed labels are kept, found again while nothing they depend on has changed, and shared by their pages."""

import os
import pickle
import time

import numpy as np
import pytest
import torch

from lucid_data import open_catalog, synthetic

TASKS = ("detect", "segment", "pose", "obb")
FIELDS = ("boxes", "labels", "rboxes", "difficult", "keypoints", "crowd", "mask_ok", "area")


def same(one, other):
    assert one.file_names == other.file_names
    assert one.image_ids == other.image_ids
    assert (one.class_names, one.category_ids, one.dropped) == (
        other.class_names,
        other.category_ids,
        other.dropped,
    )
    assert (one.keypoint_names, one.keypoint_flip_pairs) == (other.keypoint_names, other.keypoint_flip_pairs)
    for index in range(len(one)):
        a, b = one.targets(index), other.targets(index)
        assert all(torch.equal(getattr(a, f), getattr(b, f)) for f in FIELDS)
        assert [[r.tolist() for r in rings] for rings in a.polygons] == [
            [r.tolist() for r in rings] for rings in b.polygons
        ]


@pytest.fixture
def no_reading(monkeypatch):
    """Make every reader fail."""

    def fail():
        for kind in ("coco", "yolo", "voc", "dota"):
            monkeypatch.setitem(
                open_catalog.__globals__["_READERS"], kind, lambda *_: pytest.fail("read again")
            )

    return fail


@pytest.mark.parametrize("task", TASKS)
def test_a_store_gives_back_what_was_read_without_reading(tmp_path, task, no_reading):
    root = synthetic.write_coco(tmp_path / "scenes", splits={"train": 3}, size=64, seed=2, task=task)
    plain = open_catalog(root, task=task)
    same(plain, open_catalog(root, task=task, label_store=tmp_path / "store"))
    no_reading()
    same(plain, open_catalog(root, task=task, label_store=tmp_path / "store"))


@pytest.mark.parametrize("kind", ["coco", "yolo", "voc", "dota"])
def test_every_format_is_kept(tmp_path, kind, no_reading):
    root = getattr(synthetic, f"write_{kind}")(tmp_path / "scenes", splits={"train": 3}, size=64)
    task = "obb" if kind == "dota" else "detect"
    plain = open_catalog(root, "train", task)
    open_catalog(root, "train", task, label_store=tmp_path / "store")
    no_reading()
    same(plain, open_catalog(root, "train", task, label_store=tmp_path / "store"))


def rewrite(path):
    path.write_text(path.read_text() + "0 0.5 0.5 0.25 0.125\n")


@pytest.mark.parametrize(
    "change",
    [
        lambda root: rewrite(next((root / "labels").rglob("*.txt"))),
        lambda root: os.utime(next((root / "images").rglob("*.png")), ns=(1, 1)),
        lambda root: next((root / "labels").rglob("*.txt")).unlink(),
        lambda root: next((root / "images").rglob("*.png")).unlink(),
        lambda root: (root / "data.yaml").write_text((root / "data.yaml").read_text() + "\n"),
    ],
    ids=["label", "picture", "label gone", "picture gone", "classes"],
)
def test_a_change_is_seen(tmp_path, change, no_reading):
    root = synthetic.write_yolo(tmp_path / "scenes", splits={"train": 3}, size=64)
    open_catalog(root, label_store=tmp_path / "store")
    change(root)
    same(open_catalog(root), open_catalog(root, label_store=tmp_path / "store"))
    assert len(list((tmp_path / "store").iterdir())) == 2


def test_content_counts_where_size_and_time_stay(tmp_path):
    root = synthetic.write_coco(tmp_path / "scenes", splits={"train": 3}, size=64)
    file = root / "annotations" / "instances_train.json"
    open_catalog(root, label_store=tmp_path / "store")
    state, text = file.stat(), file.read_text()
    name = open_catalog(root).class_names[0]
    file.write_text(text.replace(f'"{name}"', f'"{name[::-1]}"'))
    os.utime(file, ns=(state.st_atime_ns, state.st_mtime_ns))
    assert file.stat().st_size == state.st_size
    assert open_catalog(root, label_store=tmp_path / "store").class_names[0] == name[::-1]


def test_options_and_the_readers_code_are_part_of_the_key(tmp_path, monkeypatch):
    root = synthetic.write_coco(tmp_path / "scenes", splits={"train": 3}, size=64, task="pose")
    store = tmp_path / "store"
    open_catalog(root, task="pose", label_store=store)
    moved = open_catalog(root, task="pose", label_store=store, keypoint_offset=0.0)
    same(moved, open_catalog(root, task="pose", keypoint_offset=0.0))
    assert len(list(store.iterdir())) == 2
    monkeypatch.setattr("lucid_data.label_store._code", lambda: "another")
    open_catalog(root, task="pose", label_store=store)
    assert len(list(store.iterdir())) == 3


def test_outdated_stores_go_a_day_later_and_others_stay(tmp_path):
    root, store = synthetic.write_coco(tmp_path / "data", splits={"train": 2}, size=64), tmp_path / "store"
    kept = {}
    for options in ({}, {"exif": True}):
        before = set(store.glob("*"))
        open_catalog(root, label_store=store, **options)
        (kept[bool(options)],) = set(store.glob("*")) - before
    file = next((root / "annotations").iterdir())
    for age in (0, 2 * 24 * 3600):
        os.utime(kept[False], (time.time() - age,) * 2)
        file.write_text(file.read_text() + " ")
        open_catalog(root, label_store=store)
        assert kept[False].is_dir() == (age == 0)
    os.utime(kept[True], (0, 0))
    file.write_text(file.read_text() + " ")
    open_catalog(root, label_store=store)
    assert kept[True].is_dir()


def test_pictures_outside_the_data_set_are_not_kept(tmp_path, picture):
    outside = picture(tmp_path / "elsewhere" / "p.png", 40, 60)
    root = tmp_path / "scenes"
    root.mkdir()
    (root / "train.txt").write_text(f"{outside}\n")
    (root / "data.yaml").write_text("train: train.txt\nnames: [a]\n")
    for _ in range(2):
        assert len(open_catalog(root, label_store=tmp_path / "store")) == 1
    assert not (tmp_path / "store").exists()


def test_labels_are_mapped_and_pickled_as_their_place(tmp_path):
    root = synthetic.write_coco(tmp_path / "scenes", splits={"train": 40}, size=32)
    plain = open_catalog(root)
    catalog = open_catalog(root, label_store=tmp_path / "store")
    assert isinstance(catalog.records.boxes, np.memmap)
    assert not isinstance(plain.records.boxes, np.memmap)
    assert len(pickle.dumps(catalog.records)) < 400 < len(pickle.dumps(plain.records))
    same(plain, pickle.loads(pickle.dumps(catalog)))


def test_a_subset_of_mapped_labels_is_pickled_as_itself(tmp_path):
    root = synthetic.write_coco(tmp_path / "scenes", splits={"train": 4}, size=64)
    part = open_catalog(root, label_store=tmp_path / "store").subset([2])
    same(open_catalog(root).subset([2]), pickle.loads(pickle.dumps(part)))


def test_a_damaged_store_names_itself_and_the_remedy(tmp_path):
    root = synthetic.write_coco(tmp_path / "scenes", splits={"train": 2}, size=64)
    open_catalog(root, label_store=tmp_path / "store")
    (place,) = (tmp_path / "store").iterdir()
    (place / "boxes.npy").write_bytes(b"")
    with pytest.raises(OSError, match=rf"{place.name} cannot be read .*; remove it"):
        open_catalog(root, label_store=tmp_path / "store")


def shortened(label):
    lines = label.read_text().splitlines(keepends=True)
    label.write_text("".join(lines[1:]))


@pytest.mark.parametrize("linked", ["labels", "labels/train"])
def test_labels_behind_a_link_are_watched(tmp_path, linked):
    root = synthetic.write_yolo(tmp_path / "scenes", splits={"train": 3}, size=64)
    (tmp_path / "elsewhere").mkdir()
    moved = (root / linked).rename(tmp_path / "elsewhere" / "labels")
    (root / linked).symlink_to(moved)
    open_catalog(root, label_store=tmp_path / "store")
    shortened(next((tmp_path / "elsewhere").rglob("*.txt")))
    same(open_catalog(root), open_catalog(root, label_store=tmp_path / "store"))


def test_a_list_outside_the_data_set_is_read_every_time(tmp_path):
    root = synthetic.write_yolo(tmp_path / "scenes", splits={"train": 3}, size=64)
    listing = tmp_path / "lists" / "train.txt"
    listing.parent.mkdir()
    pictures = sorted((root / "images" / "train").iterdir())
    listing.write_text("".join(f"{picture}\n" for picture in pictures))
    text = (root / "data.yaml").read_text().replace("images/train", str(listing))
    (root / "data.yaml").write_text(text)
    assert len(open_catalog(root, label_store=tmp_path / "store")) == 3
    listing.write_text(f"{pictures[0]}\n")
    assert len(open_catalog(root, label_store=tmp_path / "store")) == 1


def test_labels_beside_the_data_sets_own_folder_are_read_every_time(tmp_path):
    root = synthetic.write_yolo(tmp_path / "scenes", splits={"train": 3}, size=64)
    (root / "data.yaml").rename(root / "images" / "data.yaml")
    text = (root / "images" / "data.yaml").read_text().replace("images/train", "train")
    (root / "images" / "data.yaml").write_text(text)
    before = open_catalog(root / "images", label_store=tmp_path / "store")
    shortened(next((root / "labels").rglob("*.txt")))
    after = open_catalog(root / "images", label_store=tmp_path / "store")
    assert len(after.records.labels) == len(before.records.labels) - 1


def test_a_store_inside_the_data_set_is_refused_and_a_relative_one_survives_a_change_of_folder(
    tmp_path, monkeypatch
):
    root = synthetic.write_coco(tmp_path / "scenes", splits={"train": 3}, size=64)
    with pytest.raises(ValueError, match="lies inside the data set"):
        open_catalog(root, label_store=root / "store")
    monkeypatch.chdir(tmp_path)
    catalog = open_catalog(root, label_store="store")
    text = pickle.dumps(catalog)
    monkeypatch.chdir(root)
    same(open_catalog(root), pickle.loads(text))
