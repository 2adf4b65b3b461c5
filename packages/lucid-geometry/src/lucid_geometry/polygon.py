"""Batched convex polygons: area, half-plane clipping, intersection.

A batch is (..., P, 2). Polygons with fewer than P vertices repeat their first one at the end, which changes
neither their area nor any clipping, so no masks are needed. Everything is differentiable where the result
is.

Source: Sutherland and Hodgman, "Reentrant polygon clipping", CACM 1974.
"""

import torch
from torch import Tensor

from lucid_geometry._checks import working


def polygon_area(polygons: Tensor) -> Tensor:
    """Return (...) areas of simple polygons (..., P, 2), whatever their winding, by the shoelace formula.

    Shapes: polygons ``Real[Tensor, "*batch P 2"]`` -> ``Float[Tensor, "*batch"]``.

    Computed about the first vertex, so a polygon far from the origin loses no digits, and summed in ring
    order, so that its area does not depend on the batch it comes in or on repeated last vertices. Raises
    ValueError when the input is not (..., P, 2).

    >>> polygon_area(torch.tensor([[100.0, 0.0], [104.0, 0.0], [104.0, 3.0]]))
    tensor(6.)
    """
    vertices = _polygons(polygons, "polygons")
    if not vertices.shape[-2]:
        return vertices.sum((-2, -1))
    local = vertices - vertices[..., :1, :]
    following = torch.roll(local, -1, -2)
    return (_cross(local, following).cumsum(-1)[..., -1] / 2).abs()


def clip_half_plane(polygons: Tensor, point: Tensor, direction: Tensor) -> Tensor:
    """Return (..., P + 2, 2): convex polygons (..., P, 2) cut to one side of a line, borders included.

    Shapes: polygons ``Real[Tensor, "*batch P 2"]``, point ``Real[Tensor, "*#batch 2"]``, direction
    ``Real[Tensor, "*#batch 2"]`` -> ``Float[Tensor, "*batch P+2 2"]``.

    The line passes through ``point`` (..., 2) along ``direction`` (..., 2); what lies towards +90 degrees
    of it (from +x towards +y) is kept. An empty result is all zeros. Exactly one vertex more than before is
    needed; the second spare slot takes what rounding may add where an edge lies on the line.

    >>> square = torch.tensor([[0.0, 0.0], [2.0, 0.0], [2.0, 2.0], [0.0, 2.0]])
    >>> half = clip_half_plane(square, torch.tensor([0.0, 1.0]), torch.tensor([1.0, 0.0]))
    >>> polygon_area(half)
    tensor(2.)
    """
    vertices = _polygons(polygons, "polygons")
    point, direction = working(point, 2, "point"), working(direction, 2, "direction")
    distance = _cross(direction.unsqueeze(-2), vertices - point.unsqueeze(-2))
    following, next_distance = torch.roll(vertices, -1, -2), torch.roll(distance, -1, -1)
    inside = distance >= 0
    crosses = inside != torch.roll(inside, -1, -1)
    # a neutral denominator where nothing crosses keeps the unused gradient finite
    fraction = distance / torch.where(crosses, distance - next_distance, 1.0)
    crossing = vertices + (following - vertices) * fraction.unsqueeze(-1)
    candidates = torch.stack((vertices, crossing), -2).flatten(-3, -2)
    keep = torch.stack((inside, crosses), -1).flatten(-2)
    return _compact(candidates, keep, vertices.shape[-2] + 2)


def convex_intersection(subject: Tensor, clip: Tensor) -> Tensor:
    """Return (..., P + 2 K, 2): the intersection of convex polygons (..., P, 2) with ``clip`` (..., K, 2).

    Shapes: subject ``Real[Tensor, "*#batch P 2"]``, clip ``Real[Tensor, "*#batch K 2"]`` ->
    ``Float[Tensor, "*batch P+2*K 2"]``.

    ``clip`` must be convex with positive shoelace area in (x, y), that is clockwise on screen. Leading
    dimensions broadcast. An empty intersection is all zeros.

    >>> a = torch.tensor([[0.0, 0.0], [2.0, 0.0], [2.0, 2.0], [0.0, 2.0]])
    >>> polygon_area(convex_intersection(a, a + 1))
    tensor(1.)
    """
    result, window = _polygons(subject, "subject"), _polygons(clip, "clip")
    batch = torch.broadcast_shapes(result.shape[:-2], window.shape[:-2])  # type: ignore[no-untyped-call]
    result, window = (t.expand(*batch, *t.shape[-2:]) for t in (result, window))
    edges = torch.roll(window, -1, -2) - window
    for side in range(window.shape[-2]):
        result = clip_half_plane(result, window[..., side, :], edges[..., side, :])
    return result


def _compact(candidates: Tensor, keep: Tensor, slots: int) -> Tensor:
    """Return the kept points (..., C, 2) first and in order, padded to ``slots`` with the first of them."""
    rank = torch.cumsum(keep, -1)
    # slot 0 receives what is dropped and is cut off again
    slot = torch.where(keep, rank, 0).clamp(max=slots).unsqueeze(-1).expand_as(candidates)
    packed = candidates.new_zeros(*candidates.shape[:-2], slots + 1, 2).scatter(-2, slot, candidates)[
        ..., 1:, :
    ]
    filled = torch.arange(slots, device=keep.device) < rank[..., -1:]
    return torch.where(filled.unsqueeze(-1), packed, packed[..., :1, :])


def _polygons(polygons: Tensor, name: str) -> Tensor:
    vertices = working(polygons, 2, name)
    if vertices.dim() < 2:
        raise ValueError(f"{name} must have shape (..., P, 2), got {tuple(polygons.shape)}")
    return vertices


def _cross(a: Tensor, b: Tensor) -> Tensor:
    return a[..., 0] * b[..., 1] - a[..., 1] * b[..., 0]
