"""Greedy non-maximum suppression, class aware, for upright and rotated boxes, in pure torch."""

from collections.abc import Callable

import torch
from torch import Tensor

from lucid_geometry._checks import working
from lucid_geometry.boxes import box_iou
from lucid_geometry.rotated_iou import rotated_box_iou

# boxes decided together; bounds the overlap matrix at BLOCK x max(kept, BLOCK)
_BLOCK = 1024


def nms(
    boxes: Tensor,
    scores: Tensor,
    iou_threshold: float,
    labels: Tensor | None = None,
    limit: int | None = None,
) -> Tensor:
    """Return int64 indices of the boxes (N, 4) that greedy suppression keeps, best score first.

    Shapes: boxes ``Real[Tensor, "N 4"]``, scores ``Real[Tensor, "N"]``, labels ``Int[Tensor, "N"]`` ->
    ``Int64[Tensor, "kept"]``.

    A box is dropped when its IoU with a kept box of a better score (and, with ``labels`` (N,), of the same
    class) is greater than ``iou_threshold``. Equal scores keep their input order. ``limit`` stops at that
    many survivors. Raises ValueError when shapes disagree or the threshold lies outside [0, 1].

    >>> boxes = torch.tensor([[0.0, 0.0, 10.0, 10.0], [1.0, 0.0, 11.0, 10.0], [20.0, 0.0, 30.0, 10.0]])
    >>> nms(boxes, torch.tensor([0.5, 0.9, 0.7]), iou_threshold=0.5)
    tensor([1, 2])
    """
    return suppress(working(boxes, 4, "boxes"), scores, iou_threshold, labels, limit, box_iou)


def rotated_nms(
    rboxes: Tensor,
    scores: Tensor,
    iou_threshold: float,
    labels: Tensor | None = None,
    limit: int | None = None,
) -> Tensor:
    """Return int64 indices of the rotated boxes (N, 5) that greedy suppression keeps, best score first.

    Shapes: rboxes ``Real[Tensor, "N 5"]``, scores ``Real[Tensor, "N"]``, labels ``Int[Tensor, "N"]`` ->
    ``Int64[Tensor, "kept"]``.

    As `nms`, with exact rotated IoU: the envelopes of two crossing bars coincide while the bars barely
    overlap.

    >>> bars = torch.tensor([[0.0, 0.0, 20.0, 2.0, t] for t in (0.0, 1.6, 0.05)])
    >>> rotated_nms(bars, torch.tensor([0.9, 0.8, 0.7]), iou_threshold=0.5)
    tensor([0, 1])
    """
    return suppress(working(rboxes, 5, "rboxes"), scores, iou_threshold, labels, limit, rotated_box_iou)


def suppress(
    boxes: Tensor,
    scores: Tensor,
    iou_threshold: float,
    labels: Tensor | None,
    limit: int | None,
    overlap: Callable[[Tensor, Tensor], Tensor],
) -> Tensor:
    """Return kept indices of greedy suppression under a pairwise ``overlap`` (N, D) x (M, D) -> (N, M).

    Sorted boxes are taken a block at a time. A block first loses what earlier survivors suppress, then is
    solved as a fixed point: a box lives when no living better box suppresses it. Iterating that rule from
    "all live" settles the best boxes first and ends at the greedy answer, which is the only fixed point
    (Zheng et al., "Cluster-NMS", arXiv:2005.03572).
    """
    if boxes.dim() != 2:
        raise ValueError(f"boxes must have shape (N, columns), got {tuple(boxes.shape)}")
    if scores.shape != boxes.shape[:1]:
        raise ValueError(f"scores must have shape ({len(boxes)},), got {tuple(scores.shape)}")
    if labels is not None and labels.shape != boxes.shape[:1]:
        raise ValueError(f"labels must have shape ({len(boxes)},), got {tuple(labels.shape)}")
    if not 0 <= iou_threshold <= 1:
        raise ValueError(f"iou_threshold must lie in [0, 1], got {iou_threshold}")
    order = torch.argsort(scores, descending=True, stable=True)
    kept = order[:0]
    for block in torch.split(order, _BLOCK):
        alive = torch.ones_like(block, dtype=torch.bool)
        if len(kept):
            alive = ~_hits(boxes, labels, kept, block, iou_threshold, overlap).any(0)
        block = block[alive]
        inside = _hits(boxes, labels, block, block, iou_threshold, overlap).triu_(1)
        alive = torch.ones_like(block, dtype=torch.bool)
        while True:
            settled = ~(inside & alive.unsqueeze(1)).any(0)
            if torch.equal(settled, alive):
                break
            alive = settled
        kept = torch.cat((kept, block[alive]))
        if limit is not None and len(kept) >= limit:
            return kept[:limit]
    return kept


def _hits(
    boxes: Tensor,
    labels: Tensor | None,
    rows: Tensor,
    columns: Tensor,
    threshold: float,
    overlap: Callable[[Tensor, Tensor], Tensor],
) -> Tensor:
    hit = overlap(boxes[rows], boxes[columns]) > threshold
    if labels is None:
        return hit
    return hit & (labels[rows].unsqueeze(1) == labels[columns].unsqueeze(0))
