"""Masks to rings: the boundary of a mask along pixel edges, exact in the edge frame."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import numpy.typing as npt

Ints = npt.NDArray[np.int64]
Ring = npt.NDArray[np.float64]

# steps of the four directions, clockwise on screen: right, down, left, up
_DX, _DY = np.array([1, 0, -1, 0]), np.array([0, 1, 0, -1])


def trace_mask(mask: npt.NDArray[np.bool_]) -> list[Ring]:
    """Return rings (P, 2) float64 whose union is ``mask`` (H, W), one per 4-connected part.

    Corners are whole numbers in the edge frame, collinear points are left out, outer boundaries run clockwise on
    screen. A hole is joined to its part's ring by a slit of zero width, out and back along one line, which the
    even-odd rule does not see: filling the rings at pixel centres gives the mask back, bit for bit. An empty mask
    has no rings.

    >>> [ring.tolist() for ring in trace_mask(np.ones((1, 2), bool))]
    [[[0.0, 0.0], [2.0, 0.0], [2.0, 1.0], [0.0, 1.0]]]
    """
    rows, columns = np.flatnonzero(mask.any(1)), np.flatnonzero(mask.any(0))
    if not rows.size:
        return []
    top, left = rows[0], columns[0]
    part = np.pad(mask[top : rows[-1] + 1, left : columns[-1] + 1], 1)
    x, y, way = _edges(part)
    following = _following(x, y, way, part.shape[1] + 1)
    order, cycle = _cycles(following)
    x, y, way = x[order], y[order], way[order]
    starts = np.flatnonzero(np.concatenate([[True], cycle[1:] != cycle[:-1]]))
    number = np.cumsum(np.concatenate([[True], cycle[1:] != cycle[:-1]])) - 1
    hole = np.add.reduceat(np.where(way % 2 == 1, x * (2 - way), 0), starts) < 0
    owner = _owners(x, y, way, number, hole)
    # a corner is where the direction changes; the one before a cycle's first edge is its last
    before = np.roll(way, 1)
    before[starts] = way[np.concatenate([starts[1:], [len(way)]]) - 1]
    corner = way != before
    points = np.stack([x, y], 1)[corner].astype(np.float64) + np.array([left - 1, top - 1])
    rings = np.split(points, np.cumsum(np.bincount(number[corner], minlength=len(starts)))[:-1])
    return [
        join_rings([rings[o], *(rings[h] for h in np.flatnonzero(owner == o) if h != o)])
        for o in np.flatnonzero(~hole)
    ]


def _edges(part: npt.NDArray[np.bool_]) -> tuple[Ints, Ints, Ints]:
    """Return start points and directions of all boundary edges, the mask on each edge's right hand."""
    found = []
    for way, (inside, outside) in enumerate(
        (
            (part[1:-1, 1:-1], part[:-2, 1:-1]),
            (part[1:-1, 1:-1], part[1:-1, 2:]),
            (part[1:-1, 1:-1], part[2:, 1:-1]),
            (part[1:-1, 1:-1], part[1:-1, :-2]),
        )
    ):
        row, column = np.nonzero(inside & ~outside)
        # the start of a pixel's top, right, bottom and left edge, running clockwise
        found.append((column + 1 + (way in (1, 2)), row + 1 + (way in (2, 3)), np.full(len(row), way)))
    x, y, ways = (np.concatenate(values) for values in zip(*found, strict=True))
    return x, y, ways


def _following(x: Ints, y: Ints, way: Ints, width: int) -> Ints:
    """Return the edge after each edge; where two pixels touch by a corner the turn stays with the pixel."""
    index = np.full((int(y.max()) + 2) * width * 4, -1, np.int64)
    index[(y * width + x) * 4 + way] = np.arange(len(x))
    end = ((y + _DY[way]) * width + x + _DX[way]) * 4
    right, ahead, left = (index[end + (way + turn) % 4] for turn in (1, 0, 3))
    after: Ints = np.where(right >= 0, right, np.where(ahead >= 0, ahead, left))
    return after


def _cycles(following: Ints) -> tuple[Ints, Ints]:
    """Return the edges sorted cycle by cycle in running order, and each one's cycle; by pointer jumping."""
    n = len(following)
    rounds = max(1, int(np.ceil(np.log2(n))) + 1)
    head, jump = np.arange(n), following
    for _ in range(rounds):
        head, jump = np.minimum(head, head[jump]), jump[jump]
    last = following == head
    steps, jump = np.where(last, 0, 1), np.where(last, np.arange(n), following)
    for _ in range(rounds):
        steps, jump = steps + steps[jump], jump[jump]
    order = np.lexsort((-steps, head))
    return order, head[order]


def _owners(x: Ints, y: Ints, way: Ints, number: Ints, hole: npt.NDArray[np.bool_]) -> Ints:
    """Return, per cycle, the outer cycle of the part it bounds (itself when it is one)."""
    owner = np.arange(len(hole))
    if not hole.any():
        return owner
    # from a hole's leftmost edge the mask runs left to an edge of the same part
    width = int(x.max()) + 2
    down, up = np.flatnonzero(way == 1), np.flatnonzero(way == 3)
    keys = (y[up] - 1) * width + x[up]
    sort = np.argsort(keys)
    first = down[np.lexsort((x[down], number[down]))]
    first = first[np.unique(number[first], return_index=True)[1]]
    at = np.searchsorted(keys[sort], y[first] * width + x[first]) - 1
    left = number[up[sort[at]]]
    owner[number[first]] = np.where(hole[number[first]], left, number[first])
    while hole[owner].any():
        owner = owner[owner]
    return owner


def join_rings(rings: Sequence[npt.NDArray[Any]]) -> npt.NDArray[Any]:
    """Return one ring (P, 2) that fills what disjoint ``rings``, or an outline and its holes, fill by even-odd.

    From the first ring's first point a slit of zero width runs out to each further ring and back.

    >>> join_rings([np.array([[0, 0], [4, 0], [0, 4]]), np.array([[1, 1], [2, 1], [1, 2]])]).tolist()
    [[0, 0], [4, 0], [0, 4], [0, 0], [1, 1], [2, 1], [1, 2], [1, 1]]
    """
    first, *others = rings
    if not others:
        return first
    return np.concatenate([first, *(np.concatenate([first[:1], ring, ring[:1]]) for ring in others)])
