"""Exact overlap of quadrilaterals as annotated, which need not be rectangles."""

from __future__ import annotations

import torch
from torch import Tensor

from lucid_geometry import convex_intersection, polygon_area


def quad_iou(first: Tensor, second: Tensor) -> Tensor:
    """Return (N, M) float64 IoU of convex quadrilaterals (N, 4, 2) and (M, 4, 2); 0 for those without area.

    Only pairs whose envelopes meet are intersected.

    >>> a = torch.tensor([[[0.0, 0.0], [2.0, 0.0], [2.0, 2.0], [0.0, 2.0]]])
    >>> quad_iou(a, a + torch.tensor([1.0, 0.0]))
    tensor([[0.3333]], dtype=torch.float64)
    """
    a, b = first.double(), second.double()
    out = torch.zeros(len(a), len(b), dtype=torch.float64)
    if not len(a) or not len(b):
        return out
    low = torch.maximum(a.amin(1)[:, None], b.amin(1)[None])
    high = torch.minimum(a.amax(1)[:, None], b.amax(1)[None])
    rows, columns = (high > low).all(-1).nonzero(as_tuple=True)
    centre = a[rows].mean(1, keepdim=True)
    mine, theirs = a[rows] - centre, _clockwise(b[columns] - centre)
    shared = polygon_area(convex_intersection(mine, theirs))
    union = polygon_area(mine) + polygon_area(theirs) - shared
    out[rows, columns] = torch.where(union > 0, shared / union.clamp(min=1e-300), 0.0)
    return out


def _clockwise(quads: Tensor) -> Tensor:
    x, y = quads.unbind(-1)
    twice = (x * y.roll(-1, -1) - x.roll(-1, -1) * y).sum(-1)
    return torch.where((twice < 0)[:, None, None], quads.flip(1), quads)
