"""Rotated boxes cut to a canvas."""

from typing import NamedTuple

import torch
from torch import Tensor

from lucid_geometry._checks import working
from lucid_geometry.polygon import convex_intersection, polygon_area
from lucid_geometry.rotated import canonicalize_rboxes, rboxes_to_polygons


class ClippedRBoxes(NamedTuple):
    """What is left of rotated boxes on a canvas."""

    rboxes: Tensor
    """(..., 5) smallest rotated boxes, at each box's own angle, around the visible part."""
    boxes: Tensor
    """(..., 4) x1 y1 x2 y2 envelopes of the visible part."""
    areas: Tensor
    """(...) visible areas in square pixels."""


def clip_rboxes(rboxes: Tensor, height: float, width: float) -> ClippedRBoxes:
    """Return what remains of rotated boxes (..., 5) on the canvas [0, width] x [0, height].

    A box whose four corners are on the canvas comes back unchanged, bit for bit; another one becomes the
    canonical form of the smallest rectangle at its own angle around what is visible. Where nothing is
    visible all rows are zero. For a window elsewhere, shift the centres first. Computed in float64.

    >>> clipped = clip_rboxes(torch.tensor([4.0, 1.0, 4.0, 2.0, 0.0]), height=4, width=5)
    >>> clipped.rboxes, clipped.boxes, clipped.areas
    (tensor([3.5000, 1.0000, 3.0000, 2.0000, 0.0000]), tensor([2., 0., 5., 2.]), tensor(6.))
    """
    given = working(rboxes, 5, "rboxes")
    wide = given.double()
    corners = rboxes_to_polygons(wide)
    size = corners.new_tensor([width, height])
    whole = ((corners >= 0) & (corners <= size)).all(-1).all(-1)
    canvas = size * corners.new_tensor([[0.0, 0.0], [1.0, 0.0], [1.0, 1.0], [0.0, 1.0]])
    visible = convex_intersection(corners, canvas)
    areas = torch.where(whole, wide[..., 2] * wide[..., 3], polygon_area(visible))
    theta = canonicalize_rboxes(wide)[..., 4:]
    frame = torch.stack(
        (torch.cat((theta.cos(), theta.sin()), -1), torch.cat((-theta.sin(), theta.cos()), -1)), -2
    )
    local = visible @ frame.mT
    low, high = local.amin(-2), local.amax(-2)
    centre = (((low + high) / 2).unsqueeze(-2) @ frame).squeeze(-2)
    fitted = canonicalize_rboxes(torch.cat((centre, high - low, theta), -1)).to(given.dtype)
    seen = (whole | (areas > 0)).unsqueeze(-1)
    envelopes = torch.cat((visible.amin(-2), visible.amax(-2)), -1).to(given.dtype)
    return ClippedRBoxes(
        torch.where(whole.unsqueeze(-1), given, torch.where(seen, fitted, 0.0)),
        torch.where(seen, envelopes, 0.0),
        torch.where(seen.squeeze(-1), areas, 0.0).to(given.dtype),
    )
