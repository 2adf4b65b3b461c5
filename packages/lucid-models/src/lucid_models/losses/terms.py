"""What each task adds to boxes and classes: terms of both branches, gathered by the assignments they got.

Every term is mixed like the rest, alpha * one-to-many + (1 - alpha) * one-to-one. A batch of no rows (N = 0)
gives the masks and keypoints terms that depend on nothing, so that the predictions only they read get no
gradient at all, rather than zero gradients that would move an optimizer's state; angles do get zeros.
"""

from collections.abc import Sequence
from dataclasses import dataclass

import torch
from torch import Tensor, nn

from lucid_models.assign import MANY_RULE, Positives, positives, rows_at
from lucid_models.heads import PROTOTYPE_STRIDE, BranchOutput, HeadOutput
from lucid_models.losses.dual import LossResult, mix
from lucid_models.losses.flow import ResidualFlow
from lucid_models.losses.keypoints import (
    KeypointResiduals,
    densities,
    keypoint_likelihood_loss,
    keypoint_residuals,
    oks_loss,
    oks_sigmas,
    visibility_loss,
)
from lucid_models.losses.mask import mask_loss, semantic_loss, semantic_targets
from lucid_models.losses.rotated import angle_loss
from lucid_models.losses.settings import LossSettings
from lucid_models.losses.targets import PaddedTargets, need
from lucid_models.masks import inside_boxes

Terms = dict[str, Tensor]


@dataclass(frozen=True)
class Step:
    """What the extra terms of one step are made from."""

    output: HeadOutput
    points: Tensor
    strides: Tensor
    targets: PaddedTargets
    detection: LossResult
    alpha: float | Tensor

    @property
    def branches(self) -> tuple[BranchOutput, BranchOutput]:
        """One-to-many, one-to-one."""
        return self.output.o2m, self.output.o2o

    def chosen(self) -> tuple[Positives, Positives]:
        """Return the positives of both branches."""
        rows = self.targets.labels.shape[1]
        many, one = self.detection.o2m_assignment, self.detection.o2o_assignment
        anchors = many.fg_mask.shape[1]
        return (
            positives(many, min(anchors, rows * MANY_RULE.topk)),
            positives(one, min(anchors, rows)),
        )

    def zero(self) -> Tensor:
        """Return a 0-d zero that depends on nothing."""
        return torch.zeros((), device=self.points.device)


class NoTerms(nn.Module):
    """Nothing: boxes and classes are the whole task."""

    def forward(self, step: Step) -> Terms:
        """Return no terms."""
        return {}


class MaskTerms(nn.Module):
    """``mask`` of both branches, and ``semantic`` while the network trains."""

    def forward(self, step: Step) -> Terms:
        """Return the terms before their gains, 0-d."""
        targets, (many, one) = step.targets, step.branches
        prototypes = _predicted(many.prototypes, "prototypes").float()
        masks = need(targets, "masks", tuple(prototypes.shape[-2:])).bool()
        known = targets.valid if targets.mask_ok is None else targets.valid & targets.mask_ok
        semantic = step.zero()
        if step.output.semantic is not None:
            logits = step.output.semantic.float()
            classes = logits.shape[1]
            wanted = semantic_targets(masks, targets.labels, known, classes)
            semantic = semantic_loss(logits, wanted, _unknown_cells(targets, masks, classes))
        if targets.labels.shape[1] == 0:
            return {"mask": step.zero(), "semantic": semantic}
        boxes = targets.boxes.float() / PROTOTYPE_STRIDE
        both = [
            mask_loss(_predicted(branch.coeff, "coeff").float(), prototypes, chosen, masks, boxes, known)
            for branch, chosen in zip((many, one), step.chosen(), strict=True)
        ]
        return {"mask": mix(both[0], both[1], step.alpha), "semantic": semantic}


class AngleTerms(nn.Module):
    """``angle`` of both branches; overlap and distances of rotated boxes stand in the branches' own parts."""

    def forward(self, step: Step) -> Terms:
        """Return the term before its gain, 0-d."""
        assignments = (step.detection.o2m_assignment, step.detection.o2o_assignment)
        both = [
            angle_loss(
                _predicted(branch.angle, "angle").float(),
                assignment,
                assignment.align_weights.sum().clamp(min=1),
            )
            for branch, assignment in zip(step.branches, assignments, strict=True)
        ]
        return {"angle": mix(both[0], both[1], step.alpha)}


class KeypointTerms(nn.Module):
    """``rle`` (or the plain Laplace likelihood), ``oks`` and ``visibility`` of both branches.

    One density serves both branches. It holds the only parameters of any loss.
    """

    sigmas: Tensor

    def __init__(
        self, num_keypoints: int, settings: LossSettings, sigmas: Sequence[float] | None = None
    ) -> None:
        super().__init__()
        self.num_keypoints = num_keypoints
        self.paired = settings.paired_density
        self.log_sigma_count = settings.log_sigma_count
        self.flow = ResidualFlow() if settings.likelihood == "rle" else None
        self.register_buffer("sigmas", oks_sigmas(num_keypoints, sigmas), persistent=False)

    def forward(self, step: Step) -> Terms:
        """Return the terms before their gains, 0-d."""
        keypoints = need(step.targets, "keypoints", (self.num_keypoints, 3)).float()
        if step.targets.labels.shape[1] == 0:
            return {name: step.zero() for name in ("rle", "oks", "visibility")}
        pairs = zip(step.branches, step.chosen(), strict=True)
        rows = [self._branch(step, branch, chosen, keypoints) for branch, chosen in pairs]
        density: list[Tensor | None] = [None, None]
        if self.flow is not None:
            density = [*densities(self.flow, [parts for parts, _, _ in rows], self.paired)]
        many, one = (
            (keypoint_likelihood_loss(parts, log_density, self.log_sigma_count), oks, visibility)
            for (parts, oks, visibility), log_density in zip(rows, density, strict=True)
        )
        names = ("rle", "oks", "visibility")
        return {
            name: mix(first, second, step.alpha) for name, first, second in zip(names, many, one, strict=True)
        }

    def _branch(
        self, step: Step, branch: BranchOutput, chosen: Positives, keypoints: Tensor
    ) -> tuple[KeypointResiduals, Tensor, Tensor]:
        """Return one branch's residuals, OKS term and visibility term."""
        raw = rows_at(_predicted(branch.keypoints, "keypoints").float(), chosen.anchor)
        at = step.points[chosen.anchor][..., None, :]
        points = at + raw * step.strides[chosen.anchor][..., None, None]
        target = rows_at(keypoints, chosen.row)
        boxes = rows_at(step.targets.boxes.float(), chosen.row)
        counted = (target[..., 2] > 0) & chosen.valid[..., None]
        sigma = rows_at(_predicted(branch.keypoint_sigma, "keypoint_sigma").float(), chosen.anchor)
        logits = rows_at(_predicted(branch.keypoint_visibility, "keypoint_visibility").float(), chosen.anchor)
        return (
            keypoint_residuals(points, sigma, target[..., :2], boxes, counted),
            oks_loss(points, target[..., :2], boxes, counted, self.sigmas),
            visibility_loss(logits, counted, counted.any(-1)),
        )


def _unknown_cells(targets: PaddedTargets, masks: Tensor, classes: int) -> Tensor | None:
    """Return (B, C, h / 2, w / 2) bool: cells in the box of an instance of the class whose mask is not known."""
    if targets.mask_ok is None:
        return None
    boxes = inside_boxes(targets.boxes.float() / PROTOTYPE_STRIDE, *masks.shape[-2:])
    return semantic_targets(boxes, targets.labels, targets.valid & ~targets.mask_ok, classes) > 0


def _predicted(value: Tensor | None, field: str) -> Tensor:
    if value is None:
        raise ValueError(f"the network's output has no {field}; is its task another than the loss's?")
    return value
