"""Objects cut from one sample along their outlines and pasted into another (Ghiasi et al., arXiv 2012.07177)."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Final

import numpy as np
import torch
from torch import Tensor

from lucid_data.randomness import Stream
from lucid_data.raster import Masks, fill_rings
from lucid_data.targets import Outline, Targets, derived
from lucid_data.transforms.rings import outline_areas

LEAST_AREA: Final = 64.0
MOST_PASTED: Final = 30
MOST_OVERLAP: Final = 0.3
MOST_COVERED: Final = 0.7
_CHANCE: Final = 0.5


def paste_candidates(source: Targets, side: int) -> list[int]:
    """Return the instances worth pasting: outlined, of 64 px^2 or more, at one border of the S canvas at most."""
    if not source.polygons:
        return []
    boxes = source.boxes
    borders = (boxes[:, :2] <= 0).sum(1) + (boxes[:, 2:] >= side).sum(1)
    good = source.mask_ok & (outline_areas(source.polygons) >= LEAST_AREA) & (borders <= 1)
    return [int(i) for i in good.nonzero()[:, 0]]


def sample_copy_paste(stream: Stream, candidates: Sequence[int]) -> tuple[int, ...]:
    """Return at most 30 of ``candidates``, each taken with probability 1/2, in random order."""
    taken = [index for index in candidates if stream.unit() < _CHANCE]
    for last in range(len(taken) - 1, 0, -1):
        other = stream.integer(last + 1)
        taken[last], taken[other] = taken[other], taken[last]
    return tuple(taken[:MOST_PASTED])


def copy_paste(
    image: Tensor, targets: Targets, source_image: Tensor, source: Targets, chosen: Sequence[int]
) -> tuple[Tensor, Targets]:
    """Return ``image`` (3, S, S) uint8 with the ``chosen`` instances of ``source`` pasted, and both's labels.

    In the order given, an instance is passed over where it would cover more than 0.3 of the box of any instance there
    or pasted before. The union of the masks is copied once, which gives the bytes of pasting one by one. Instances of
    which more than 0.7 is covered are removed; the others keep their box. Pasted instances come last, in their order.
    Neither input is changed.
    """
    pasted = _without_crowding(targets.boxes, source.boxes, chosen)
    if not pasted:
        return image, targets
    side = (image.shape[1], image.shape[2])
    union = np.zeros(side, np.bool_)
    for index in pasted:
        mask, top, left = _window_mask(source.polygons[index], source.boxes[index], side)
        union[top : top + mask.shape[0], left : left + mask.shape[1]] |= mask
    out = torch.where(torch.from_numpy(union), source_image, image)
    rows = torch.tensor(pasted)
    added = source.filter(torch.zeros(len(source), dtype=torch.bool).scatter_(0, rows, True))
    # filter keeps index order; the order given is that of the draws
    order = torch.argsort(torch.argsort(rows))
    added = derived(_reordered(added, order), crowd=torch.zeros(0, 4))
    return out, Targets.concat([targets.filter(_left(targets, source.boxes[rows], union)), added])


def _without_crowding(existing: Tensor, boxes: Tensor, chosen: Sequence[int]) -> list[int]:
    if not chosen:
        return []
    mine = boxes[torch.tensor(list(chosen))]
    blocked = (_covered(existing, mine) > MOST_OVERLAP).any(0).tolist()
    among = (_covered(mine, mine) > MOST_OVERLAP).tolist()
    accepted: list[int] = []
    # each decision depends on the ones before
    for at in range(len(chosen)):
        if not blocked[at] and not any(among[other][at] for other in accepted):
            accepted.append(at)
    return [chosen[at] for at in accepted]


def _covered(under: Tensor, over: Tensor) -> Tensor:
    """Return (N, M): the fraction of each box of ``under`` (N, 4) that each of ``over`` (M, 4) covers."""
    low = torch.maximum(under[:, None, :2], over[None, :, :2])
    high = torch.minimum(under[:, None, 2:], over[None, :, 2:])
    area = (under[:, 2:] - under[:, :2]).prod(1).clamp(min=1e-9)
    return (high - low).clamp(min=0).prod(2) / area[:, None]


def _left(targets: Targets, pasted: Tensor, union: Masks) -> Tensor:
    """Return (N,) bool: whether at least 0.3 of each instance can still be seen."""
    keep = torch.ones(len(targets), dtype=torch.bool)
    touched = (_covered(targets.boxes, pasted) > 0).any(1).nonzero()[:, 0].tolist()
    for index in touched:
        rings = targets.polygons[index] if targets.polygons else ()
        mask, top, left = _window_mask(rings, targets.boxes[index], union.shape)
        hidden = mask & union[top : top + mask.shape[0], left : left + mask.shape[1]]
        keep[index] = bool(hidden.sum() <= MOST_COVERED * mask.sum())
    return keep


def _window_mask(rings: Outline, box: Tensor, side: tuple[int, ...]) -> tuple[Masks, int, int]:
    """Return the mask of an outline (of its box without one) within its box's pixels, and their top and left."""
    x1, y1, x2, y2 = box.tolist()
    left, top = max(0, math.floor(x1)), max(0, math.floor(y1))
    right, bottom = min(side[1], math.ceil(x2)), min(side[0], math.ceil(y2))
    shift = np.array([left, top], np.float64)
    shape = (max(0, bottom - top), max(0, right - left))
    if not rings:
        return np.ones(shape, np.bool_), top, left
    return fill_rings([ring.double().numpy() - shift for ring in rings], *shape), top, left


def _reordered(targets: Targets, order: Tensor) -> Targets:
    return derived(
        targets,
        boxes=targets.boxes[order],
        labels=targets.labels[order],
        polygons=tuple(targets.polygons[i] for i in order.tolist()),
        difficult=targets.difficult[order],
        keypoints=targets.keypoints[order] if len(targets.keypoints) else targets.keypoints,
        mask_ok=targets.mask_ok[order],
        area=targets.area[order],
    )
