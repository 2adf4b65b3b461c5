"""Label assignment and detection loss as a recording with room for a fixed number of targets."""

from typing import Any

import torch
from torch import Tensor

from lucid_capture import (
    Capacity,
    FunctionCertificate,
    GuardedRegion,
    HostScalars,
    Reason,
    RecorderBackend,
    padded,
)
from lucid_models import (
    BranchLoss,
    BranchOutput,
    DetectionLoss,
    HeadOutput,
    LossResult,
    check_labels,
)

MOST_ROWS = 512
"""Rows of targets above which a batch is native: the planes of an assignment grow with them."""

Fields = tuple[Tensor, Tensor]


class ReplayedDetection(DetectionLoss):
    """The loss of ``native``, replayed while gradients are enabled.

    Targets are padded to a power of two of rows, which grows as batches need it and makes a new recording each time;
    padding selects no anchor and weighs nothing. Labels on a CPU are checked before anything is padded. A batch without
    rows is native, and so is one of more than `MOST_ROWS`. Of the results only the total carries a gradient. Copies and
    pickles are the native loss.
    """

    def __init__(self, native: DetectionLoss, backend: RecorderBackend, device: torch.device) -> None:
        vars(self).update(vars(native))
        self.native = native
        self._scalars = HostScalars({"alpha": 0.0}, device)
        self._capacity = capacity = Capacity(limit=MOST_ROWS)
        self.region = GuardedRegion(
            "loss",
            self._arithmetic,
            backend=backend,
            certificate=settings_of(self),
            differentiable=True,
            growth=True,
            admit=lambda *args: args[-2].shape[1] == capacity.rows,
        )

    def __reduce__(self) -> tuple[Any, ...]:
        # a copy replays nothing: it is a copy of the native loss
        return _itself, (self.native,)

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
        """Return what the native loss returns, replayed where it can be."""
        if not torch.is_grad_enabled():
            return super().__call__(output, points, strides, boxes, labels, valid, alpha)
        if not labels.shape[1]:
            self.region.counts[Reason.DECLINED] += 1
            return super().__call__(output, points, strides, boxes, labels, valid, alpha)
        if labels.device.type == "cpu":
            check_labels(labels, valid, self.num_classes)
        self._scalars["alpha"] = float(alpha)
        wide = padded((boxes, labels), self._capacity, valid)
        many, one = ((branch.cls, branch.box) for branch in output[:2])
        result: LossResult = self.region(
            many, one, points, strides, *wide.values, wide.valid, self._scalars.tensors["alpha"]
        )
        return result

    def _arithmetic(
        self,
        many: Fields,
        one: Fields,
        points: Tensor,
        strides: Tensor,
        boxes: Tensor,
        labels: Tensor,
        valid: Tensor,
        alpha: Tensor,
    ) -> LossResult:
        """Return the loss of fields that were checked before, its parts detached."""
        output = HeadOutput(BranchOutput(*many), BranchOutput(*one))
        found = self.compute(output, points, strides, boxes, labels, valid, alpha)
        return found._replace(o2m=detached(found.o2m), o2o=detached(found.o2o))


def settings_of(loss: DetectionLoss) -> FunctionCertificate:
    """Return what a recording of a loss bakes in: the numbers it was built with, and what a box is to it."""
    numbers = [name for name, value in vars(loss).items() if isinstance(value, bool | int | float)]
    # the form is kept alive here, so that no other one ever has its address
    held = loss.form
    return FunctionCertificate(
        form=lambda: loss.form is held, **{name: lambda name=name: getattr(loss, name) for name in numbers}
    )


def _itself(native: DetectionLoss) -> DetectionLoss:
    return native


def detached(parts: BranchLoss) -> BranchLoss:
    """Return the parts without their gradients."""
    return BranchLoss(*(part.detach() for part in parts))
