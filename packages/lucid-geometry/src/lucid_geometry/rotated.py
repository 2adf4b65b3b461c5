"""Rotated boxes: canonical form, corners, containment, envelopes, mirrors.

An RBox is ``(cx, cy, w, h, theta)``: centre and extents in pixels, theta in radians, the direction of the w
edge measured from +x towards +y; y points down, so a growing theta turns clockwise on screen. The canonical
form has w >= h and theta in [-pi/4, 3 pi/4); an exact square has theta in [-pi/4, pi/4). Half-precision and
integer inputs are computed and returned in float32. Everything is batched and differentiable.

Source: Zhou et al., "MMRotate", ACM MM 2022, arXiv:2204.13317 (long-edge definition).
"""

import math

import torch
from torch import Tensor

from lucid_geometry._checks import require_rows, working


def canonicalize_rboxes(rboxes: Tensor) -> Tensor:
    """Return the canonical long-edge form (..., 5) of the same rectangles (..., 5).

    Shapes: rboxes ``Real[Tensor, "*batch 5"]`` -> ``Float[Tensor, "*batch 5"]``.

    Exactly idempotent: a canonical box comes back bit for bit. Extents are taken to be non-negative.

    >>> canonicalize_rboxes(torch.tensor([[10.0, 10.0, 4.0, 8.0, 0.2]]))
    tensor([[10.0000, 10.0000,  8.0000,  4.0000,  1.7708]])
    """
    cx, cy, w, h, theta = working(rboxes, 5, "rboxes").unbind(-1)
    low, high = _angle_range(theta.dtype)
    swap = w < h
    theta = torch.where(swap, theta + math.pi / 2, theta)
    wrapped = theta - torch.floor((theta - low) / math.pi) * math.pi
    # the remainder may land an ulp outside either end
    wrapped = torch.where(wrapped < low, wrapped + math.pi, wrapped)
    wrapped = torch.where(wrapped > high, wrapped - math.pi, wrapped).clamp(low, high)
    theta = torch.where((theta >= low) & (theta <= high), theta, wrapped)
    theta = torch.where((w == h) & (theta >= -low), theta - math.pi / 2, theta)
    return torch.stack((cx, cy, torch.where(swap, h, w), torch.where(swap, w, h), theta), -1)


def rboxes_to_polygons(rboxes: Tensor) -> Tensor:
    """Return (..., 4, 2) corners of rotated boxes (..., 5), from local (-w/2, -h/2), clockwise on screen.

    Shapes: rboxes ``Real[Tensor, "*batch 5"]`` -> ``Float[Tensor, "*batch 4 2"]``.

    Taken from the canonical form, so theta and theta + pi give the same corners in the same slots, and the
    shoelace area in (x, y) is positive.

    >>> rboxes_to_polygons(torch.tensor([5.0, 2.5, 6.0, 3.0, 0.0])).tolist()
    [[2.0, 1.0], [8.0, 1.0], [8.0, 4.0], [2.0, 4.0]]
    """
    return corners(canonicalize_rboxes(rboxes))


def corners(rboxes: Tensor) -> Tensor:
    """Return (..., 4, 2) corners of float rotated boxes (..., 5) exactly as given, without canonicalising."""
    cx, cy, w, h, theta = rboxes.unbind(-1)
    cos, sin = torch.cos(theta) / 2, torch.sin(theta) / 2
    ux, uy, vx, vy = w * cos, w * sin, -h * sin, h * cos
    x = torch.stack((cx - ux - vx, cx + ux - vx, cx + ux + vx, cx - ux + vx), -1)
    y = torch.stack((cy - uy - vy, cy + uy - vy, cy + uy + vy, cy - uy + vy), -1)
    return torch.stack((x, y), -1)


def points_in_rboxes(points: Tensor, rboxes: Tensor) -> Tensor:
    """Return (..., P, M) bool: whether point (..., P, 2) lies in rotated box (..., M, 5), borders included.

    Shapes: points ``Real[Tensor, "*#batch P 2"]``, rboxes ``Real[Tensor, "*#batch M 5"]`` ->
    ``Bool[Tensor, "*batch P M"]``.

    Leading dimensions broadcast. Raises ValueError when an input is not (..., rows, columns).

    >>> points_in_rboxes(torch.tensor([[0.0, 2.0], [2.0, 0.0]]), torch.tensor([[0.0, 0.0, 6.0, 1.0, 0.0]]))
    tensor([[False],
            [ True]])
    """
    require_rows(points, "points")
    require_rows(rboxes, "rboxes")
    x, y = working(points, 2, "points").unsqueeze(-2).unbind(-1)
    cx, cy, w, h, theta = working(rboxes, 5, "rboxes").unsqueeze(-3).unbind(-1)
    cos, sin = torch.cos(theta), torch.sin(theta)
    dx, dy = x - cx, y - cy
    along, across = dx * cos + dy * sin, dy * cos - dx * sin
    return (along.abs() <= w / 2) & (across.abs() <= h / 2)


def rboxes_to_boxes(rboxes: Tensor) -> Tensor:
    """Return (..., 4) x1 y1 x2 y2 envelopes, the smallest upright boxes around rotated boxes (..., 5).

    Shapes: rboxes ``Real[Tensor, "*batch 5"]`` -> ``Float[Tensor, "*batch 4"]``.

    >>> rboxes_to_boxes(torch.tensor([5.0, 2.5, 6.0, 3.0, 0.0]))
    tensor([2., 1., 8., 4.])
    """
    cx, cy, w, h, theta = working(rboxes, 5, "rboxes").unbind(-1)
    cos, sin = torch.cos(theta).abs() / 2, torch.sin(theta).abs() / 2
    ex, ey = w * cos + h * sin, w * sin + h * cos
    return torch.stack((cx - ex, cy - ey, cx + ex, cy + ey), -1)


def flip_rboxes_horizontal(rboxes: Tensor, width: float) -> Tensor:
    """Return canonical rotated boxes (..., 5) mirrored left to right in a canvas ``width`` pixels wide.

    Shapes: rboxes ``Real[Tensor, "*batch 5"]`` -> ``Float[Tensor, "*batch 5"]``.

    >>> flip_rboxes_horizontal(torch.tensor([30.0, 40.0, 20.0, 10.0, 1.2]), width=100)
    tensor([70.0000, 40.0000, 20.0000, 10.0000,  1.9416])
    """
    cx, cy, w, h, theta = working(rboxes, 5, "rboxes").unbind(-1)
    return canonicalize_rboxes(torch.stack((width - cx, cy, w, h, -theta), -1))


def flip_rboxes_vertical(rboxes: Tensor, height: float) -> Tensor:
    """Return canonical rotated boxes (..., 5) mirrored top to bottom in a canvas ``height`` pixels high.

    Shapes: rboxes ``Real[Tensor, "*batch 5"]`` -> ``Float[Tensor, "*batch 5"]``.

    >>> flip_rboxes_vertical(torch.tensor([30.0, 40.0, 20.0, 10.0, 1.2]), height=100)
    tensor([30.0000, 60.0000, 20.0000, 10.0000,  1.9416])
    """
    cx, cy, w, h, theta = working(rboxes, 5, "rboxes").unbind(-1)
    return canonicalize_rboxes(torch.stack((cx, height - cy, w, h, -theta), -1))


def rotate_rboxes_clockwise(rboxes: Tensor, height: float) -> Tensor:
    """Return canonical rotated boxes (..., 5) of a canvas ``height`` pixels high turned a quarter clockwise.

    Shapes: rboxes ``Real[Tensor, "*batch 5"]`` -> ``Float[Tensor, "*batch 5"]``.

    The turned canvas is ``height`` pixels wide; point (x, y) goes to (height - y, x).

    >>> rotate_rboxes_clockwise(torch.tensor([30.0, 40.0, 20.0, 10.0, 0.0]), height=100)
    tensor([60.0000, 30.0000, 20.0000, 10.0000,  1.5708])
    """
    cx, cy, w, h, theta = working(rboxes, 5, "rboxes").unbind(-1)
    return canonicalize_rboxes(torch.stack((height - cy, cx, w, h, theta + math.pi / 2), -1))


def _angle_range(dtype: torch.dtype) -> tuple[float, float]:
    """Return the least and the greatest canonical angle that ``dtype`` holds."""
    return _ANGLES[dtype]


def _canonical_ends(dtype: torch.dtype) -> tuple[float, float]:
    low = torch.tensor(-math.pi / 4, dtype=dtype)
    high = torch.nextafter(torch.tensor(3 * math.pi / 4, dtype=dtype), low)
    return low.item(), high.item()


_ANGLES = {dtype: _canonical_ends(dtype) for dtype in (torch.float32, torch.float64)}
