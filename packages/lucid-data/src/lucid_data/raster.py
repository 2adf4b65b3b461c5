"""Polygons to pixels: a pixel belongs to a ring when its centre does (even-odd), to an instance when to any ring."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import numpy.typing as npt

Masks = npt.NDArray[np.bool_]


def fill_ring(ring: npt.ArrayLike, height: int, width: int) -> Masks:
    """Return the (height, width) mask of pixel centres inside ``ring`` (P, 2), x y in the edge frame.

    Even-odd rule; a centre on a left or top edge is inside, on a right or bottom edge outside.

    >>> fill_ring([[1, 1], [3, 1], [3, 2], [1, 2]], 3, 4).astype(int).tolist()
    [[0, 0, 0, 0], [0, 1, 1, 0], [0, 0, 0, 0]]
    """
    return fill_rings([ring], height, width)


def fill_rings(rings: Sequence[npt.ArrayLike], height: int, width: int) -> Masks:
    """Return the (height, width) union of ``rings``; no rings give an empty mask."""
    mask: Masks = fill_outlines([rings], height, width)[0]
    return mask


def fill_outlines(outlines: Sequence[Sequence[npt.ArrayLike]], height: int, width: int) -> Masks:
    """Return (N, height, width) masks of N outlines, each the union of its rings; ``fill_ring`` states the rule.

    A scanline fill of all rings at once: every edge flips the parity of its row from the crossing on.

    >>> fill_outlines([[[[0, 0], [1, 0], [1, 1], [0, 1]]], []], 1, 1).ravel().tolist()
    [True, False]
    """
    masks = np.zeros((len(outlines), height, width), np.bool_)
    owner = np.array([i for i, rings in enumerate(outlines) for _ in rings], np.int64)
    rings = [np.asarray(ring, np.float64) for rings in outlines for ring in rings]
    if not rings or not height or not width:
        return masks
    inside = np.bitwise_xor.accumulate(_flips(rings, height, width), 2)[..., :width]
    first = np.flatnonzero(np.diff(owner, prepend=-1))
    masks[owner[first]] = np.bitwise_or.reduceat(inside, first) if len(first) < len(owner) else inside
    return masks


def _flips(rings: Sequence[npt.NDArray[np.float64]], height: int, width: int) -> npt.NDArray[np.uint8]:
    """Return (R, height, width + 1): 1 where an odd number of a ring's edges cross a row at that column."""
    counts = np.array([len(ring) for ring in rings])
    points = np.concatenate(rings)
    number = np.repeat(np.arange(len(rings)), counts)
    after = np.arange(1, len(points) + 1)
    after[np.cumsum(counts) - 1] = np.cumsum(counts) - counts
    x1, y1 = points.T
    x2, y2 = points[after].T
    swap = y1 > y2
    x1, x2 = np.where(swap, x2, x1), np.where(swap, x1, x2)
    y1, y2 = np.where(swap, y2, y1), np.where(swap, y1, y2)
    first = np.clip(np.ceil(y1 - 0.5), 0, height).astype(np.int64)
    rows = np.maximum(np.clip(np.ceil(y2 - 0.5), 0, height).astype(np.int64) - first, 0)
    edge = np.repeat(np.arange(len(points)), rows)
    row = first[edge] + np.arange(len(edge)) - np.repeat(np.cumsum(rows) - rows, rows)
    slope = np.divide(x2 - x1, y2 - y1, out=np.zeros_like(x1), where=y2 > y1)
    crossing = x1[edge] + (row + 0.5 - y1[edge]) * slope[edge]
    column = np.clip(np.ceil(crossing - 0.5), 0, width).astype(np.int64)
    cells, times = np.unique((number[edge] * height + row) * (width + 1) + column, return_counts=True)
    flips = np.zeros((len(rings), height, width + 1), np.uint8)
    flips.reshape(-1)[cells[times % 2 == 1]] = 1
    return flips
