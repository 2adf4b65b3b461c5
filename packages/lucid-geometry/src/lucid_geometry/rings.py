"""Rings cut to a canvas: one by one, or many at once, grouped by their current number of vertices.

A ring is a closed outline (P, 2) of any number of vertices; canvases are [0, width] x [0, height]. Cutting is
four half-plane passes. The single and the grouped form share the arithmetic of a pass, which works element by
element, so they agree bit for bit; what differs is who keeps book of the vertices.

Source: Sutherland and Hodgman, "Reentrant polygon clipping", CACM 1974.
"""

from collections.abc import Sequence
from typing import NamedTuple

import torch
from torch import Tensor

from lucid_geometry._checks import widest, widest_dtype, working


class RingGroup(NamedTuple):
    """Rings that have the same number of vertices at present."""

    rows: Tensor
    """(G,) int64, which rings of the whole set these are."""
    vertices: Tensor
    """(G, P, 2)."""


def clip_ring(ring: Tensor, height: float | Tensor, width: float | Tensor) -> Tensor:
    """Return (Q, 2): the part of one ring (P, 2) on the canvas [0, width] x [0, height], borders included.

    Shapes: ring ``Real[Tensor, "P 2"]``, height and width numbers or ``Real[Tensor, ""]`` ->
    ``Float[Tensor, "Q 2"]``. Surviving vertices keep their order; a cut vertex lies on its border exactly; an
    empty part has Q = 0, and so has a ring that is not finite. Exact for convex rings; a concave one keeps its
    area, parts joined along the border. Computed in float64 on any device, differentiable; the reference of
    `clip_rings`. Raises ValueError when the ring is not (P, 2).

    >>> clip_ring(torch.tensor([[2.0, 1.0], [6.0, 1.0], [2.0, 3.0]]), height=4, width=4).tolist()
    [[2.0, 1.0], [4.0, 1.0], [4.0, 2.0], [2.0, 3.0]]
    """
    given = check_ring(ring)
    vertices = widest(given)
    if not torch.isfinite(vertices).all():
        return given[:0]
    size = (torch.as_tensor(side, dtype=vertices.dtype, device=ring.device) for side in (height, width))
    for axis, bound in _sides(*size):
        slots, keep = _half_plane(vertices, axis, bound)
        vertices = slots[keep]
    return vertices.to(given.dtype)


def clip_rings(rings: Sequence[Tensor], height: float | Tensor, width: float | Tensor) -> tuple[Tensor, ...]:
    """Return N rings, each the part of one of N ``rings`` on its canvas, as `clip_ring` gives it, to the byte.

    Shapes: rings N times ``Real[Tensor, "P_i 2"]``, height and width numbers or ``Real[Tensor, "#N"]`` -> N
    times ``Float[Tensor, "Q_i 2"]``. Rings of equal vertex count are cut together and regrouped after each
    pass: nothing is padded and no vertex count is too large. Finite float32 or float64 rings on the CPU without
    gradients take this route; others are cut one by one. Raises ValueError when a ring is not (P, 2).

    >>> square = torch.tensor([[0.0, 0.0], [2.0, 0.0], [2.0, 2.0], [0.0, 2.0]])
    >>> [len(ring) for ring in clip_rings((square, square + 1.5, square + 9), height=2, width=3)]
    [4, 4, 0]
    """
    outlines = [check_ring(ring) for ring in rings]
    device = rings[0].device if len(rings) else torch.device("cpu")
    heights, widths = (per_row(side, (len(rings),), device) for side in (height, width))
    if not groupable(rings, heights, widths):
        return tuple(clip_ring(*each) for each in zip(outlines, heights, widths, strict=True))
    groups = clip_groups(group_rings(rings), heights, widths)
    counts = torch.zeros(len(rings), dtype=torch.int64)
    for group in groups:
        counts[group.rows] = group.vertices.shape[1]
    owners = torch.cat([group.rows.repeat_interleave(group.vertices.shape[1]) for group in groups])
    vertices = torch.cat([group.vertices.flatten(0, 1) for group in groups])
    order = torch.argsort(owners, stable=True)
    return torch.split(vertices[order].to(rings[0].dtype), counts.tolist())


def clip_groups(groups: list[RingGroup], heights: Tensor, widths: Tensor) -> list[RingGroup]:
    """Return the groups of what `clip_ring` leaves of the rings in ``groups``; heights and widths (N,) of all."""
    for axis, bound in _sides(heights, widths):
        parts: dict[int, list[RingGroup]] = {}
        for rows, vertices in groups:
            slots, keep = _half_plane(vertices, axis, None if bound is None else bound[rows])
            counts = keep.sum(-1)
            for count in torch.unique(counts).tolist():
                same = counts == count
                kept = slots[same][keep[same]].view(int(same.sum()), count, 2)
                parts.setdefault(count, []).append(RingGroup(rows[same], kept))
        groups = [
            RingGroup(*(torch.cat(each) for each in zip(*part, strict=True))) for part in parts.values()
        ]
    return groups


def group_rings(rings: Sequence[Tensor]) -> list[RingGroup]:
    """Return ``rings`` as float64 groups of equal vertex count."""
    counts = torch.tensor([len(ring) for ring in rings], dtype=torch.int64)
    starts = counts.cumsum(0) - counts
    vertices = widest(torch.cat(list(rings)))
    groups = []
    for count in torch.unique(counts).tolist():
        rows = (counts == count).nonzero().squeeze(1)
        groups.append(RingGroup(rows, vertices[starts[rows].unsqueeze(1) + torch.arange(count)]))
    return groups


def per_row(side: float | Tensor, rows: Sequence[int], device: torch.device) -> Tensor:
    """Return one canvas side per row, of shape ``rows``, from a number or a tensor that broadcasts to it."""
    return torch.as_tensor(side, dtype=widest_dtype(device), device=device).expand(tuple(rows))


def groupable(tensors: Sequence[Tensor], *others: Tensor) -> bool:
    """Return whether ``tensors`` can be worked on in groups.

    They must be finite, on the CPU, of one wide dtype, and neither they nor ``others`` want a gradient.
    """
    return (
        len({tensor.dtype for tensor in tensors}) == 1
        and tensors[0].dtype in (torch.float32, torch.float64)
        and all(tensor.device.type == "cpu" for tensor in tensors)
        and not (torch.is_grad_enabled() and any(tensor.requires_grad for tensor in (*tensors, *others)))
        and bool(torch.isfinite(torch.cat(list(tensors))).all())
    )


def check_ring(ring: Tensor) -> Tensor:
    """Return a ring (P, 2) in the package's working dtype; ValueError for another shape."""
    given = working(ring, 2, "ring")
    if given.dim() != 2:
        raise ValueError(f"ring must have shape (P, 2), got {tuple(ring.shape)}")
    return given


def _sides(height: Tensor, width: Tensor) -> tuple[tuple[int, Tensor | None], ...]:
    """Return the four half-planes as axis and upper bound; None stands for the lower bound 0."""
    return (0, None), (0, width), (1, None), (1, height)


def _half_plane(vertices: Tensor, axis: int, bound: Tensor | None) -> tuple[Tensor, Tensor]:
    """Return (..., 2 P, 2) candidates and (..., 2 P) bool which of them the half-plane keeps, in ring order.

    Each vertex of (..., P, 2) is followed by the crossing of the edge that starts there. A vertex on the border
    is kept and makes no crossing, so none comes twice.
    """
    along, other = vertices[..., axis], vertices[..., 1 - axis]
    border = torch.zeros_like(along) if bound is None else bound.unsqueeze(-1).expand_as(along)
    distance = along if bound is None else border - along
    following = torch.roll(distance, -1, -1)
    crosses = ((distance > 0) & (following < 0)) | ((distance < 0) & (following > 0))
    # a neutral denominator where nothing crosses keeps the unused gradient finite
    fraction = distance / torch.where(crosses, distance - following, 1.0)
    meeting = other + (torch.roll(other, -1, -1) - other) * fraction
    crossing = torch.stack((border, meeting) if axis == 0 else (meeting, border), -1)
    candidates = torch.stack((vertices, crossing), -2).flatten(-3, -2)
    return candidates, torch.stack((distance >= 0, crosses), -1).flatten(-2)
