"""What a conversion leaves behind, counted by reason."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping
from typing import Any, Final

import numpy as np

from lucid_data.catalog import Catalog
from lucid_data.tasks import Task

_ANNOTATION_KEYS: Final = frozenset(
    ("id", "image_id", "category_id", "bbox", "area", "iscrowd", "segmentation", "keypoints", "num_keypoints")
)
_IMAGE_KEYS: Final = frozenset(("id", "file_name", "height", "width"))
_DOCUMENT_KEYS: Final = frozenset(("images", "annotations", "categories", "info"))


def coco_losses(document: Mapping[str, Any], task: Task, to: str) -> Counter[str]:
    """Return what a COCO ``document`` states that rows of text for ``task`` do not."""
    annotations = document["annotations"]
    lost: Counter[str] = Counter()
    for annotation in annotations:
        if annotation.get("iscrowd"):
            lost["crowd region"] += 1
            continue
        if task not in ("segment", "obb") and annotation.get("segmentation"):
            lost["outline (not part of the task)"] += 1
        if task != "pose" and annotation.get("keypoints"):
            lost["keypoints (not part of the task)"] += 1
        known = _ANNOTATION_KEYS | ({"difficult"} if to == "dota" else set())
        lost.update(f"annotation field {key!r}" for key in annotation.keys() - known if key != "difficult")
    for image in document["images"]:
        lost.update(f"image field {key!r}" for key in image.keys() - _IMAGE_KEYS)
    lost.update(f"document field {key!r}" for key in document.keys() - _DOCUMENT_KEYS if document[key])
    ids = sorted(int(c["id"]) for c in document["categories"])
    if ids != list(range(len(ids))):
        lost["original category id"] += len(ids)
    return lost


def records_losses(catalog: Catalog, to: str) -> Counter[str]:
    """Return what the packed labels hold and the format ``to`` does not."""
    records = catalog.records
    lost: Counter[str] = Counter()
    size = np.repeat(records.sizes, np.diff(records.starts), axis=0).astype(np.float32)[:, [1, 0]]
    over = ((records.boxes[:, :2] < 0) | (records.boxes[:, 2:] > size)).any(1)
    if len(records.rboxes):
        if to == "yolo":
            lost["oriented box over the border (corners cut)"] += int(over.sum())
    else:
        lost["box over the border (cut)"] += int(over.sum())
    if to == "yolo":
        lost["difficult flag"] += int(records.difficult.sum())
        if len(records.instance_rings):
            parts = np.diff(records.instance_rings)
            lost["outline of several parts (joined by a slit)"] += int((parts > 1).sum())
            if catalog.task == "segment":
                lost["instance without an outline"] += int((~records.mask_ok).sum())
    if to == "dota":
        lost["class name with spaces (hyphens written)"] += sum(" " in name for name in catalog.class_names)
    if to != "coco" and len(records.crowd) and catalog.layout != "coco":
        lost["crowd region"] += len(records.crowd)
    if isinstance(catalog.image_ids[0], str) and to != "coco":
        lost["image id"] += len(catalog)
    return lost
