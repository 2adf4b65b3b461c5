"""Training losses of the detection task."""

from lucid_models.losses.box import box_loss, l1_loss
from lucid_models.losses.classification import classification_loss
from lucid_models.losses.dual import BranchLoss, DetectionLoss, LossResult, check_labels

__all__ = [
    "BranchLoss",
    "DetectionLoss",
    "LossResult",
    "box_loss",
    "check_labels",
    "classification_loss",
    "l1_loss",
]
