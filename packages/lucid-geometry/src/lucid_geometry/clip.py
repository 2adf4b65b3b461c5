"""Rotated boxes cut to a canvas and refitted at their own angle."""

import torch
from torch import Tensor

from lucid_geometry._checks import widest, working
from lucid_geometry.polygon import convex_intersection
from lucid_geometry.refit import ClippedRBoxes, cast, nothing, refit, refit_groups, refit_ring
from lucid_geometry.rings import RingGroup, clip_groups, clip_ring, groupable, per_row
from lucid_geometry.rotated import canonicalize_rboxes, rboxes_to_polygons


def clip_rboxes(rboxes: Tensor, height: float | Tensor, width: float | Tensor) -> ClippedRBoxes:
    """Return what remains of rotated boxes (..., 5) on the canvas [0, width] x [0, height].

    Shapes: rboxes ``Real[Tensor, "*batch 5"]``, height and width numbers or ``Real[Tensor, "*#batch"]``, a canvas
    per box -> ``Float[Tensor, "*batch 5"]``, ``Float[Tensor, "*batch 4"]``, ``Float[Tensor, "*batch"]``.

    A box whose four corners are on the canvas comes back unchanged, bit for bit; another one becomes the
    canonical form of the smallest rectangle at its own angle around what is visible. Where nothing is visible,
    or the box is not finite, all rows are zero. For a window elsewhere, shift the centres first. Computed in
    float64.

    Finite float32 or float64 boxes on the CPU without gradients are cut together, grouped by vertex count as in
    `clip_rings`; others pass one by one through `clip_ring` and `refit_ring`, with the same bytes as a result.
    Under ``torch.compile`` vertex counts are padded instead, so that shapes are static.

    >>> clipped = clip_rboxes(torch.tensor([4.0, 1.0, 4.0, 2.0, 0.0]), height=4, width=5)
    >>> clipped.rboxes, clipped.boxes, clipped.areas
    (tensor([3.5000, 1.0000, 3.0000, 2.0000, 0.0000]), tensor([2., 0., 5., 2.]), tensor(6.))
    """
    given = working(rboxes, 5, "rboxes")
    batch, rows = given.shape[:-1], given.reshape(-1, 5)
    heights, widths = (per_row(side, batch, given.device).reshape(-1) for side in (height, width))
    wide = widest(rows)
    corners, theta = rboxes_to_polygons(wide), canonicalize_rboxes(wide)[:, 4]
    size = torch.stack((widths, heights), -1).unsqueeze(1)
    whole = ((corners >= 0) & (corners <= size)).flatten(1).all(1)
    if torch.compiler.is_compiling():
        canvas = size * size.new_tensor([[0.0, 0.0], [1.0, 0.0], [1.0, 1.0], [0.0, 1.0]])
        parts = refit(convex_intersection(corners, canvas), theta)
    else:
        cut = (~whole).nonzero().squeeze(1)
        many = groupable((rboxes,), heights, widths)
        parts = (_grouped if many else _one_by_one)(cut, corners, theta, heights, widths)
    envelopes = torch.cat((corners.amin(1), corners.amax(1)), 1)
    rest = cast(parts, given.dtype)
    return ClippedRBoxes(
        torch.where(whole.unsqueeze(1), rows, rest.rboxes).view(*batch, 5),
        torch.where(whole.unsqueeze(1), envelopes.to(given.dtype), rest.boxes).view(*batch, 4),
        torch.where(whole, (wide[:, 2] * wide[:, 3]).to(given.dtype), rest.areas).view(batch),
    )


def _grouped(cut: Tensor, corners: Tensor, theta: Tensor, heights: Tensor, widths: Tensor) -> ClippedRBoxes:
    """Return fits (N, ...) of what is left of the rings at rows ``cut``; other rows are zero."""
    return refit_groups(clip_groups([RingGroup(cut, corners[cut])], heights, widths), theta)


def _one_by_one(
    cut: Tensor, corners: Tensor, theta: Tensor, heights: Tensor, widths: Tensor
) -> ClippedRBoxes:
    """Return what `_grouped` returns, by the reference."""
    each = zip(*(rows[cut] for rows in (corners, theta, heights, widths)), strict=True)
    fits = [refit_ring(clip_ring(ring, height, width), angle) for ring, angle, height, width in each]
    if not fits:
        return nothing(theta)
    columns = zip(nothing(theta), zip(*fits, strict=True), strict=True)
    return ClippedRBoxes(*(zeros.index_put((cut,), torch.stack(rows)) for zeros, rows in columns))
