"""Exact overlap of rotated boxes, by clipping one rectangle with the other in float64."""

import torch
from torch import Tensor

from lucid_geometry._checks import require_rows, working
from lucid_geometry.polygon import convex_intersection, polygon_area
from lucid_geometry.rotated import rboxes_to_boxes, rboxes_to_polygons

# pairs clipped at once; bounds temporaries at some tens of megabytes
_CHUNK = 65536


def rotated_box_iou(a: Tensor, b: Tensor) -> Tensor:
    """Return (..., N, M) exact IoU of all rotated boxes ``a`` (..., N, 5) with all ``b`` (..., M, 5).

    In [0, 1], in the inputs' dtype; rules as in `aligned_rotated_box_iou`. Only pairs whose envelopes meet
    are clipped. Leading dimensions broadcast. Raises ValueError when an input is not (..., rows, 5).

    >>> bars = torch.tensor([[0.0, 0.0, 20.0, 2.0, 0.0], [0.0, 0.0, 20.0, 2.0, 1.5707963]])
    >>> rotated_box_iou(bars, bars)
    tensor([[1.0000, 0.0526],
            [0.0526, 1.0000]])
    """
    require_rows(a, "a")
    require_rows(b, "b")
    first, second = working(a, 5, "a").unsqueeze(-2), working(b, 5, "b").unsqueeze(-3)
    meet = _envelopes_meet(first, second)
    shape, near = meet.shape, meet.nonzero()
    first, second = first.expand(*shape, 5), second.expand(*shape, 5)
    dtype = torch.promote_types(first.dtype, second.dtype)
    values = [
        aligned_rotated_box_iou(first[rows.unbind(1)], second[rows.unbind(1)]).to(dtype)
        for rows in torch.split(near, _CHUNK)
    ]
    result = torch.zeros(shape, dtype=dtype, device=first.device)
    return result.index_put(near.unbind(1), torch.cat(values)) if values else result


def aligned_rotated_box_iou(a: Tensor, b: Tensor) -> Tensor:
    """Return (...) exact IoU of rotated boxes ``a`` (..., 5) and ``b`` (..., 5), row by row, in [0, 1].

    A pair in which a box is not finite or has an extent <= 0 as given scores 0, never NaN; boxes that only
    touch score 0. Computed in float64 (float32 where the device has none) about the pair's midpoint and in
    units of its largest extent, so neither far offsets nor very large or small boxes lose digits.
    Differentiable almost everywhere.

    >>> box = torch.tensor([[0.0, 0.0, 4.0, 2.0, 0.0]])
    >>> aligned_rotated_box_iou(box, torch.tensor([[2.0, 0.0, 4.0, 2.0, 0.0]]))
    tensor([0.3333])
    """
    first, second = working(a, 5, "a"), working(b, 5, "b")
    dtype = torch.promote_types(first.dtype, second.dtype)
    wide = torch.float32 if first.device.type == "mps" else torch.float64
    first, second = torch.broadcast_tensors(first.to(wide), second.to(wide))  # type: ignore[no-untyped-call]
    valid = _usable(first) & _usable(second)
    unit = first.new_tensor([0.0, 0.0, 1.0, 1.0, 0.0])
    first, second = (torch.where(valid.unsqueeze(-1), r, unit) for r in (first, second))
    scale = torch.maximum(first[..., 2:4], second[..., 2:4]).amax(-1, keepdim=True).detach()
    half_shift = (second[..., :2] - first[..., :2]) / 2
    # centres are moved before corners are built: afterwards the digits would be gone
    p, q = (
        rboxes_to_polygons(torch.cat((centre / scale, r[..., 2:4] / scale, r[..., 4:]), -1))
        for centre, r in ((-half_shift, first), (half_shift, second))
    )
    overlap = polygon_area(convex_intersection(p, q))
    areas = ((first[..., 2:4] / scale).prod(-1), (second[..., 2:4] / scale).prod(-1))
    iou = overlap / (areas[0] + areas[1] - overlap)
    return torch.where(valid, iou.clamp(0, 1), 0.0).to(dtype)


def _usable(rboxes: Tensor) -> Tensor:
    return torch.isfinite(rboxes).all(-1) & (rboxes[..., 2] > 0) & (rboxes[..., 3] > 0)


@torch.no_grad()
def _envelopes_meet(a: Tensor, b: Tensor) -> Tensor:
    ax1, ay1, ax2, ay2 = rboxes_to_boxes(a).unbind(-1)
    bx1, by1, bx2, by2 = rboxes_to_boxes(b).unbind(-1)
    # widened by some units in the last place of the coordinates, so that rounding never hides an overlap
    margin = 8 * torch.finfo(ax1.dtype).eps
    x = (
        torch.minimum(ax2, bx2)
        - torch.maximum(ax1, bx1)
        + margin * (ax1.abs() + bx1.abs() + ax2.abs() + bx2.abs())
    )
    y = (
        torch.minimum(ay2, by2)
        - torch.maximum(ay1, by1)
        + margin * (ay1.abs() + by1.abs() + ay2.abs() + by2.abs())
    )
    return (x >= 0) & (y >= 0)
