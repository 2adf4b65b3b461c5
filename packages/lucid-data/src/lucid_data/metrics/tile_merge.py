"""Predictions on tiles put together into predictions on whole images.

Two ways. ``cores``: neighbouring windows share their overlap at its middle, and a detection counts when its centre lies
in the core of the tile that made it; nothing is compared. ``nms``: everything is kept and suppressed class by class.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal, get_args

import numpy as np
import numpy.typing as npt
import torch
from torch import Tensor

from lucid_geometry import nms, rotated_nms

MergeRule = Literal["cores", "nms"]


@dataclass(frozen=True, eq=False)
class MergedImage:
    """The predictions on one whole image, best first: boxes (N, 4) or (N, 5), scores (N,), labels (N,)."""

    source: str
    boxes: Tensor
    scores: Tensor
    labels: Tensor


def tile_cores(windows: npt.ArrayLike) -> npt.NDArray[np.float64]:
    """Return (T, 4) x1 y1 x2 y2 cores of the ``windows`` (T, 4) of one image, infinite at its border.

    Low bounds belong to a core, high ones to the next. Raises ValueError for windows of an axis that start together
    and end apart.

    >>> tile_cores([[0, 0, 1024, 9], [824, 0, 1848, 9], [1476, 0, 2500, 9]])[:, 0].tolist()
    [-inf, 924.0, 1662.0]
    """
    rows = np.asarray(windows, np.int64).reshape(-1, 4)
    out = np.zeros(rows.shape, np.float64)
    for axis in (0, 1):
        spans = np.unique(rows[:, [axis, axis + 2]], axis=0)
        starts, ends = spans[:, 0], spans[:, 1]
        if len(np.unique(starts)) != len(starts):
            twice = int(starts[:-1][np.diff(starts) == 0][0])
            raise ValueError(
                f"windows that start at {twice} end at different places; they are of different tilings"
            )
        borders = (starts[1:] + ends[:-1]) / 2
        at = np.searchsorted(starts, rows[:, axis])
        out[:, axis] = np.concatenate([[-np.inf], borders])[at]
        out[:, axis + 2] = np.concatenate([borders, [np.inf]])[at]
    return out


def merge_tiles(
    predictions: Sequence[tuple[Tensor, Tensor, Tensor]],
    windows: npt.ArrayLike,
    sources: Sequence[str],
    rule: str = "cores",
    *,
    iou_threshold: float = 0.2,
    scales: npt.ArrayLike | None = None,
) -> list[MergedImage]:
    """Return the predictions per source image, in its own pixels and in the order in which the sources first appear.

    Args:
        predictions: per tile boxes (N, 4) or rotated boxes (N, 5) in tile pixels, scores (N,), labels (N,).
        windows: (T, 4) each tile's x1 y1 x2 y2 in its source, as that was resized.
        sources: each tile's source image.
        rule: ``cores`` or ``nms``.
        iou_threshold: of suppression.
        scales: (T,) by what each tile's source was resized; None is 1.

    Raises ValueError for counts that differ, an unknown rule, ``cores`` of one image at several scales, and as
    ``tile_cores``.

    >>> tile = (torch.tensor([[4.0, 4.0, 2.0, 1.0, 0.0]]), torch.ones(1), torch.tensor([0]))
    >>> merge_tiles([tile], [[8, 0, 16, 8]], ["a"])[0].boxes[0, :2].tolist()
    [12.0, 4.0]
    """
    where = np.asarray(windows, np.int64).reshape(-1, 4)
    factors = np.ones(len(where)) if scales is None else np.asarray(scales, np.float64).reshape(-1)
    if not len(predictions) == len(where) == len(sources) == len(factors):
        raise ValueError(
            f"{len(predictions)} tiles of predictions, {len(where)} windows, {len(sources)} sources, "
            f"{len(factors)} scales"
        )
    if rule not in get_args(MergeRule):
        raise ValueError(f"rule must be one of {', '.join(get_args(MergeRule))}, got {rule!r}")
    tiles: dict[str, list[int]] = {}
    for at, source in enumerate(sources):
        tiles.setdefault(source, []).append(at)
    return [
        _merge_one(source, [predictions[i] for i in mine], where[mine], factors[mine], rule, iou_threshold)
        for source, mine in tiles.items()
    ]


def _merge_one(
    source: str,
    predictions: Sequence[tuple[Tensor, Tensor, Tensor]],
    windows: npt.NDArray[np.int64],
    scales: npt.NDArray[np.float64],
    rule: str,
    iou_threshold: float,
) -> MergedImage:
    moved = [_moved(boxes, window) for (boxes, _, _), window in zip(predictions, windows, strict=True)]
    boxes = torch.cat([_resized(b, float(s)) for b, s in zip(moved, scales, strict=True)])
    values = torch.cat([scores for _, scores, _ in predictions])
    kinds = torch.cat([labels for _, _, labels in predictions])
    if rule == "cores":
        if len(set(scales.tolist())) > 1:
            raise ValueError(
                f"{source} was cut at several scales, which have no common cores; merge by 'nms'"
            )
        keep = torch.cat([_inside(b, core) for b, core in zip(moved, tile_cores(windows), strict=True)])
        boxes, values, kinds = boxes[keep], values[keep], kinds[keep]
        order = torch.argsort(values, descending=True, stable=True)
    else:
        suppress = rotated_nms if boxes.shape[1] == 5 else nms
        order = suppress(boxes, values, iou_threshold, labels=kinds)
    return MergedImage(source, boxes[order], values[order], kinds[order])


def _moved(boxes: Tensor, window: npt.NDArray[np.int64]) -> Tensor:
    x, y = (float(v) for v in window[:2])
    shift = (x, y, 0.0, 0.0, 0.0) if boxes.shape[1] == 5 else (x, y, x, y)
    return boxes + boxes.new_tensor(shift)


def _resized(boxes: Tensor, scale: float) -> Tensor:
    return boxes if scale == 1 else torch.cat([boxes[:, :4] / scale, boxes[:, 4:]], 1)


def _inside(boxes: Tensor, core: npt.NDArray[np.float64]) -> Tensor:
    centre = boxes[:, :2] if boxes.shape[1] == 5 else (boxes[:, :2] + boxes[:, 2:]) / 2
    low, high = (torch.tensor(part, dtype=torch.float64) for part in (core[:2], core[2:]))
    return ((centre.double() >= low) & (centre.double() < high)).all(1)
