"""The doctor: every problem of a data set, with its place and its remedy; and what the data set holds."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import get_args

import numpy as np

from lucid_data.catalog import Catalog, open_catalog
from lucid_data.doctor.coco import check_coco, check_unlisted
from lucid_data.doctor.dota import check_dota
from lucid_data.doctor.findings import Finding, Findings
from lucid_data.doctor.pictures import examine_pictures
from lucid_data.doctor.voc import check_voc
from lucid_data.doctor.yolo import check_yolo
from lucid_data.images import IMAGE_SUFFIXES
from lucid_data.layout import Layout, Source, available_splits, coco_files, coco_folders, fitting_sources
from lucid_data.tasks import TASK_NEEDS, as_task


def check(
    path: str | Path,
    task: str = "detect",
    *,
    layout: Layout | None = None,
    decode: bool = True,
    dota_version: str | None = None,
) -> list[Finding]:
    """Return every problem of the data set at ``path``, errors first; nothing is changed.

    Args:
        path: a COCO, YOLO, Pascal VOC or DOTA tree, a COCO JSON or a YOLO dataset file.
        task: what the labels are for; the row kind of YOLO files depends on it.
        layout: ``coco``, ``yolo``, ``voc`` or ``dota``; None checks every format that fits.
        decode: read every picture's pixels, not only its header; finds cut-off files, takes longer.
        dota_version: the class list that DOTA labels must keep to; None takes the list that fits.

    A path that is not recognised is one finding of its own; FileNotFoundError when it does not exist.
    """
    needs = TASK_NEEDS[as_task(task)]
    found = Findings()
    root = Path(path)
    sources: list[Source] = []
    problems: list[str] = []
    for split in available_splits(root) or ("train",):
        try:
            sources += fitting_sources(
                root, split, layout=layout, keypoints=needs.keypoints, rboxes=needs.rboxes
            )
        except (FileNotFoundError, ValueError) as error:
            problems.append(str(error))
    if not sources:
        loose = [Source("coco", "all", root, coco_folders(file, "all"), file) for file in coco_files(root)]
        if loose:
            names = ", ".join(source.labels.name for source in loose)
            message = f"{len(loose)} annotation files, none named for a split: {names}"
            found.add("layout", "warning", root, "", message, "give the path of the one that is meant")
            sources = loose
        else:
            pictures = [p for p in sorted(root.rglob("*")) if p.suffix.lower() in IMAGE_SUFFIXES]
            examine_pictures(pictures, decode=decode, found=found)
            remedy = "see the layouts in the documentation, or say layout="
            found.add("layout", "error", root, "", problems[0], remedy)
            return found.all()
    kinds = {kind: [source for source in sources if source.layout == kind] for kind in get_args(Layout)}
    listed: set[Path] = set()
    for source in kinds["coco"]:
        listed |= check_coco(source.labels, source.images, needs, decode=decode, found=found)
    check_unlisted([folder for source in kinds["coco"] for folder in source.images], listed, found)
    if kinds["yolo"]:
        check_yolo(kinds["yolo"], needs, decode=decode, found=found)
    # a plain folder of XML beside per-split COCO files repeats them
    if kinds["voc"] and not kinds["coco"]:
        check_voc(kinds["voc"], decode=decode, found=found)
    if kinds["dota"]:
        check_dota(kinds["dota"], dota_version, decode=decode and not kinds["coco"], found=found)
    if not any(finding.severity == "error" for finding in found.all()):
        _check_opening(path, sources, task, dota_version, found)
    return found.all()


def _check_opening(
    path: str | Path, sources: list[Source], task: str, dota_version: str | None, found: Findings
) -> None:
    """Add what keeps a split from being opened for the task, where nothing said so already."""
    for source in sources:
        try:
            place = source.labels if source.labels.suffix == ".json" else path
            open_catalog(place, source.split, task, layout=source.layout, dota_version=dota_version)
        except (OSError, ValueError) as error:
            remedy = "correct the labels, or choose a task they are made for"
            found.add("cannot-open", "error", source.labels, source.split, str(error), remedy)


@dataclass(frozen=True)
class Stats:
    """What one split holds.

    Attributes:
        images, background: pictures, and those without instances.
        instances: kept ones; ``per_class`` by name.
        small, medium, large: by box area, split at 32^2 and 96^2 px.
        difficult, crowd: flagged instances and ignore regions.
        dropped: what the reader left out or put right, by reason.
    """

    images: int
    background: int
    instances: int
    per_class: dict[str, int]
    small: int
    medium: int
    large: int
    difficult: int
    crowd: int
    dropped: dict[str, int]


def stats(catalog: Catalog) -> Stats:
    """Return the counts of an open split; no picture is read."""
    records = catalog.records
    keep = ~catalog.too_small()
    owner = np.repeat(np.arange(len(records)), np.diff(records.starts))[keep]
    boxes = records.boxes[keep]
    area = (boxes[:, 2] - boxes[:, 0]) * (boxes[:, 3] - boxes[:, 1])
    per_class = np.bincount(records.labels[keep], minlength=catalog.num_classes).tolist()
    return Stats(
        images=len(records),
        background=len(records) - len(np.unique(owner)),
        instances=int(keep.sum()),
        per_class=dict(zip(catalog.class_names, per_class, strict=True)),
        small=int((area < 32**2).sum()),
        medium=int(((area >= 32**2) & (area < 96**2)).sum()),
        large=int((area >= 96**2).sum()),
        difficult=int(records.difficult[keep].sum()),
        crowd=len(records.crowd),
        dropped=catalog.dropped,
    )
