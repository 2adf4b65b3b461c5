"""The objective of every task behind one entry.

B images, N padded ground truths, A anchor points.
"""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from types import MappingProxyType
from typing import NamedTuple, cast

import torch
from torch import Tensor, nn

from lucid_models.heads import HeadOutput
from lucid_models.losses.dual import DetectionLoss, LossResult
from lucid_models.losses.form import UPRIGHT, rotated
from lucid_models.losses.settings import LossSettings
from lucid_models.losses.targets import PaddedTargets, need
from lucid_models.losses.terms import AngleTerms, KeypointTerms, MaskTerms, NoTerms, Step, Terms
from lucid_models.registry import TASKS, TaskSpec, look_up


class TaskLossResult(NamedTuple):
    """The objective of one step."""

    total: Tensor
    """0-d float32, attached."""
    detection: LossResult
    """Both branches' box, class and L1 parts, and the assignments they used."""
    extra: dict[str, Tensor]
    """The task's own terms by name, mixed over the branches, before their gains; 0-d."""

    def terms(self) -> dict[str, Tensor]:
        """Return everything worth logging by name: ``loss``, ``o2m_box`` to ``o2o_l1``, and ``extra``."""
        named = {"loss": self.total}
        for name, part in (("o2m", self.detection.o2m), ("o2o", self.detection.o2o)):
            named |= {f"{name}_box": part.box, f"{name}_cls": part.cls, f"{name}_l1": part.l1}
        return named | self.extra


@dataclass(frozen=True)
class Objective:
    """What one task adds: its extra terms, built last so that a seed's network does not depend on them."""

    terms: Callable[[int | None, LossSettings, Sequence[float] | None], nn.Module]
    gains: tuple[str, ...] = ()


def _keypoint_terms(count: int | None, settings: LossSettings, sigmas: Sequence[float] | None) -> nn.Module:
    if count is None or count < 1:
        raise ValueError(f"the pose loss needs num_keypoints of at least 1, got {count}")
    return KeypointTerms(count, settings, sigmas)


OBJECTIVES: Mapping[str, Objective] = MappingProxyType(
    {
        "detect": Objective(lambda *_: NoTerms()),
        "segment": Objective(lambda *_: MaskTerms(), ("mask", "semantic")),
        "obb": Objective(lambda *_: AngleTerms(), ("angle",)),
        "pose": Objective(_keypoint_terms, ("rle", "oks", "visibility")),
    }
)
"""What each task adds; read-only."""


class TaskLoss(nn.Module):
    """The loss of one task. Build it with `build_loss`.

    Shapes are fixed by the inputs and nothing is read back to the host; everything is computed in float32.
    Only the pose loss has parameters, those of its residual density; they want training with the network's.
    """

    def __init__(
        self, task: TaskSpec, detection: DetectionLoss, extra: nn.Module, gains: Mapping[str, float]
    ) -> None:
        super().__init__()
        self.task = task.name
        self.rotated = task.rotated
        self.detection = detection
        self.extra = extra
        self.gains = dict(gains)

    def forward(
        self,
        output: HeadOutput,
        points: Tensor,
        strides: Tensor,
        targets: PaddedTargets,
        alpha: float | Tensor,
    ) -> TaskLossResult:
        """Return the `TaskLossResult` of a batch.

        ``points`` (A, 2) and ``strides`` (A,) of `make_points`; ``alpha`` in [0, 1], a float or a 0-d float64
        tensor. Raises ValueError when the targets or the output lack what the task needs, or hold it in
        another shape, and what `check_labels` raises for labels on the CPU.
        """
        return self._objective(self.detection, output, points, strides, targets, alpha)

    def compute(
        self,
        output: HeadOutput,
        points: Tensor,
        strides: Tensor,
        targets: PaddedTargets,
        alpha: float | Tensor,
    ) -> TaskLossResult:
        """Return what a call returns, labels unread: the form for recordings, which must read nothing on the host.

        Takes what a call takes. Hooks of the module are not called, and labels outside of the classes are undefined
        behaviour: check them before.
        """
        return self._objective(self.detection.compute, output, points, strides, targets, alpha)

    def _objective(
        self,
        detect: Callable[..., LossResult],
        output: HeadOutput,
        points: Tensor,
        strides: Tensor,
        targets: PaddedTargets,
        alpha: float | Tensor,
    ) -> TaskLossResult:
        # the flow and the mask assembly are matrix products, which autocast would round
        with torch.autocast(points.device.type, enabled=False):
            boxes = need(targets, "rboxes", (5,)) if self.rotated else targets.boxes
            detection = detect(output, points, strides, boxes, targets.labels, targets.valid, alpha)
            extra = cast(Terms, self.extra(Step(output, points, strides, targets, detection, alpha)))
            total = detection.total
            for name, value in extra.items():
                total = total + self.gains[name] * value
        return TaskLossResult(total, detection, extra)


def build_loss(
    task: str,
    num_classes: int,
    *,
    num_keypoints: int | None = None,
    settings: LossSettings | None = None,
    sigmas: Sequence[float] | None = None,
    fused_assignment: bool = False,
) -> TaskLoss:
    """Return the `TaskLoss` of a task in `TASKS`; build it after the network.

    ``num_keypoints`` belongs to the pose task, as does ``sigmas``, its OKS constants (COCO's for 17 points
    and 0.072 for any other number by default).
    ``fused_assignment`` as ``fused`` in `assign_anchors`. Raises ValueError for an unknown task, a missing or unwanted
    keypoint count, and sigmas that do not fit it.

    >>> from lucid_models import build_detector, make_points
    >>> detector = build_detector("obb", "n", num_classes=2)
    >>> loss = build_loss("obb", 2)
    >>> rboxes = torch.tensor([[[32.0, 32.0, 40.0, 12.0, 0.4]]])
    >>> box, label, valid = torch.tensor([[[11.0, 19.0, 53.0, 45.0]]]), torch.tensor([[1]]), torch.tensor([[True]])
    >>> targets = PaddedTargets(box, label, valid, rboxes=rboxes)
    >>> result = loss(detector(torch.rand(1, 3, 64, 64)), *make_points(64, 64), targets, alpha=0.8)
    >>> sorted(result.extra)
    ['angle']
    """
    spec = look_up(TASKS, "task", task)
    if spec.num_keypoints is None and (num_keypoints is not None or sigmas is not None):
        raise ValueError(f"task {task!r} predicts no keypoints; leave num_keypoints and sigmas out")
    settings = LossSettings() if settings is None else settings
    form = rotated(settings.rotated_form, fused_assignment) if spec.rotated else UPRIGHT
    detection = DetectionLoss(num_classes, settings.box, settings.cls, settings.l1, form, fused_assignment)
    objective = OBJECTIVES[task]
    gains = {name: getattr(settings, name) for name in objective.gains}
    return TaskLoss(spec, detection, objective.terms(num_keypoints, settings, sigmas), gains)
