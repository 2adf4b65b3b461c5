"""A training step up to its gradients as one recording: network, decoding, assignment and loss."""

from typing import Any, Protocol

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
    State,
    padded,
)
from lucid_models import DetectionLoss, Detector, PaddedTargets, TaskLoss, TaskLossResult, check_labels
from lucid_train.replay.loss import MOST_ROWS, detached, settings_of


class Owner(Protocol):
    """Who has the network and its loss: a module in training."""

    detector: Detector
    criterion: TaskLoss


class ReplayedStep:
    """Calls a module's detector and loss as one region, forward and backward.

    Args:
        owner: the module; another detector or loss in its place ends the recording.
        backend: what records.
        device: where the module is.

    For the tasks ``detect`` and ``obb``: sums of the other tasks run over rows of targets, so that padding would round
    them differently. Targets are padded as in `ReplayedDetection`: to a power of two of rows, which grows as batches
    need it and makes a new recording each time. A batch without rows is native, and so are one of more than
    `MOST_ROWS` and a loss whose call is not the library's own. Gradients are summed inside in the native order. Of the
    results only the total carries a gradient.
    """

    def __init__(self, owner: Owner, backend: RecorderBackend, device: torch.device) -> None:
        self._owner = owner
        self._scalars = HostScalars({"alpha": 0.0}, device)
        self._capacity = capacity = Capacity(limit=MOST_ROWS)
        parts = detector, criterion, loss = owner.detector, owner.criterion, owner.criterion.detection
        self.region = GuardedRegion(
            "step",
            self._step,
            backend=backend,
            certificate=CompositeCertificate(
                ModuleCertificate(detector, criterion),
                settings_of(loss),
                FunctionCertificate(
                    parts=lambda: all(
                        now is then
                        for now, then in zip(
                            (owner.detector, owner.criterion, owner.criterion.detection), parts, strict=True
                        )
                    )
                ),
            ),
            differentiable=True,
            growth=True,
            admit=lambda *args: args[-2].shape[1] == capacity.rows and is_own(owner.criterion),
        )

    def __call__(
        self, images: Tensor, points: Tensor, strides: Tensor, targets: PaddedTargets, alpha: float | Tensor
    ) -> TaskLossResult:
        """Return the losses of a batch, replayed where they can be."""
        if targets.labels.device.type == "cpu":
            check_labels(targets.labels, targets.valid, self._owner.criterion.detection.num_classes)
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

    def close(self) -> None:
        """Forget the recording; later steps are native."""
        self.region.close()

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
        """Return the losses of a batch, their parts detached."""
        criterion: Any = self._owner.criterion
        # a recording reads nothing on the host: its labels were checked before
        loss = criterion.compute if self.region.state is State.RECORDING else criterion
        targets = PaddedTargets(labels=labels, valid=valid, **boxes)
        return total_alone(loss(self._owner.detector(images), points, strides, targets, alpha))


def is_own(criterion: TaskLoss) -> bool:
    """Return whether a call of the loss, and of the detection loss in it, is the library's own arithmetic."""
    own = type(criterion).forward is TaskLoss.forward and "forward" not in vars(criterion)
    return own and type(criterion.detection).__call__ is DetectionLoss.__call__


def total_alone(result: TaskLossResult) -> TaskLossResult:
    """Return the losses with a gradient in nothing but the total."""
    parts = result.detection
    parts = parts._replace(total=parts.total.detach(), o2m=detached(parts.o2m), o2o=detached(parts.o2o))
    return result._replace(
        detection=parts, extra={name: value.detach() for name, value in result.extra.items()}
    )
