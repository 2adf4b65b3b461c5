"""Training losses of every task."""

from lucid_models.losses.box import box_loss, l1_loss
from lucid_models.losses.classification import classification_loss
from lucid_models.losses.dual import BranchLoss, DetectionLoss, LossResult, check_labels
from lucid_models.losses.flow import ResidualFlow
from lucid_models.losses.keypoints import (
    COCO_SIGMAS,
    KeypointResiduals,
    keypoint_likelihood_loss,
    keypoint_residuals,
    oks_loss,
    oks_sigmas,
    visibility_loss,
)
from lucid_models.losses.mask import (
    dice_loss,
    mask_loss,
    mask_values,
    semantic_loss,
    semantic_targets,
)
from lucid_models.losses.rotated import angle_loss, rotated_box_loss, rotated_l1_loss
from lucid_models.losses.settings import LossSettings
from lucid_models.losses.targets import PaddedTargets
from lucid_models.losses.task import TaskLoss, TaskLossResult, build_loss

__all__ = [
    "COCO_SIGMAS",
    "BranchLoss",
    "DetectionLoss",
    "KeypointResiduals",
    "LossResult",
    "LossSettings",
    "PaddedTargets",
    "ResidualFlow",
    "TaskLoss",
    "TaskLossResult",
    "angle_loss",
    "box_loss",
    "build_loss",
    "check_labels",
    "classification_loss",
    "dice_loss",
    "keypoint_likelihood_loss",
    "keypoint_residuals",
    "l1_loss",
    "mask_loss",
    "mask_values",
    "oks_loss",
    "oks_sigmas",
    "rotated_box_loss",
    "rotated_l1_loss",
    "semantic_loss",
    "semantic_targets",
    "visibility_loss",
]
