"""Real-time detectors: network, assignment, losses, decoding, prediction."""

from lucid_models.assign import (
    MANY_RULE,
    ONE_RULE,
    Assignment,
    AssignRule,
    assign_anchors,
    candidate_mask,
    decode_boxes,
    make_points,
)
from lucid_models.counting import Count, count
from lucid_models.deploy import Deployed, deployed, fuse
from lucid_models.detector import Detector, build_detector
from lucid_models.heads import BranchOutput, HeadOutput
from lucid_models.losses import (
    BranchLoss,
    DetectionLoss,
    LossResult,
    box_loss,
    check_labels,
    classification_loss,
    l1_loss,
)
from lucid_models.registry import SIZES, STRIDES, TASKS, SizeSpec, TaskSpec

__all__ = [
    "MANY_RULE",
    "ONE_RULE",
    "SIZES",
    "STRIDES",
    "TASKS",
    "AssignRule",
    "Assignment",
    "BranchLoss",
    "BranchOutput",
    "Count",
    "Deployed",
    "DetectionLoss",
    "Detector",
    "HeadOutput",
    "LossResult",
    "SizeSpec",
    "TaskSpec",
    "assign_anchors",
    "box_loss",
    "build_detector",
    "candidate_mask",
    "check_labels",
    "classification_loss",
    "count",
    "decode_boxes",
    "deployed",
    "fuse",
    "l1_loss",
    "make_points",
]
