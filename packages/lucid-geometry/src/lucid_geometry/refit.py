"""The smallest rotated box at a given angle around a ring: one by one, or grouped by vertex count."""

from collections.abc import Sequence
from typing import NamedTuple

import torch
from torch import Tensor

from lucid_geometry._checks import widest
from lucid_geometry.polygon import polygon_area
from lucid_geometry.rings import RingGroup, check_ring, group_rings, groupable, per_row
from lucid_geometry.rotated import canonicalize_rboxes


class ClippedRBoxes(NamedTuple):
    """What is left of rotated boxes on a canvas."""

    rboxes: Tensor
    """``Float[Tensor, "*batch 5"]``, smallest rotated boxes, at each box's own angle, around the visible part."""
    boxes: Tensor
    """``Float[Tensor, "*batch 4"]``, x1 y1 x2 y2 envelopes of the visible part."""
    areas: Tensor
    """``Float[Tensor, "*batch"]``, visible areas in square pixels."""


def refit_ring(ring: Tensor, theta: float | Tensor) -> ClippedRBoxes:
    """Return the smallest rotated box (5,) at angle ``theta`` around one ring (P, 2), its envelope and area.

    Shapes: ring ``Real[Tensor, "P 2"]``, theta a number or ``Real[Tensor, ""]`` -> ``Float[Tensor, "5"]``,
    ``Float[Tensor, "4"]``, ``Float[Tensor, ""]``. The box is canonical. A ring of fewer than 3 vertices or
    without area gives zeros. Computed in float64 on any device, differentiable; the reference of
    `refit_rings`. Raises ValueError when the ring is not (P, 2).

    >>> rest = torch.tensor([[2.0, 0.0], [5.0, 0.0], [5.0, 2.0], [2.0, 2.0]])
    >>> refit_ring(rest, theta=0.0).rboxes
    tensor([3.5000, 1.0000, 3.0000, 2.0000, 0.0000])
    """
    given = check_ring(ring)
    return cast(refit(widest(given), per_row(theta, (), ring.device)), given.dtype)


def refit_rings(rings: Sequence[Tensor], theta: float | Tensor) -> ClippedRBoxes:
    """Return what `refit_ring` gives for each of N ``rings``, stacked and to the byte.

    Shapes: rings N times ``Real[Tensor, "P_i 2"]``, theta a number or ``Real[Tensor, "#N"]`` ->
    ``Float[Tensor, "N 5"]``, ``Float[Tensor, "N 4"]``, ``Float[Tensor, "N"]``. Rings of equal vertex count are
    fitted together, under the conditions of `clip_rings`. Raises ValueError when a ring is not (P, 2).

    >>> rest = torch.tensor([[2.0, 0.0], [5.0, 0.0], [5.0, 2.0], [2.0, 2.0]])
    >>> refit_rings((rest, rest[:2]), theta=0.0).areas
    tensor([6., 0.])
    """
    outlines = [check_ring(ring) for ring in rings]
    if not outlines:
        return ClippedRBoxes(torch.zeros(0, 5), torch.zeros(0, 4), torch.zeros(0))
    angles = per_row(theta, (len(outlines),), outlines[0].device)
    if not groupable(rings, angles):
        each = [refit_ring(ring, angle) for ring, angle in zip(outlines, angles, strict=True)]
        return ClippedRBoxes(*(torch.stack(parts) for parts in zip(*each, strict=True)))
    return cast(refit_groups(group_rings(outlines), angles), outlines[0].dtype)


def refit_groups(groups: list[RingGroup], theta: Tensor) -> ClippedRBoxes:
    """Return fits (N, ...) of groups of N rings at angles ``theta`` (N,); rows that no group holds are zero."""
    result = nothing(theta)
    for rows, vertices in groups:
        for whole, part in zip(result, refit(vertices, theta[rows]), strict=True):
            whole[rows] = part
    return result


def refit(vertices: Tensor, theta: Tensor) -> ClippedRBoxes:
    """Return fits (...) of rings (..., P, 2) at angles (...); element by element, whatever the batch."""
    if vertices.shape[-2] < 3:
        return nothing(theta)
    cos, sin = torch.cos(theta).unsqueeze(-1), torch.sin(theta).unsqueeze(-1)
    x, y = vertices.unbind(-1)
    along, across = x * cos + y * sin, y * cos - x * sin
    (low_u, high_u), (low_v, high_v) = torch.aminmax(along, dim=-1), torch.aminmax(across, dim=-1)
    u, v = (low_u + high_u) / 2, (low_v + high_v) / 2
    cos, sin = cos.squeeze(-1), sin.squeeze(-1)
    rectangle = (u * cos - v * sin, u * sin + v * cos, high_u - low_u, high_v - low_v, theta)
    areas = polygon_area(vertices)
    seen = (areas > 0).unsqueeze(-1)
    return ClippedRBoxes(
        torch.where(seen, canonicalize_rboxes(torch.stack(rectangle, -1)), 0.0),
        torch.where(seen, torch.cat((vertices.amin(-2), vertices.amax(-2)), -1), 0.0),
        areas,
    )


def nothing(theta: Tensor) -> ClippedRBoxes:
    """Return zeros for rings at angles (...)."""
    return ClippedRBoxes(*(theta.new_zeros((*theta.shape, *columns)) for columns in ((5,), (4,), ())))


def cast(clipped: ClippedRBoxes, dtype: torch.dtype) -> ClippedRBoxes:
    """Return the same rows in another dtype."""
    return ClippedRBoxes(*(tensor.to(dtype) for tensor in clipped))
