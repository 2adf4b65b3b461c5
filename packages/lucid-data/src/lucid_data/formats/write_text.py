"""Targets to the rows of text formats: YOLO for the four tasks, and DOTA."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import torch
import yaml
from torch import Tensor

from lucid_data.formats.trace import join_rings
from lucid_data.targets import Targets
from lucid_data.tasks import Task
from lucid_geometry import rboxes_to_polygons


def yolo_rows(targets: Targets, size: tuple[int, int], task: Task) -> list[str]:
    """Return one row per instance of a picture of ``size`` (height, width), coordinates in [0, 1] with six decimals.

    The format has no parts: an outline of several rings becomes one ring with slits of no width. Corners of oriented
    boxes outside the picture are cut to it, for the format cannot state them.

    >>> yolo_rows(Targets.of(torch.tensor([[25.0, 15.0, 75.0, 25.0]]), torch.tensor([1])), (40, 100), "detect")
    ['1 0.500000 0.500000 0.500000 0.250000']
    """
    return [
        " ".join([str(label), *(f"{v:.6f}" if v != int(v) or v > 2 else f"{v:g}" for v in values)])
        for label, values in zip(targets.labels.tolist(), _yolo_values(targets, size, task), strict=True)
    ]


def _yolo_values(targets: Targets, size: tuple[int, int], task: Task) -> list[list[float]]:
    if not len(targets):
        return []
    scale = torch.tensor([size[1], size[0]], dtype=torch.float64)
    boxes = targets.boxes.double().view(-1, 2, 2) / scale
    centred = torch.cat([boxes.sum(1) / 2, boxes[:, 1] - boxes[:, 0]], 1).tolist()
    match task:
        case "segment":
            rings = [torch.from_numpy(join_rings([r.double().numpy() for r in o])) for o in targets.polygons]
            return [(ring / scale).clamp(0, 1).flatten().tolist() for ring in rings]
        case "obb":
            quads = (rboxes_to_polygons(targets.rboxes.double()) / scale).clamp(0, 1)
            return [list(quad) for quad in quads.flatten(1).tolist()]
        case "pose":
            points = targets.keypoints.double().clone()
            points[..., :2] /= scale
            return [box + row for box, row in zip(centred, points.flatten(1).tolist(), strict=True)]
        case _:
            return [list(box) for box in centred]


def dataset_yaml(
    splits: Mapping[str, str],
    names: Sequence[str],
    keypoints: int = 0,
    keypoint_names: Sequence[str] = (),
    flip_pairs: Sequence[tuple[int, int]] = (),
) -> str:
    """Return the text of a YOLO dataset file whose root is the folder it lies in.

    >>> print(dataset_yaml({"train": "images/train"}, ["a"]))
    path: .
    train: images/train
    names:
      0: a
    <BLANKLINE>
    """
    content: dict[str, object] = {"path": ".", **splits, "names": dict(enumerate(names))}
    if keypoints:
        order = list(range(keypoints))
        for left, right in flip_pairs:
            order[left], order[right] = right, left
        content |= {"kpt_shape": [keypoints, 3], "flip_idx": order}
        if keypoint_names:
            content["kpt_names"] = list(keypoint_names)
    return yaml.safe_dump(content, sort_keys=False, allow_unicode=True)


def dota_rows(targets: Targets, names: Sequence[str]) -> list[str]:
    """Return one line per instance: corners with four decimals, hyphenated class, difficulty.

    Rotated boxes give their corners; without them the upright boxes do.

    >>> dota_rows(Targets.of(torch.tensor([[1.0, 1.0, 3.0, 2.0]]), torch.tensor([0])), ["storage tank"])
    ['1.0000 1.0000 3.0000 1.0000 3.0000 2.0000 1.0000 2.0000 storage-tank 0']
    """
    quads = _corners(targets).flatten(1).tolist()
    return [
        " ".join([*(f"{v:.4f}" for v in quad), "-".join(names[label].split()), str(int(difficult))])
        for quad, label, difficult in zip(
            quads, targets.labels.tolist(), targets.difficult.tolist(), strict=True
        )
    ]


def _corners(targets: Targets) -> Tensor:
    if len(targets.rboxes):
        return rboxes_to_polygons(targets.rboxes.double())
    return targets.boxes.double()[:, [0, 1, 2, 1, 2, 3, 0, 3]].view(-1, 4, 2)
