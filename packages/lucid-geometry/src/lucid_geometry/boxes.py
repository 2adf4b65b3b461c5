"""Upright boxes: conversions, areas, intersection over union and its complete form.

A box is ``(x1, y1, x2, y2)`` in pixels, x to the right and y down, in the edge frame: pixel column j covers
[j, j + 1), so widths are plain differences. Half-precision and integer inputs are computed and returned in
float32. Every function is differentiable, takes leading batch dimensions and traces into one graph.
"""

import math
from collections.abc import Sequence

import torch
from torch import Tensor

from lucid_geometry._checks import require_rows, working


def xyxy_to_cxcywh(boxes: Tensor) -> Tensor:
    """Return (..., 4) centres and extents of corner boxes (..., 4).

    Shapes: boxes ``Real[Tensor, "*batch 4"]`` -> ``Float[Tensor, "*batch 4"]``.

    >>> xyxy_to_cxcywh(torch.tensor([2.0, 3.0, 12.0, 9.0]))
    tensor([ 7.,  6., 10.,  6.])
    """
    x1, y1, x2, y2 = working(boxes, 4, "boxes").unbind(-1)
    return torch.stack(((x1 + x2) / 2, (y1 + y2) / 2, x2 - x1, y2 - y1), -1)


def cxcywh_to_xyxy(boxes: Tensor) -> Tensor:
    """Return (..., 4) corner boxes of centres and extents (..., 4).

    Shapes: boxes ``Real[Tensor, "*batch 4"]`` -> ``Float[Tensor, "*batch 4"]``.

    >>> cxcywh_to_xyxy(torch.tensor([7.0, 6.0, 10.0, 6.0]))
    tensor([ 2.,  3., 12.,  9.])
    """
    cx, cy, w, h = working(boxes, 4, "boxes").unbind(-1)
    half_w, half_h = w / 2, h / 2
    return torch.stack((cx - half_w, cy - half_h, cx + half_w, cy + half_h), -1)


def xyxy_to_xywh(boxes: Tensor) -> Tensor:
    """Return (..., 4) top-left corners and extents, the form of COCO files, of corner boxes (..., 4).

    Shapes: boxes ``Real[Tensor, "*batch 4"]`` -> ``Float[Tensor, "*batch 4"]``.

    >>> xyxy_to_xywh(torch.tensor([2.0, 3.0, 12.0, 9.0]))
    tensor([ 2.,  3., 10.,  6.])
    """
    x1, y1, x2, y2 = working(boxes, 4, "boxes").unbind(-1)
    return torch.stack((x1, y1, x2 - x1, y2 - y1), -1)


def xywh_to_xyxy(boxes: Tensor) -> Tensor:
    """Return (..., 4) corner boxes of top-left corners and extents (..., 4).

    Shapes: boxes ``Real[Tensor, "*batch 4"]`` -> ``Float[Tensor, "*batch 4"]``.

    >>> xywh_to_xyxy(torch.tensor([2.0, 3.0, 10.0, 6.0]))
    tensor([ 2.,  3., 12.,  9.])
    """
    x, y, w, h = working(boxes, 4, "boxes").unbind(-1)
    return torch.stack((x, y, x + w, y + h), -1)


def clip_boxes(boxes: Tensor, height: float, width: float) -> Tensor:
    """Return boxes (..., 4) with every corner moved into the canvas [0, width] x [0, height].

    Shapes: boxes ``Real[Tensor, "*batch 4"]`` -> ``Float[Tensor, "*batch 4"]``.

    >>> clip_boxes(torch.tensor([-3.0, 1.0, 9.0, 9.0]), height=6, width=8)
    tensor([0., 1., 8., 6.])
    """
    x1, y1, x2, y2 = working(boxes, 4, "boxes").unbind(-1)
    return torch.stack((x1.clamp(0, width), y1.clamp(0, height), x2.clamp(0, width), y2.clamp(0, height)), -1)


def box_area(boxes: Tensor) -> Tensor:
    """Return (...) areas in square pixels of boxes (..., 4); an inverted extent counts as 0.

    Shapes: boxes ``Real[Tensor, "*batch 4"]`` -> ``Float[Tensor, "*batch"]``.

    >>> box_area(torch.tensor([[0.0, 0.0, 4.0, 2.0], [5.0, 5.0, 1.0, 9.0]]))
    tensor([8., 0.])
    """
    x1, y1, x2, y2 = working(boxes, 4, "boxes").unbind(-1)
    return _extent(x1, x2) * _extent(y1, y2)


def box_iou(a: Tensor, b: Tensor, eps: float = 0.0) -> Tensor:
    """Return (..., N, M) intersection over union of all boxes ``a`` (..., N, 4) with all ``b`` (..., M, 4).

    Shapes: a ``Real[Tensor, "*#batch N 4"]``, b ``Real[Tensor, "*#batch M 4"]`` ->
    ``Float[Tensor, "*batch N M"]``.

    Leading dimensions broadcast. ``eps`` is added to the union; with the default 0 a pair of empty boxes
    scores 0, never NaN. Raises ValueError when an input is not (..., rows, 4).

    >>> a = torch.tensor([[0.0, 0.0, 10.0, 10.0]])
    >>> box_iou(a, torch.tensor([[5.0, 5.0, 15.0, 15.0], [0.0, 0.0, 10.0, 10.0]]))
    tensor([[0.1429, 1.0000]])
    """
    require_rows(a, "a")
    require_rows(b, "b")
    # contiguous coordinate planes: broadcasting strided ones over the (N, M) result does not vectorise
    first = working(a, 4, "a").movedim(-1, 0).contiguous().unsqueeze(-1)
    second = working(b, 4, "b").movedim(-1, 0).contiguous().unsqueeze(-2)
    return _iou(first.unbind(0), second.unbind(0), eps)


def aligned_box_iou(a: Tensor, b: Tensor, eps: float = 0.0) -> Tensor:
    """Return (...) intersection over union of boxes ``a`` (..., 4) and ``b`` (..., 4), row by row.

    Shapes: a ``Real[Tensor, "*#batch 4"]``, b ``Real[Tensor, "*#batch 4"]`` -> ``Float[Tensor, "*batch"]``.

    Leading dimensions broadcast; ``eps`` as in `box_iou`.

    >>> aligned_box_iou(torch.tensor([[0.0, 0.0, 10.0, 10.0]]), torch.tensor([[5.0, 5.0, 15.0, 15.0]]))
    tensor([0.1429])
    """
    return _iou(working(a, 4, "a").unbind(-1), working(b, 4, "b").unbind(-1), eps)


def complete_box_iou(pred: Tensor, target: Tensor, eps: float = 1e-7) -> Tensor:
    """Return (...) complete IoU of ``pred`` (..., 4) with ``target`` (..., 4), row by row, in (-2, 1].

    Shapes: pred ``Real[Tensor, "*#batch 4"]``, target ``Real[Tensor, "*#batch 4"]`` ->
    ``Float[Tensor, "*batch"]``.

    IoU less the squared centre distance over the squared diagonal of the enclosing box, less a weighted
    aspect term whose weight carries no gradient. Extents are clamped at 0, so an inverted box draws no
    gradient through its extents, and a box collapsed to a point has no aspect gradient. The loss is one
    minus this value.

    Source: Zheng et al., "Distance-IoU Loss", AAAI 2020, arXiv:1911.08287, equations 8 to 11; aspect angles
    as atan2(w, h), which stays finite where atan(w / h) does not.

    >>> complete_box_iou(torch.tensor([[0.0, 0.0, 10.0, 10.0]]), torch.tensor([[5.0, 5.0, 15.0, 15.0]]))
    tensor([0.0317])
    """
    p, t = working(pred, 4, "pred"), working(target, 4, "target")
    px1, py1, px2, py2 = p.unbind(-1)
    tx1, ty1, tx2, ty2 = t.unbind(-1)
    iou = _iou((px1, py1, px2, py2), (tx1, ty1, tx2, ty2), eps)
    diagonal = (torch.maximum(px2, tx2) - torch.minimum(px1, tx1)).square() + (
        torch.maximum(py2, ty2) - torch.minimum(py1, ty1)
    ).square()
    distance = ((px1 + px2 - tx1 - tx2).square() + (py1 + py2 - ty1 - ty2).square()) / 4
    aspect = (4 / math.pi**2) * (
        _aspect_angle(tx2 - tx1, ty2 - ty1) - _aspect_angle(px2 - px1, py2 - py1)
    ).square()
    weight = (aspect / ((1 - iou) + aspect + eps)).detach()
    return iou - distance / (diagonal + eps) - weight * aspect


def _iou(a: Sequence[Tensor], b: Sequence[Tensor], eps: float) -> Tensor:
    """Return the broadcast IoU of boxes given as four coordinate planes each."""
    ax1, ay1, ax2, ay2 = a
    bx1, by1, bx2, by2 = b
    areas = (_extent(ax1, ax2) * _extent(ay1, ay2)) + (_extent(bx1, bx2) * _extent(by1, by2))
    # in place on fresh tensors only: the dense use is (B, N, A), where every temporary is a pass over memory
    overlap = torch.minimum(ax2, bx2).sub_(torch.maximum(ax1, bx1)).clamp_(min=0)
    overlap = overlap.mul_(torch.minimum(ay2, by2).sub_(torch.maximum(ay1, by1)).clamp_(min=0))
    union = areas.sub_(overlap)
    if eps:
        union = union.add_(eps)
    else:
        union = union.clamp_(min=torch.finfo(union.dtype).tiny)
    return overlap / union


def _extent(low: Tensor, high: Tensor) -> Tensor:
    return (high - low).clamp(min=0)


def _aspect_angle(width: Tensor, height: Tensor) -> Tensor:
    """Return atan2(w, h) of extents clamped at 0, with value and gradient 0 where both vanish."""
    width, height = width.clamp(min=0), height.clamp(min=0)
    point = (width == 0) & (height == 0)
    return torch.atan2(width.masked_fill(point, 0.0), height.masked_fill(point, 1.0))
