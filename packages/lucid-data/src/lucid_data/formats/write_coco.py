"""Targets to COCO: annotations and whole documents (cocodataset.org/#format-data)."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import numpy.typing as npt
from pycocotools import mask as rle
from torch import Tensor

from lucid_data.targets import Outline, Targets
from lucid_geometry import rboxes_to_polygons


def coco_annotations(
    targets: Targets,
    size: tuple[int, int],
    image_id: int | str,
    category_ids: Sequence[int],
    first_id: int,
    keypoint_offset: float = 0.5,
) -> list[dict[str, Any]]:
    """Return the annotations of one picture of ``size`` (height, width), ids from ``first_id``.

    ``area`` is the mask's where there is an outline, else the one the targets state. Rotated boxes become rings of
    four points. Labelled keypoints move back by ``keypoint_offset`` to pixel indices. ``difficult`` is written as an
    extra field where an instance is flagged.

    >>> import torch
    >>> row = Targets.of(torch.tensor([[1.0, 1.0, 3.0, 2.5]]), torch.tensor([0]))
    >>> coco_annotations(row, (4, 4), 7, [5], 1)[0]["bbox"]
    [1.0, 1.0, 2.0, 1.5]
    """
    rows: list[dict[str, Any]] = []
    flags, areas = targets.difficult.tolist(), shortest(targets.area)
    corners, boxes = shortest(targets.boxes), targets.boxes.double()
    sides = shortest((boxes[:, 2:] - boxes[:, :2]).float())
    quads = shortest(rboxes_to_polygons(targets.rboxes.double()).flatten(1)) if len(targets.rboxes) else None
    for i, label in enumerate(targets.labels.tolist()):
        row: dict[str, Any] = {
            "id": first_id + i,
            "image_id": image_id,
            "category_id": category_ids[label],
            "bbox": [*corners[i][:2], *sides[i]],
            "area": areas[i],
            "iscrowd": 0,
        }
        if targets.polygons and targets.mask_ok[i]:
            row["segmentation"] = [shortest(ring.flatten()) for ring in targets.polygons[i]]
            row["area"] = mask_area(targets.polygons[i], size)
        if quads is not None:
            row["segmentation"] = [quads[i]]
        if len(targets.keypoints):
            row |= _keypoints(targets.keypoints[i], keypoint_offset)
        if flags[i]:
            row["difficult"] = 1
        rows.append(row)
    return rows


def mask_area(rings: Outline, size: tuple[int, int]) -> float:
    """Return the pixels that the union of ``rings`` covers, by COCO's own fill."""
    flat = [ring.double().flatten().tolist() for ring in rings]
    return float(rle.area(rle.merge(rle.frPyObjects(flat, *size))))


def shortest(values: Tensor) -> Any:
    """Return nested lists of the shortest decimals that read back as the same float32 numbers.

    >>> import torch
    >>> shortest(torch.tensor([0.1, 2.0]))
    [0.1, 2.0]
    """
    array = values.float().numpy()
    texts: npt.NDArray[np.str_] = array.astype(np.str_)
    return texts.astype(np.float64).tolist()


def _keypoints(points: Tensor, offset: float) -> dict[str, Any]:
    moved = points.double().clone()
    moved[:, :2] -= offset * (moved[:, 2:] > 0)
    flat = shortest(moved.flatten())
    return {
        "keypoints": [int(v) if n % 3 == 2 else v for n, v in enumerate(flat)],
        "num_keypoints": int((moved[:, 2] > 0).sum()),
    }
