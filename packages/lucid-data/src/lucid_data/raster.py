"""Polygons to pixels: a pixel belongs to a ring when its centre does (even-odd), to an instance when to any ring."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import numpy.typing as npt


def fill_ring(ring: npt.ArrayLike, height: int, width: int) -> npt.NDArray[np.bool_]:
    """Return the (height, width) mask of pixel centres inside ``ring`` (P, 2), x y in the edge frame.

    Even-odd rule; a centre on a left or top edge is inside, on a right or bottom edge outside. A scanline fill:
    every edge flips the parity of its row from the crossing on, all edges at once.

    >>> fill_ring([[1, 1], [3, 1], [3, 2], [1, 2]], 3, 4).astype(int).tolist()
    [[0, 0, 0, 0], [0, 1, 1, 0], [0, 0, 0, 0]]
    """
    points = np.asarray(ring, np.float64)
    x1, y1 = points.T
    x2, y2 = np.roll(points, -1, 0).T
    swap = y1 > y2
    x1, x2 = np.where(swap, x2, x1), np.where(swap, x1, x2)
    y1, y2 = np.where(swap, y2, y1), np.where(swap, y1, y2)
    first = np.clip(np.ceil(y1 - 0.5), 0, height).astype(np.int64)
    count = np.maximum(np.clip(np.ceil(y2 - 0.5), 0, height).astype(np.int64) - first, 0)
    edge = np.repeat(np.arange(len(points)), count)
    row = first[edge] + np.arange(len(edge)) - np.repeat(np.cumsum(count) - count, count)
    slope = np.divide(x2 - x1, y2 - y1, out=np.zeros_like(x1), where=y2 > y1)
    crossing = x1[edge] + (row + 0.5 - y1[edge]) * slope[edge]
    column = np.clip(np.ceil(crossing - 0.5), 0, width).astype(np.int64)
    parity = np.zeros((height, width + 1), np.int64)
    np.add.at(parity, (row, column), 1)
    inside: npt.NDArray[np.bool_] = np.cumsum(parity, 1)[:, :width] % 2 == 1
    return inside


def fill_rings(rings: Sequence[npt.ArrayLike], height: int, width: int) -> npt.NDArray[np.bool_]:
    """Return the (height, width) union of ``rings``; no rings give an empty mask."""
    mask = np.zeros((height, width), np.bool_)
    for ring in rings:
        mask |= fill_ring(ring, height, width)
    return mask
