"""Overlap of rotated boxes by shapely: the reference of speed and of errors; shapely is imported when asked."""

from importlib import import_module
from typing import Any

import torch
from torch import Tensor


def shapely_pairwise(a: Tensor, b: Tensor) -> Tensor:
    """Return the (N, M) float64 IoU of rotated boxes (N, 5) and (M, 5)."""
    shapely = import_module("shapely")
    origin = torch.zeros(1, 2, dtype=torch.float64)
    p, q = _drawn(shapely, a.double(), origin), _drawn(shapely, b.double(), origin)
    overlap = shapely.area(shapely.intersection(p[:, None], q[None, :]))
    areas = shapely.area(p)[:, None] + shapely.area(q)[None, :]
    return torch.from_numpy(overlap / (areas - overlap))


def shapely_aligned(a: Tensor, b: Tensor) -> Tensor:
    """Return the (N,) float64 IoU of rotated boxes row by row, drawn about the centre of each first box."""
    shapely = import_module("shapely")
    a, b = a.double(), b.double()
    overlap = torch.from_numpy(
        shapely.area(shapely.intersection(_drawn(shapely, a, a[:, :2]), _drawn(shapely, b, a[:, :2])))
    )
    return overlap / (a[:, 2] * a[:, 3] + b[:, 2] * b[:, 3] - overlap)


def _drawn(shapely: Any, boxes: Tensor, origin: Tensor) -> Any:
    """Rectangles (N,) of float64 boxes (N, 5) about ``origin`` (N, 2)."""
    centre, half, theta = boxes[:, :2] - origin, boxes[:, 2:4, None] / 2, boxes[:, 4]
    u = torch.stack((theta.cos(), theta.sin()), 1) * half[:, 0]
    v = torch.stack((-theta.sin(), theta.cos()), 1) * half[:, 1]
    corners = torch.stack((centre - u - v, centre + u - v, centre + u + v, centre - u + v), 1)
    return shapely.polygons(corners.numpy())
