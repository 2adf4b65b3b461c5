"""Three passes of label assignment as kernels for Triton (the extra ``triton``).

B images, N padded ground truths, A anchor points, C classes, k anchors ranked per ground truth. Each launcher gives
the bytes of the expressions it stands for: no product is contracted with a sum, quotients are rounded to nearest
with subnormals kept, minima and maxima carry NaN on, and their zero comes first, so that a zero keeps its sign where
the processor's does.
"""

from __future__ import annotations

from typing import Any

import torch
import triton
import triton.language as tl
from torch import Tensor

_BLOCK = 512


@triton.jit  # type: ignore[untyped-decorator]
def _least(a: Any, b: Any) -> Any:
    return tl.minimum(a, b, propagate_nan=tl.PropagateNan.ALL)


@triton.jit  # type: ignore[untyped-decorator]
def _most(a: Any, b: Any) -> Any:
    return tl.maximum(a, b, propagate_nan=tl.PropagateNan.ALL)


@triton.jit  # type: ignore[untyped-decorator]
def _align(
    probabilities: Any,
    boxes: Any,
    gt_boxes: Any,
    labels: Any,
    overlap_out: Any,
    score_out: Any,
    rows: Any,
    anchors: Any,
    classes: Any,
    eps: Any,
    BLOCK: tl.constexpr,
) -> None:
    row = tl.program_id(1).to(tl.int64)
    image = tl.program_id(2).to(tl.int64)
    at = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    inside = at < anchors
    truth = gt_boxes + 4 * (image * rows + row)
    ax1, ay1, ax2, ay2 = tl.load(truth), tl.load(truth + 1), tl.load(truth + 2), tl.load(truth + 3)
    box = boxes + 4 * (image * anchors + at)
    bx1 = tl.load(box, inside, 0.0)
    by1 = tl.load(box + 1, inside, 0.0)
    bx2 = tl.load(box + 2, inside, 0.0)
    by2 = tl.load(box + 3, inside, 0.0)
    areas = _most(0.0, ax2 - ax1) * _most(0.0, ay2 - ay1) + _most(0.0, bx2 - bx1) * _most(0.0, by2 - by1)
    shared = _most(0.0, _least(ax2, bx2) - _most(ax1, bx1)) * _most(0.0, _least(ay2, by2) - _most(ay1, by1))
    place = (image * rows + row) * anchors + at
    tl.store(overlap_out + place, tl.math.div_rn(shared, (areas - shared) + eps), inside)
    # padding may hold any label
    label = tl.minimum(tl.maximum(tl.load(labels + image * rows + row), 0), classes - 1)
    score = tl.load(probabilities + (image * anchors + at) * classes + label, inside, 0.0)
    tl.store(score_out + place, score, inside)


def alignment_planes(
    probabilities: Tensor, boxes: Tensor, gt_boxes: Tensor, labels: Tensor, eps: float
) -> tuple[Tensor, Tensor]:
    """Return overlaps and class scores (B, N, A) float32 of upright boxes, in one kernel.

    ``probabilities`` (B, A, C), ``boxes`` (B, A, 4) and ``gt_boxes`` (B, N, 4) are float32, ``labels`` (B, N)
    int64; ``eps`` is added to the union.
    """
    batch, anchors, classes = probabilities.shape
    rows = gt_boxes.shape[1]
    overlap = probabilities.new_empty(batch, rows, anchors)
    score = torch.empty_like(overlap)
    if overlap.numel():
        _align[(triton.cdiv(anchors, _BLOCK), rows, batch)](
            probabilities.contiguous(),
            boxes.contiguous(),
            gt_boxes.contiguous(),
            labels.contiguous(),
            overlap,
            score,
            rows,
            anchors,
            classes,
            eps,
            BLOCK=_BLOCK,
            enable_fp_fusion=False,
        )
    return overlap, score


@triton.jit  # type: ignore[untyped-decorator]
def _contain(
    points: Any, frames: Any, valid: Any, out: Any, rows: Any, anchors: Any, BLOCK: tl.constexpr
) -> None:
    line = tl.program_id(2).to(tl.int64) * rows + tl.program_id(1)
    at = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    inside = at < anchors
    frame = frames + 6 * line
    cos, sin = tl.load(frame + 2), tl.load(frame + 3)
    dx = tl.load(points + 2 * at, inside, 0.0) - tl.load(frame)
    dy = tl.load(points + 2 * at + 1, inside, 0.0) - tl.load(frame + 1)
    along = tl.abs(dx * cos + dy * sin) <= tl.load(frame + 4)
    across = tl.abs(dy * cos - dx * sin) <= tl.load(frame + 5)
    there = tl.load(valid + line) != 0
    tl.store(out + line * anchors + at, (along & across & there).to(tl.int8), inside)


def contained_points(points: Tensor, rboxes: Tensor, valid: Tensor) -> Tensor:
    """Return (B, N, A) bool: point (A, 2) lies in rotated box (B, N, 5), borders included, of a ``valid`` row.

    All float32 but ``valid`` (B, N) bool. Sines, cosines and half sides are those of torch.
    """
    batch, rows, _ = rboxes.shape
    cx, cy, w, h, theta = rboxes.unbind(-1)
    frames = torch.stack((cx, cy, torch.cos(theta), torch.sin(theta), w / 2, h / 2), -1)
    out = torch.empty(batch, rows, len(points), dtype=torch.bool, device=rboxes.device)
    if out.numel():
        _contain[(triton.cdiv(len(points), _BLOCK), rows, batch)](
            points.contiguous(),
            frames,
            valid.contiguous().view(torch.int8),
            out.view(torch.int8),
            rows,
            len(points),
            BLOCK=_BLOCK,
            enable_fp_fusion=False,
        )
    return out


@triton.jit  # type: ignore[untyped-decorator]
def _claims(
    anchor: Any, bits: Any, chosen: Any, at: Any, inside: Any, image: Any, rows: Any, ranks: Any
) -> Any:
    place = image * rows * ranks + at
    # the metric's order above, the row counted down below: of equal metrics the lowest row is the largest claim
    order = tl.minimum(tl.load(bits + place, inside, 0), 0x7F800001)
    claim = (order.to(tl.int64) << 32) | (rows - 1 - at // ranks).to(tl.int64)
    taking = inside & (tl.load(chosen + place, inside, 0) != 0)
    return tl.where(taking, claim, -1), tl.load(anchor + place, inside, 0), taking, place


@triton.jit  # type: ignore[untyped-decorator]
def _bid(
    anchor: Any, bits: Any, chosen: Any, best: Any, rows: Any, ranks: Any, anchors: Any, BLOCK: tl.constexpr
) -> None:
    image = tl.program_id(1).to(tl.int64)
    at = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    inside = at < rows * ranks
    claim, where, taking, _ = _claims(anchor, bits, chosen, at, inside, image, rows, ranks)
    # the largest of whole numbers does not depend on the order of arrival
    tl.atomic_max(best + image * anchors + where, claim, taking)


@triton.jit  # type: ignore[untyped-decorator]
def _award(
    anchor: Any,
    bits: Any,
    chosen: Any,
    best: Any,
    won: Any,
    rows: Any,
    ranks: Any,
    anchors: Any,
    BLOCK: tl.constexpr,
) -> None:
    image = tl.program_id(1).to(tl.int64)
    at = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    inside = at < rows * ranks
    claim, where, taking, place = _claims(anchor, bits, chosen, at, inside, image, rows, ranks)
    top = tl.load(best + image * anchors + where, inside, -1)
    won_here = (top == claim) & (claim >= 0)  # a metric with its sign bit set claims nothing
    tl.store(won + place, (taking & won_here).to(tl.int8), inside)


def settled_claims(anchor: Tensor, metric: Tensor, chosen: Tensor, anchors: int) -> Tensor:
    """Return (B, N, k) bool: the ground truth keeps this anchor, being the largest metric's lowest row there.

    ``anchor`` (B, N, k) int64 below ``anchors``, ``metric`` float32, ``chosen`` bool.
    """
    batch, rows, ranks = anchor.shape
    won = torch.empty(anchor.shape, dtype=torch.bool, device=anchor.device)
    if won.numel():
        best = anchor.new_full((batch, anchors), -1)
        claims = (
            anchor.contiguous(),
            metric.contiguous().view(torch.int32),
            chosen.contiguous().view(torch.int8),
        )
        grid = (triton.cdiv(rows * ranks, _BLOCK), batch)
        _bid[grid](*claims, best, rows, ranks, anchors, BLOCK=_BLOCK)
        _award[grid](*claims, best, won.view(torch.int8), rows, ranks, anchors, BLOCK=_BLOCK)
    return won
