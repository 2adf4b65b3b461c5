"""Outlines cut to windows: Sutherland and Hodgman (CACM 17(1), 1974) for all rings of a sample at once."""

from __future__ import annotations

import numpy as np
import numpy.typing as npt
import torch
from torch import Tensor

from lucid_data.targets import Outline

Points = npt.NDArray[np.float64]
Ints = npt.NDArray[np.int64]


def clip_outlines(polygons: tuple[Outline, ...], windows: Tensor) -> tuple[Outline, ...]:
    """Return N outlines cut to ``windows`` (4,) or (N, 4), x1 y1 x2 y2; what lies outside wholly is dropped.

    Cutting keeps the pixels inside exactly as they were, where clamping points would bend edges across corners. A ring
    that leaves the window and comes back stays one ring, closed along the border by edges that even-odd cancels.

    >>> ring = torch.tensor([[0.0, 0.0], [4.0, 0.0], [4.0, 4.0], [0.0, 4.0]])
    >>> clip_outlines(((ring,),), torch.tensor([2.0, 1.0, 9.0, 9.0]))[0][0].tolist()
    [[2.0, 4.0], [2.0, 1.0], [4.0, 1.0], [4.0, 4.0]]
    """
    rings = [ring for outline in polygons for ring in outline]
    if not rings:
        return polygons
    owner = np.repeat(np.arange(len(polygons)), [len(outline) for outline in polygons])
    limits = windows.double().numpy()
    limits = np.broadcast_to(limits, (len(polygons), 4))[owner]
    points, counts = torch.cat(rings).double().numpy(), np.array([len(ring) for ring in rings])
    low, high = _extent(points, counts)
    over = np.asarray((low < limits[:, :2]) | (high > limits[:, 2:]), np.bool_)
    crossing = over[:, 0] | over[:, 1]
    if not crossing.any():
        return polygons
    chosen = np.flatnonzero(crossing)
    cut, left = _cut(points[np.repeat(crossing, counts)], counts[chosen], limits[chosen])
    parts = iter(torch.split(torch.from_numpy(cut).float(), left.tolist()))
    crosses = [bool(value) for value in crossing]
    final = [next(parts) if cross else ring for ring, cross in zip(rings, crosses, strict=True)]
    out: list[list[Tensor]] = [[] for _ in polygons]
    for instance, ring in zip(owner.tolist(), final, strict=True):
        if ring.shape[0] >= 3:
            out[instance].append(ring)
    return tuple(tuple(outline) for outline in out)


def outline_boxes(polygons: tuple[Outline, ...], boxes: Tensor) -> Tensor:
    """Return (N, 4) float32 envelopes of the outlines; ``boxes`` (N, 4) where there is none."""
    rings = [ring for outline in polygons for ring in outline]
    if not rings:
        return boxes
    owner = np.repeat(np.arange(len(polygons)), [len(outline) for outline in polygons])
    low, high = _extent(torch.cat(rings).numpy(), np.array([len(ring) for ring in rings]))
    first = np.flatnonzero(np.diff(owner, prepend=-1))
    out = boxes.clone()
    envelopes = np.concatenate([np.minimum.reduceat(low, first), np.maximum.reduceat(high, first)], 1)
    out[torch.from_numpy(owner[first])] = torch.from_numpy(envelopes).float()
    return out


def _extent(points: npt.NDArray[np.floating], counts: Ints) -> tuple[Points, Points]:
    starts = np.cumsum(counts) - counts
    return np.minimum.reduceat(points, starts), np.maximum.reduceat(points, starts)


def _cut(points: Points, counts: Ints, windows: Points) -> tuple[Points, Ints]:
    """Return the points of rings cut to one window each, and how many each ring has left (0: nothing)."""
    for side in range(4):
        axis, sign = side % 2, 1.0 if side < 2 else -1.0
        number = np.repeat(np.arange(len(counts)), counts)
        if not len(number):
            break
        level = windows[number, side]
        depth = sign * (points[:, axis] - level)
        ends, starts = np.cumsum(counts), np.cumsum(counts) - counts
        after = np.arange(1, len(points) + 1)
        # a ring that is used up has no last point
        used = counts > 0
        after[ends[used] - 1] = starts[used]
        inside, following = depth >= 0, depth[after] >= 0
        crosses = inside != following
        share = np.divide(depth, depth - depth[after], out=np.zeros_like(depth), where=crosses)
        met = points + share[:, None] * (points[after] - points)
        met[:, axis] = level
        # per edge: where it meets the side, then its end if that is inside
        emitted = np.stack([met, points[after]], 1)[np.stack([crosses, following], 1)]
        counts = np.bincount(number, crosses.astype(np.int64) + following, len(counts)).astype(np.int64)
        points = emitted
    number = np.repeat(np.arange(len(counts)), counts)
    # a ring pressed flat against the border encloses nothing
    keep = counts >= 3
    if len(points):
        low, high = np.full((len(counts), 2), np.inf), np.full((len(counts), 2), -np.inf)
        np.minimum.at(low, number, points)
        np.maximum.at(high, number, points)
        keep &= (high - low > 0).all(1)
    return points[keep[number]], np.where(keep, counts, 0)


def outline_areas(polygons: tuple[Outline, ...]) -> Tensor:
    """Return (N,) float64 sums of the rings' areas (shoelace; a slit adds nothing), 0 without a ring.

    >>> outline_areas(((torch.tensor([[0.0, 0.0], [4.0, 0.0], [0.0, 4.0]]),), ()))
    tensor([8., 0.], dtype=torch.float64)
    """
    rings = [ring for outline in polygons for ring in outline]
    if not rings:
        return torch.zeros(len(polygons), dtype=torch.float64)
    owner = np.repeat(np.arange(len(polygons)), [len(outline) for outline in polygons])
    counts = np.array([len(ring) for ring in rings])
    points = torch.cat(rings).double().numpy()
    after = np.arange(1, len(points) + 1)
    after[np.cumsum(counts) - 1] = np.cumsum(counts) - counts
    x, y = points.T
    twice = np.add.reduceat(x * y[after] - x[after] * y, np.cumsum(counts) - counts)
    return torch.from_numpy(np.bincount(owner, np.abs(twice) / 2, len(polygons)))
