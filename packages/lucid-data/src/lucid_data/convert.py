"""One data set in, the same data set in another format out, and a report of what that format cannot hold."""

from __future__ import annotations

import os
import shutil
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Literal, get_args

import numpy as np
from PIL import Image

from lucid_data.catalog import Catalog, open_catalog
from lucid_data.conversion_losses import coco_losses, records_losses
from lucid_data.formats.coco_json import json_text, load_document
from lucid_data.formats.write_text import dataset_yaml, dota_rows, yolo_rows
from lucid_data.layout import available_splits
from lucid_data.source import SPLIT_SPELLINGS, WHOLE, Layout
from lucid_data.tasks import as_task
from lucid_data.whole import Observer, nothing, refuse_inside, whole_folder

Format = Literal["coco", "yolo", "dota"]
Pictures = Literal["copy", "link", "skip"]

# what the reader of each format does with orientation tags; pictures must follow suit
_UPRIGHT: dict[str, bool] = {"coco": False, "yolo": True, "dota": False}


@dataclass(frozen=True)
class Conversion:
    """What was written.

    Attributes:
        target: the new data set's folder.
        images, instances: counts by split.
        lost: what the target format cannot hold or the source did not state well, by reason.
    """

    target: Path
    images: dict[str, int]
    instances: dict[str, int]
    lost: dict[str, int]


def convert(
    source: str | Path,
    target: str | Path,
    to: str,
    task: str = "detect",
    *,
    splits: Sequence[str] | None = None,
    layout: Layout | None = None,
    pictures: str = "copy",
    dota_version: str | None = None,
    observer: Observer = nothing,
) -> Conversion:
    """Write the data set at ``source`` as ``to`` (``coco``, ``yolo`` or ``dota``) into the empty folder ``target``.

    Args:
        source: anything ``open_catalog`` opens.
        target: must be empty or absent; the source is never changed.
        to: the format. COCO to COCO copies the annotation files byte for byte.
        task: which labels are carried; DOTA holds oriented boxes, or upright ones as quadrilaterals.
        splits: default all there are.
        layout: as for ``open_catalog``.
        pictures: ``copy``, ``link`` (symbolic) or ``skip``.
        dota_version: as for ``open_catalog``.
        observer: is told (pictures done, pictures in all).

    The target appears when it is complete. Raises ValueError for unknown words or a task the format lacks,
    FileExistsError for a target with content, and what ``open_catalog`` raises.

    >>> done = convert("scenes", "scenes-yolo", to="yolo")
    >>> done.images, done.lost
    ({'train': 4, 'val': 2}, {'original category id': 12})
    """
    kind = as_task(task)
    if to not in get_args(Format):
        raise ValueError(f"unknown format {to!r}; choose one of {', '.join(get_args(Format))}")
    if pictures not in get_args(Pictures):
        raise ValueError(f"pictures must be one of {', '.join(get_args(Pictures))}, got {pictures!r}")
    if to == "dota" and kind not in ("detect", "obb"):
        raise ValueError(f"DOTA text holds boxes only; task {task!r} needs coco or yolo")
    chosen = tuple(splits) if splits is not None else _default_splits(source, kind, layout)
    catalogs = {
        split: open_catalog(source, split, kind, layout=layout, min_side=1e-3, dota_version=dota_version)
        for split in chosen
    }
    refuse_inside(
        target, [f for catalog in catalogs.values() for f in catalog.source.folders - {catalog.root}]
    )
    lost: Counter[str] = Counter()
    with whole_folder(target) as folder:
        progress = _Progress(observer, sum(map(len, catalogs.values())))
        for split, catalog in catalogs.items():
            _write_split(catalog, folder, _written_name(split), to, pictures, lost, progress)
        written = {_written_name(split): catalog for split, catalog in catalogs.items()}
        if to == "yolo":
            _write_dataset_file(folder, list(written), next(iter(catalogs.values())))
    return Conversion(
        Path(target),
        {name: len(catalog) for name, catalog in written.items()},
        {name: _held(catalog, to) for name, catalog in written.items()},
        {reason: n for reason, n in lost.items() if n},
    )


def _held(catalog: Catalog, to: str) -> int:
    """Return how many instances are written: rows of masks have no place for one without an outline."""
    needs_outline = to == "yolo" and catalog.task == "segment"
    return int(catalog.records.mask_ok.sum()) if needs_outline else len(catalog.records.labels)


def _written_name(split: str) -> str:
    return "train" if split == WHOLE else split


@dataclass
class _Progress:
    observer: Observer
    total: int
    done: int = 0

    def step(self) -> None:
        self.done += 1
        self.observer(self.done, self.total)


def _write_split(
    catalog: Catalog, folder: Path, name: str, to: str, pictures: str, lost: Counter[str], progress: _Progress
) -> None:
    if not (to == "coco" and catalog.layout == "coco"):
        # rows of masks have no box to keep: what has no outline is counted as lost, once
        masks = to == "yolo" and catalog.task == "segment"
        lost.update(
            {why: n for why, n in catalog.dropped.items() if not (masks and why.endswith("(box kept)"))}
        )
        lost.update(records_losses(catalog, to))
        if catalog.layout == "coco":
            lost.update(coco_losses(load_document(catalog.source.labels), catalog.task, to))
    places = _place_pictures(catalog, folder / _picture_folder(to, name), to, pictures, lost, progress)
    write = {"coco": _write_coco, "yolo": _write_yolo, "dota": _write_dota}[to]
    write(catalog, folder, name, places)


def _default_splits(source: str | Path, task: str, layout: Layout | None) -> tuple[str, ...]:
    there = available_splits(source, task, layout=layout)
    usual = tuple(split for split in there if split in SPLIT_SPELLINGS)
    return usual or there[:1] or ("train",)


def _picture_folder(to: str, split: str) -> str:
    return {"coco": split, "yolo": f"images/{split}", "dota": f"{split}/images"}[to]


def _place_pictures(
    catalog: Catalog, folder: Path, to: str, how: str, lost: Counter[str], progress: _Progress
) -> list[str]:
    """Bring every picture into ``folder`` and return its name there, in index order.

    A picture whose orientation tag the two formats read differently is rewritten without it, as its labels see it.
    """
    verbatim = to == "coco" and catalog.layout == "coco"
    taken: set[str] = set()
    names = []
    for index in range(len(catalog)):
        source = catalog.image_path(index)
        stated = catalog.records.file_names[index]
        name = _inside(stated) if verbatim else _unused(_short(stated, catalog), taken)
        turned = False
        if how != "skip" and not source.is_file():
            lost["picture that does not exist"] += 1
        elif how != "skip":
            turned = catalog.exif != _UPRIGHT[to] and _has_orientation(source)
            if turned:
                name = _unused(str(Path(name).with_suffix(".png")), taken)
                lost["picture rewritten without its orientation tag"] += 1
            _place(catalog, index, source, folder / name, how, turned)
        taken.add(str(Path(name).with_suffix("")))
        names.append(name)
        progress.step()
    return names


def _place(catalog: Catalog, index: int, source: Path, place: Path, how: str, turned: bool) -> None:
    place.parent.mkdir(parents=True, exist_ok=True)
    if turned:
        Image.fromarray(catalog.image(index).permute(1, 2, 0).numpy()).save(place)
    elif how == "link":
        os.symlink(source.resolve(), place)
    else:
        shutil.copyfile(source, place)


def _has_orientation(path: Path) -> bool:
    with Image.open(path) as picture:
        return int(picture.getexif().get(0x0112, 1) or 1) != 1


def _inside(name: str) -> str:
    if Path(name).is_absolute() or ".." in Path(name).parts:
        raise ValueError(
            f"file_name {name!r} leads out of the picture folder; correct it or convert without COCO"
        )
    return name


def _short(name: str, catalog: Catalog) -> str:
    """Return the picture's path within its split: leading folders that only name the split are left out."""
    parts = [p for p in Path(name).parts if p not in ("/", "..")]
    skipped = {"images", "JPEGImages", catalog.split, *SPLIT_SPELLINGS.get(catalog.split, ())}
    while len(parts) > 1 and parts[0] in skipped:
        parts = parts[1:]
    return str(Path(*(parts if not Path(name).is_absolute() else parts[-1:])))


def _unused(name: str, taken: set[str]) -> str:
    """Return ``name``, or one like it, whose label file no other picture has."""
    path = Path(name)
    if str(path.with_suffix("")) not in taken:
        return name
    stem, number = f"{path.stem}_{path.suffix[1:]}", 2
    while str(path.with_name(stem).with_suffix("")) in taken:
        stem, number = f"{path.stem}_{number}", number + 1
    return str(path.with_name(stem + path.suffix))


def _write_coco(catalog: Catalog, folder: Path, split: str, names: list[str]) -> None:
    prefix = "person_keypoints" if catalog.task == "pose" else "instances"
    path = folder / "annotations" / f"{prefix}_{split}.json"
    path.parent.mkdir(parents=True, exist_ok=True)
    if catalog.layout == "coco":
        shutil.copyfile(catalog.source.labels, path)
        return
    document = catalog.to_coco()
    for image, name in zip(document["images"], names, strict=True):
        image["file_name"] = Path(name).as_posix()
    path.write_text(json_text(document), encoding="utf-8")


def _write_yolo(catalog: Catalog, folder: Path, split: str, names: list[str]) -> None:
    for index, name in enumerate(names):
        targets = catalog.targets(index)
        if catalog.task == "segment":
            targets = targets.filter(targets.mask_ok)
        _write_rows(folder / "labels" / split / name, yolo_rows(targets, _size(catalog, index), catalog.task))


def _write_dota(catalog: Catalog, folder: Path, split: str, names: list[str]) -> None:
    for index, name in enumerate(names):
        rows = dota_rows(catalog.targets(index), catalog.class_names)
        _write_rows(folder / split / "labelTxt" / Path(name).name, rows)


def _write_rows(place: Path, rows: list[str]) -> None:
    path = place.with_suffix(".txt")
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text("".join(f"{row}\n" for row in rows), encoding="utf-8")


def _write_dataset_file(folder: Path, splits: list[str], catalog: Catalog) -> None:
    points = catalog.records.keypoints.shape[1] if catalog.task == "pose" else 0
    text = dataset_yaml(
        {split: f"images/{split}" for split in splits},
        catalog.class_names,
        points,
        catalog.keypoint_names,
        catalog.keypoint_flip_pairs,
    )
    (folder / "data.yaml").write_text(text, encoding="utf-8")


def _size(catalog: Catalog, index: int) -> tuple[int, int]:
    height, width = np.asarray(catalog.sizes[index]).tolist()
    return height, width
