"""Rotated boxes fitted to polygons: the mean rectangle of a quadrilateral, the least rectangle of any outline.

Source: Freeman and Shapira, "Determining the minimum-area encasing rectangle for an arbitrary closed curve",
CACM 1975: the least rectangle has a side along an edge of the convex hull.
"""

from collections.abc import Callable
from typing import Literal

import torch
from torch import Tensor

from lucid_geometry._checks import working
from lucid_geometry.rotated import canonicalize_rboxes


def polygons_to_rboxes(polygons: Tensor, fit: Literal["mean", "minarea"] = "mean") -> Tensor:
    """Return canonical rotated boxes (..., 5) fitted to polygons (..., P, 2).

    Shapes: polygons ``Real[Tensor, "*batch P 2"]`` -> ``Float[Tensor, "*batch 5"]``.

    ``mean`` takes quadrilaterals, P = 4: the centre is the mean of the corners, the extents are the mean
    lengths of opposite sides, and the angle is that of the difference of the longer pair of sides; robust to
    one bad corner. ``minarea`` takes any number of points from 1 up, convex or not: the enclosing rectangle
    of least area; shorter polygons of a batch repeat a vertex, memory grows with P squared. Both are exact for
    rectangles, and neither the first corner nor the winding matters. Raises ValueError when the input is not
    (..., P, 2) with such a P, or ``fit`` is another word.

    >>> quad = torch.tensor([[0.0, 0.0], [10.0, 1.0], [9.0, 5.0], [-1.0, 4.0]])
    >>> polygons_to_rboxes(quad)
    tensor([ 4.5000,  2.5000, 10.0499,  4.1231,  0.0997])
    """
    points = working(polygons, 2, "polygons")
    if fit not in _FITS:
        raise ValueError(f"fit must be one of {tuple(_FITS)}, got {fit!r}")
    if points.dim() < 2 or (fit == "mean" and points.shape[-2] != 4) or not points.shape[-2]:
        corners = "4" if fit == "mean" else "P > 0"
        raise ValueError(
            f"polygons must have shape (..., {corners}, 2) to fit {fit!r}, got {tuple(polygons.shape)}"
        )
    return canonicalize_rboxes(_FITS[fit](points))


def _mean_fit(quads: Tensor) -> Tensor:
    edges = torch.roll(quads, -1, -2) - quads
    lengths = torch.linalg.vector_norm(edges, dim=-1)
    first = (lengths[..., 0] + lengths[..., 2]) / 2
    second = (lengths[..., 1] + lengths[..., 3]) / 2
    # the longer pair is better conditioned and makes the result independent of the first corner
    pairs = edges[..., :2, :] - edges[..., 2:, :]
    along = torch.where((first >= second).unsqueeze(-1), pairs[..., 0, :], pairs[..., 1, :])
    theta = torch.atan2(along[..., 1], along[..., 0])
    extents = torch.stack((torch.maximum(first, second), torch.minimum(first, second)), -1)
    return torch.cat((quads.mean(-2), extents, theta.unsqueeze(-1)), -1)


def _least_area_fit(points: Tensor) -> Tensor:
    middle = points.mean(-2, keepdim=True)
    local = points - middle
    theta = _hull_directions(local)
    cos, sin = torch.cos(theta).unsqueeze(-1), torch.sin(theta).unsqueeze(-1)
    # (..., directions, P)
    x, y = local[..., None, :, 0], local[..., None, :, 1]
    along, across = x * cos + y * sin, y * cos - x * sin
    low_u, high_u, low_v, high_v = along.amin(-1), along.amax(-1), across.amin(-1), across.amax(-1)
    best = ((high_u - low_u) * (high_v - low_v)).argmin(-1, keepdim=True)
    low_u, high_u, low_v, high_v, theta, cos, sin = (
        t.gather(-1, best).squeeze(-1)
        for t in (low_u, high_u, low_v, high_v, theta, cos.squeeze(-1), sin.squeeze(-1))
    )
    u, v = (low_u + high_u) / 2, (low_v + high_v) / 2
    centre = middle.squeeze(-2) + torch.stack((u * cos - v * sin, u * sin + v * cos), -1)
    return torch.cat((centre, torch.stack((high_u - low_u, high_v - low_v, theta), -1)), -1)


def _hull_directions(local: Tensor) -> Tensor:
    """Return (..., P) angles among which is that of every hull edge of points (..., P, 2) about their mean.

    Seen from a hull vertex all points lie within half a turn around the mean, and the first of them in turning
    order ends a hull edge. Other points contribute a direction too, which can only be a worse one.
    """
    inward = -local.unsqueeze(-2)
    rays = local.unsqueeze(-3) + inward
    cross = inward[..., 0] * rays[..., 1] - inward[..., 1] * rays[..., 0]
    turn = torch.atan2(cross, (inward * rays).sum(-1))
    nowhere = (rays == 0).all(-1)
    first = turn.masked_fill(nowhere, torch.inf).argmin(-1, keepdim=True)
    edge = rays.gather(-2, first.unsqueeze(-1).expand(*first.shape, 2)).squeeze(-2)
    # an edge without length would have no gradient
    still = (edge == 0).all(-1)
    return torch.atan2(edge[..., 1], edge[..., 0].masked_fill(still, 1.0))


_FITS: dict[str, Callable[[Tensor], Tensor]] = {"mean": _mean_fit, "minarea": _least_area_fit}
