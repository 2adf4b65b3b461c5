"""Task-aligned assignment with fixed shapes.

B images, N padded ground truths, A anchor points, C classes, k anchors ranked per ground truth. Suffixes name
the axes. After ranking, everything lives on (B, N, k) and (B, A): a ground truth has at most k anchors.

Source: Feng et al., "TOOD", arXiv:2108.07755, equations 1 to 3; small targets and the one-to-one branch as in
Jocher et al., arXiv:2606.03748, sections 3.2.1 and 3.3.3.
"""

import math
from dataclasses import dataclass
from typing import NamedTuple

import torch
from torch import Tensor

from lucid_geometry import box_iou
from lucid_models.assign.fused import ALIGNMENT, SETTLEMENT
from lucid_models.assign.one_to_one import keep_best
from lucid_models.assign.rotated import rotated_overlap

# pairs of rotated boxes compared at once
_ROTATED_PAIRS = 1 << 24
NAN_ORDER = 0x7F800001
"""The bits after infinity's: a NaN ranks there whatever its payload, so that NaN ties like any other value."""


@dataclass(frozen=True)
class AssignRule:
    """How one branch is assigned: metric s^alpha u^beta, best ``topk`` anchors, ``unique`` for one-to-one.

    ``eps`` is added to the union of the overlap u. Raises ValueError unless topk >= 1, the exponents are
    finite and not negative, and eps is finite and positive.
    """

    topk: int
    unique: bool = False
    alpha: float = 1.0
    beta: float = 6.0
    eps: float = 1e-9

    def __post_init__(self) -> None:
        if self.topk < 1:
            raise ValueError(f"AssignRule.topk must be at least 1, got {self.topk}")
        for name in ("alpha", "beta"):
            value = getattr(self, name)
            if not (math.isfinite(value) and value >= 0):
                raise ValueError(f"AssignRule.{name} must be finite and not negative, got {value}")
        if not (math.isfinite(self.eps) and self.eps > 0):
            raise ValueError(f"AssignRule.eps must be finite and positive, got {self.eps}")


MANY_RULE = AssignRule(topk=10)
"""The one-to-many branch."""
ONE_RULE = AssignRule(topk=7, unique=True)
"""The one-to-one branch."""


class Assignment(NamedTuple):
    """What each anchor answers for; background anchors hold False, -1, -1, zeros and 0."""

    fg_mask: Tensor
    """(B, A) bool."""
    gt_index: Tensor
    """(B, A) int64, row of the ground truth."""
    target_labels: Tensor
    """(B, A) int64."""
    target_boxes: Tensor
    """(B, A, 4) float32 xyxy, or (B, A, 5) for rotated ground truth; pixels."""
    align_weights: Tensor
    """(B, A) float32 in [0, 1]."""


class Ranked(NamedTuple):
    """The best k anchors of each ground truth, best first, ties by ascending anchor; all (B, N, k)."""

    anchor: Tensor
    metric: Tensor
    iou: Tensor
    chosen: Tensor
    """bool; false where the ground truth has fewer than k candidates."""


@torch.no_grad()
def assign_anchors(
    probabilities: Tensor,
    boxes: Tensor,
    gt_boxes: Tensor,
    gt_labels: Tensor,
    candidates: Tensor,
    rule: AssignRule,
    fused: bool = False,
) -> Assignment:
    """Return the `Assignment` of one branch from its own predictions, without gradients.

    ``probabilities`` (B, A, C) and ``boxes`` (B, A, 4) xyxy are the branch's predictions, ``gt_boxes``
    (B, N, 4), ``gt_labels`` (B, N) int64, ``candidates`` (B, N, A) from `candidate_mask`. Boxes of five
    columns, on both sides, are rotated ones and overlap by `rotated_overlap`. A ground truth with c
    candidates ranks min(topk, c) of them even where every metric is 0; an anchor ranked by several goes to
    the largest metric, ties to the lowest row; a one-to-one rule then keeps each ground truth's best. Weights
    are metric / best metric * best overlap over the positives of a ground truth. ``fused`` asks for kernels
    with the same bytes (the extra ``triton``, an NVIDIA device); where they do not apply it warns once.

    >>> gt, labels = torch.tensor([[[0.0, 0, 10, 10]]]), torch.tensor([[0]])
    >>> boxes = torch.tensor([[[0.0, 0, 10, 10], [0, 0, 5, 10]]])
    >>> scores, candidates = torch.full((1, 2, 1), 0.5), torch.tensor([[[True, True]]])
    >>> assign_anchors(scores, boxes, gt, labels, candidates, AssignRule(topk=2)).align_weights
    tensor([[1.0000, 0.0156]])
    """
    batch, anchors, _ = boxes.shape
    rows = gt_boxes.shape[1]
    if rows == 0:
        return _background(batch, anchors, gt_boxes.shape[-1], boxes.device)
    ranked = _rank_all(probabilities.float(), boxes.float(), gt_boxes, gt_labels, candidates, rule, fused)
    won = _settle(ranked, anchors, fused)
    if rule.unique:
        won = keep_best(won)
    zero = ranked.metric.new_zeros(())
    best_metric = torch.where(won, ranked.metric, zero).amax(-1, keepdim=True)
    best_iou = torch.where(won, ranked.iou, zero).amax(-1, keepdim=True)
    # a floor at the smallest normal number alone: the metric falls with the sixth power of the overlap
    tiny = torch.finfo(best_metric.dtype).tiny
    weight_BNk = ranked.metric / best_metric.clamp(min=tiny) * best_iou

    # every entry that won nothing is written to a spare last column, so no two writes meet in a real one
    target_BM = torch.where(won, ranked.anchor, anchors).flatten(1)
    row_BM = torch.arange(rows, device=boxes.device)[:, None].expand_as(won).flatten(1)
    gt_index = row_BM.new_full((batch, anchors + 1), -1).scatter_(1, target_BM, row_BM)[:, :anchors]
    weights = weight_BNk.new_zeros(batch, anchors + 1).scatter_(1, target_BM, weight_BNk.flatten(1))
    fg_mask, safe_index = gt_index >= 0, gt_index.clamp(min=0)
    labels = gt_labels.gather(1, safe_index)
    target_boxes = gt_boxes.gather(1, safe_index[..., None].expand(-1, -1, gt_boxes.shape[-1]))
    return Assignment(
        fg_mask,
        gt_index,
        torch.where(fg_mask, labels, -1),
        torch.where(fg_mask[..., None], target_boxes, zero),
        weights[:, :anchors],
    )


def _background(batch: int, anchors: int, columns: int, device: torch.device) -> Assignment:
    index = torch.full((batch, anchors), -1, device=device)
    zeros = torch.zeros(batch, anchors, device=device)
    return Assignment(index >= 0, index, index.clone(), zeros[..., None].repeat(1, 1, columns), zeros)


def _rank_all(
    probabilities: Tensor,
    boxes: Tensor,
    gt_boxes: Tensor,
    gt_labels: Tensor,
    candidates: Tensor,
    rule: AssignRule,
    fused: bool,
) -> Ranked:
    """Return `_rank` of the whole batch."""
    large = boxes.shape[-1] == 5 and candidates.numel() > _ROTATED_PAIRS
    if torch.compiler.is_compiling() or (boxes.device.type != "cpu" and not large):
        return _rank(probabilities, boxes, gt_boxes, gt_labels, candidates, rule, fused)
    # image by image the (N, A) planes stay in a CPU's cache, and rotated ones, of which there are many, in an
    # accelerator's memory; the result is the same
    images = [slice(b, b + 1) for b in range(len(boxes))]
    ranked = [
        _rank(probabilities[i], boxes[i], gt_boxes[i], gt_labels[i], candidates[i], rule, fused)
        for i in images
    ]
    return Ranked(*(torch.cat(fields) for fields in zip(*ranked, strict=True)))


def _rank(
    probabilities_BAC: Tensor,
    boxes_BA4: Tensor,
    gt_boxes_BN4: Tensor,
    gt_labels_BN: Tensor,
    candidates_BNA: Tensor,
    rule: AssignRule,
    fused: bool,
) -> Ranked:
    """Return the best anchors of each ground truth by the alignment metric."""
    anchors = boxes_BA4.shape[1]
    planes = (probabilities_BAC, boxes_BA4, gt_boxes_BN4, gt_labels_BN)
    if fused and boxes_BA4.shape[-1] == 4:
        iou_BNA, score_BNA = ALIGNMENT(
            lambda: _planes(*planes, rule.eps), planes, rule.eps, rows=gt_boxes_BN4
        )
    else:
        iou_BNA, score_BNA = _planes(*planes, rule.eps)
    metric_BNA = (_power(score_BNA, rule.alpha) * _power(iou_BNA, rule.beta)).abs_()  # no -0, see below

    # The bits of a float that is not negative order like the float. Below them goes the anchor, counted down,
    # so that equal metrics rank by ascending anchor on every device; non-candidates are negative.
    bits = torch.where(candidates_BNA, _order(metric_BNA), -1).to(torch.int64)
    countdown = torch.arange(anchors - 1, -1, -1, device=bits.device)
    key_BNk = (bits.bitwise_left_shift_(32) | countdown).topk(min(rule.topk, anchors)).values
    anchor_BNk = anchors - 1 - (key_BNk & 0xFFFFFFFF)
    return Ranked(anchor_BNk, metric_BNA.gather(-1, anchor_BNk), iou_BNA.gather(-1, anchor_BNk), key_BNk >= 0)


def _planes(
    probabilities_BAC: Tensor, boxes_BA4: Tensor, gt_boxes_BN4: Tensor, gt_labels_BN: Tensor, eps: float
) -> tuple[Tensor, Tensor]:
    """Return overlaps and the scores of the ground truths' classes, both (B, N, A)."""
    batch, anchors, classes = probabilities_BAC.shape
    if boxes_BA4.shape[-1] == 5:
        iou_BNA = rotated_overlap(gt_boxes_BN4, boxes_BA4)
    else:
        iou_BNA = box_iou(gt_boxes_BN4, boxes_BA4, eps=eps)
    class_row = gt_labels_BN.clamp(min=0) + classes * torch.arange(batch, device=boxes_BA4.device)[:, None]
    by_class = probabilities_BAC.transpose(1, 2).reshape(batch * classes, anchors)
    return iou_BNA, by_class.index_select(0, class_row.flatten()).view(batch, -1, anchors)


def _settle(ranked: Ranked, anchors: int, fused: bool) -> Tensor:
    """Return (B, N, k) bool: the ground truth keeps this anchor after conflicts."""
    if fused:
        claims = (ranked.anchor, ranked.metric, ranked.chosen)
        return SETTLEMENT(lambda: _settled(ranked, anchors), claims, anchors, rows=ranked.anchor)
    return _settled(ranked, anchors)


def _settled(ranked: Ranked, anchors: int) -> Tensor:
    batch, rows, _ = ranked.anchor.shape
    row = torch.arange(rows, device=ranked.anchor.device)[:, None]
    # as in the ranking: the metric's bits above, the row counted down below
    claim = (_order(ranked.metric).to(torch.int64) << 32) | (rows - 1 - row)
    claim = torch.where(ranked.chosen, claim, -1).flatten(1)
    anchor = ranked.anchor.flatten(1)
    best = claim.new_full((batch, anchors), -1).scatter_reduce_(1, anchor, claim, "amax")
    return ((best.gather(1, anchor) == claim) & (claim >= 0)).view_as(ranked.chosen)


def _order(metric: Tensor) -> Tensor:
    """Return int32 that orders metrics >= 0 as the floats do, with every NaN at one place above all else."""
    return metric.view(torch.int32).clamp(max=NAN_ORDER)


def _power(base: Tensor, exponent: float) -> Tensor:
    """Return base ** exponent for base >= 0; products where they do, several times faster than pow."""
    if exponent == 6:
        cube = base * base * base
        return cube.square_()
    return base if exponent == 1 else base.pow(exponent)
