"""The detection objective: both branches assigned, scored and mixed.

B images, N padded ground truths, A anchor points, C classes. Source: Jocher et al., arXiv:2606.03748,
equations 2 and 3; Wang et al., "YOLOv10", arXiv:2405.14458.
"""

from typing import NamedTuple

import torch
from torch import Tensor

from lucid_models.assign import MANY_RULE, ONE_RULE, Assignment, AssignRule, assign_anchors
from lucid_models.heads import BranchOutput, HeadOutput
from lucid_models.losses.classification import classification_loss
from lucid_models.losses.form import UPRIGHT, BoxForm


class BranchLoss(NamedTuple):
    """One branch's parts before their gains, and its weighted total; all 0-d float32."""

    box: Tensor
    cls: Tensor
    l1: Tensor
    total: Tensor


class LossResult(NamedTuple):
    """The mixed total (0-d float32, attached), both branches' parts and the assignments they used."""

    total: Tensor
    o2m: BranchLoss
    o2o: BranchLoss
    o2m_assignment: Assignment
    o2o_assignment: Assignment


class DetectionLoss:
    """The loss alpha * one-to-many + (1 - alpha) * one-to-one, each gain-weighted box, class and L1 terms.

    ``form`` says what a box is: upright by default; ``fused_assignment`` as ``fused`` in `assign_anchors`.
    Shapes are fixed by the inputs, nothing but labels on a CPU is read back to the host, and everything is
    computed in float32 whatever the predictions' precision.

    >>> from lucid_models import build_detector, make_points
    >>> output = build_detector("detect", "n", num_classes=2)(torch.rand(2, 3, 64, 64))
    >>> points, strides = make_points(64, 64)
    >>> boxes = torch.tensor([[[8.0, 8.0, 40.0, 40.0]], [[0.0, 0.0, 0.0, 0.0]]])
    >>> labels, valid = torch.tensor([[1], [0]]), torch.tensor([[True], [False]])
    >>> result = DetectionLoss(2)(output, points, strides, boxes, labels, valid, alpha=0.8)
    >>> int(result.o2o_assignment.fg_mask.sum())
    1
    """

    def __init__(
        self,
        num_classes: int,
        box_gain: float = 7.5,
        class_gain: float = 0.5,
        l1_gain: float = 6.0,
        form: BoxForm = UPRIGHT,
        fused_assignment: bool = False,
    ) -> None:
        self.num_classes = num_classes
        self.box_gain = box_gain
        self.class_gain = class_gain
        self.l1_gain = l1_gain
        self.form = form
        self.fused_assignment = fused_assignment

    def __call__(
        self,
        output: HeadOutput,
        points: Tensor,
        strides: Tensor,
        boxes: Tensor,
        labels: Tensor,
        valid: Tensor,
        alpha: float | Tensor,
    ) -> LossResult:
        """Return the `LossResult` of a batch.

        ``points`` (A, 2) and ``strides`` (A,) of `make_points`; ``boxes`` (B, N, 4) xyxy canvas pixels
        ((B, N, 5) in the rotated form), ``labels`` (B, N) int64, ``valid`` (B, N) bool, false on padding; N
        may be 0. ``alpha`` in [0, 1], a float or a 0-d float64 tensor. CPU labels are checked by
        `check_labels`; on an accelerator check them before the transfer, where it costs no synchronisation.
        Raises ValueError for boxes of other columns.
        """
        if labels.device.type == "cpu" and not torch.compiler.is_compiling():
            check_labels(labels, valid, self.num_classes)
        return self.compute(output, points, strides, boxes, labels, valid, alpha)

    def compute(
        self,
        output: HeadOutput,
        points: Tensor,
        strides: Tensor,
        boxes: Tensor,
        labels: Tensor,
        valid: Tensor,
        alpha: float | Tensor,
    ) -> LossResult:
        """Return what a call returns without looking at the labels: nothing is read on the host, as recording asks."""
        if boxes.shape[-1] != self.form.columns:
            raise ValueError(
                f"boxes must have {self.form.columns} columns, got {tuple(boxes.shape)}; is this another task's loss?"
            )
        candidates = self.form.candidates(points, boxes, valid)
        targets = (points, strides, boxes, labels, candidates)
        o2m, o2m_assignment = self.branch(output.o2m, *targets, MANY_RULE)
        o2o, o2o_assignment = self.branch(output.o2o, *targets, ONE_RULE)
        total = mix(o2m.total, o2o.total, alpha)
        return LossResult(total, o2m, o2o, o2m_assignment, o2o_assignment)

    def branch(
        self,
        output: BranchOutput,
        points: Tensor,
        strides: Tensor,
        boxes: Tensor,
        labels: Tensor,
        candidates: Tensor,
        rule: AssignRule,
    ) -> tuple[BranchLoss, Assignment]:
        """Return one branch's losses and assignment; ``candidates`` (B, N, A) from `candidate_mask`."""
        logits, predicted = output.cls.float(), self.form.decode(output, points, strides)
        assignment = assign_anchors(
            logits.detach().sigmoid(),
            predicted.detach(),
            boxes.float(),
            labels,
            candidates,
            rule,
            self.fused_assignment,
        )
        normalizer = assignment.align_weights.sum().clamp(min=1)
        box = self.form.box_loss(predicted, assignment, normalizer)
        cls = classification_loss(logits, assignment, normalizer)
        l1 = self.form.l1_loss(predicted, strides, assignment, normalizer)
        total = self.box_gain * box + self.class_gain * cls + self.l1_gain * l1
        return BranchLoss(box, cls, l1, total), assignment


def mix(many: Tensor, one: Tensor, alpha: float | Tensor) -> Tensor:
    """Return alpha * many + (1 - alpha) * one in the dtype of the terms, both (...).

    >>> mix(torch.tensor(1.0), torch.tensor(3.0), 0.75)
    tensor(1.5000)
    """
    first, second = alpha, 1 - alpha  # the complement is formed in double precision either way
    if isinstance(first, Tensor) and isinstance(second, Tensor):
        first, second = first.to(many.dtype), second.to(many.dtype)
    return first * many + second * one


def check_labels(labels: Tensor, valid: Tensor, num_classes: int) -> None:
    """Raise ValueError when a valid row of ``labels`` (B, N) is no class index below ``num_classes``.

    Reads the labels on the host; on an accelerator this synchronises.

    >>> check_labels(torch.tensor([[0, 7]]), torch.tensor([[True, True]]), num_classes=3)
    Traceback (most recent call last):
    ValueError: label 7 in image 0, row 1 is outside 0..2; check the class list the detector was built with
    """
    wrong = ((labels < 0) | (labels >= num_classes)) & valid
    if wrong.any():
        image, row = wrong.nonzero()[0].tolist()
        raise ValueError(
            f"label {labels[image, row].item()} in image {image}, row {row} is outside 0..{num_classes - 1}; "
            "check the class list the detector was built with"
        )
