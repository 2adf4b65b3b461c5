"""The doctor: every problem of a data set, with its place and its remedy; and what the data set holds."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

import numpy as np

from lucid_data.catalog import Catalog
from lucid_data.doctor.coco import check_coco, check_unlisted
from lucid_data.doctor.findings import Finding, Findings
from lucid_data.doctor.voc import check_voc
from lucid_data.doctor.yolo import check_yolo
from lucid_data.layout import Layout, Source, available_splits, find_source
from lucid_data.tasks import TASK_NEEDS, as_task


def check(
    path: str | Path, task: str = "detect", *, layout: Layout | None = None, decode: bool = True
) -> list[Finding]:
    """Return every problem of the data set at ``path``, errors first; nothing is changed.

    Args:
        path: a COCO, YOLO or Pascal VOC tree, a COCO JSON or a YOLO dataset file.
        task: what the labels are for; the row kind of YOLO files depends on it.
        layout: ``coco``, ``yolo`` or ``voc`` where the tree fits more than one.
        decode: read every picture's pixels, not only its header; finds cut-off files, takes longer.

    A path that is not recognised is one finding of its own; FileNotFoundError when it does not exist.
    """
    needs = TASK_NEEDS[as_task(task)]
    found = Findings()
    root = Path(path)
    sources: list[Source] = []
    problems: list[str] = []
    for split in available_splits(root) or ("train",):
        try:
            sources.append(find_source(root, split, layout=layout, keypoints=needs.keypoints))
        except (FileNotFoundError, ValueError) as error:
            problems.append(str(error))
    if not sources:
        remedy = "see the layouts in the documentation, or say layout="
        found.add("layout", "error", root, "", problems[0], remedy)
        return found.all()
    coco = [source for source in sources if source.layout == "coco"]
    yolo = [source for source in sources if source.layout == "yolo"]
    voc = [source for source in sources if source.layout == "voc"]
    listed: set[Path] = set()
    for source in coco:
        listed |= check_coco(source.labels, source.images, decode=decode, found=found)
    check_unlisted([folder for source in coco for folder in source.images], listed, found)
    if yolo:
        check_yolo(yolo, needs, decode=decode, found=found)
    # a plain folder of XML beside per-split COCO files repeats them
    if voc and not coco:
        check_voc(voc, decode=decode, found=found)
    return found.all()


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
