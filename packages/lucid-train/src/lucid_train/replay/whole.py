"""A training step up to its gradients as one recording: network, decoding, assignment and loss."""

from typing import Any

import torch
from torch import Tensor

from lucid_capture import (
    Capacity,
    CompositeCertificate,
    FunctionCertificate,
    GuardedRegion,
    HostScalars,
    ModuleCertificate,
    Reason,
    RecorderBackend,
    padded,
)
from lucid_models import Detector, PaddedTargets, TaskLoss, TaskLossResult, check_labels
from lucid_train.replay.loss import MOST_ROWS, detached


class ReplayedStep:
    """Calls a detector and its loss as one region, forward and backward.

    Args:
        detector: the network.
        criterion: its loss, of the task ``detect`` or ``obb``; sums of the other tasks run over rows of targets, so that
            padding would round them differently.
        backend: what records.
        device: where both are.

    Targets are padded as in `ReplayedDetection`: to a power of two of rows, which grows as batches need it and makes a
    new recording each time. A batch without rows is native, and so is one of more than `MOST_ROWS`. Gradients are
    summed inside in the native order. Of the results only the total carries a gradient.
    """

    def __init__(
        self, detector: Detector, criterion: TaskLoss, backend: RecorderBackend, device: torch.device
    ) -> None:
        self._detector, self._criterion = detector, criterion
        self._scalars = HostScalars({"alpha": 0.0}, device)
        self._capacity = capacity = Capacity(limit=MOST_ROWS)
        loss = criterion.detection
        settings = [name for name, value in vars(loss).items() if isinstance(value, bool | int | float)]
        constants = FunctionCertificate(
            form=lambda: id(loss.form),
            **{name: lambda name=name: getattr(loss, name) for name in settings},
            **{f"gain of {name}": lambda name=name: criterion.gains[name] for name in criterion.gains},
        )
        self.region = GuardedRegion(
            "step",
            self._step,
            backend=backend,
            certificate=CompositeCertificate(ModuleCertificate(detector, criterion), constants),
            differentiable=True,
            growth=True,
            admit=lambda *args: args[-2].shape[1] == capacity.rows,
        )

    def __call__(
        self, images: Tensor, points: Tensor, strides: Tensor, targets: PaddedTargets, alpha: float | Tensor
    ) -> TaskLossResult:
        """Return the losses of a batch, replayed where they can be."""
        if targets.labels.device.type == "cpu":
            check_labels(targets.labels, targets.valid, self._criterion.detection.num_classes)
        self._scalars["alpha"] = float(alpha)
        boxes = {"boxes": targets.boxes, "rboxes": targets.rboxes}
        given = {name: value for name, value in boxes.items() if value is not None}
        scale = self._scalars.tensors["alpha"]
        if not targets.labels.shape[1]:
            self.region.counts[Reason.DECLINED] += 1
            return self._step(images, points, strides, given, targets.labels, targets.valid, scale)
        wide = padded((given, targets.labels), self._capacity, targets.valid)
        result: TaskLossResult = self.region(images, points, strides, *wide.values, wide.valid, scale)
        return result

    def _step(
        self,
        images: Tensor,
        points: Tensor,
        strides: Tensor,
        boxes: dict[str, Tensor],
        labels: Tensor,
        valid: Tensor,
        alpha: Tensor,
    ) -> TaskLossResult:
        """Return the losses of a batch that was checked before, their parts detached."""
        targets = PaddedTargets(labels=labels, valid=valid, **boxes)
        return total_alone(self._criterion.compute(self._detector(images), points, strides, targets, alpha))


def total_alone(result: TaskLossResult) -> TaskLossResult:
    """Return the losses with a gradient in nothing but the total."""
    parts = result.detection
    parts = parts._replace(total=parts.total.detach(), o2m=detached(parts.o2m), o2o=detached(parts.o2o))
    return result._replace(detection=parts, extra={name: value.detach() for name, value in result.extra.items()})
