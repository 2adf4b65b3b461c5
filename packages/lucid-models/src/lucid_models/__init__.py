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
from lucid_models.checkpoint import CheckpointInfo, checkpoint_header, describe, load
from lucid_models.counting import Count, count
from lucid_models.decode import end_to_end, with_nms
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
from lucid_models.predictions import Predictions, to_predictions
from lucid_models.predictor import Predictor, letterbox_image
from lucid_models.registry import SIZES, STRIDES, TASKS, SizeSpec, TaskSpec
from lucid_models.transfer import Transfer, TransferRow, load_weights

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
    "CheckpointInfo",
    "Count",
    "Deployed",
    "DetectionLoss",
    "Detector",
    "HeadOutput",
    "LossResult",
    "Predictions",
    "Predictor",
    "SizeSpec",
    "TaskSpec",
    "Transfer",
    "TransferRow",
    "assign_anchors",
    "box_loss",
    "build_detector",
    "candidate_mask",
    "check_labels",
    "checkpoint_header",
    "classification_loss",
    "count",
    "decode_boxes",
    "deployed",
    "describe",
    "end_to_end",
    "fuse",
    "l1_loss",
    "letterbox_image",
    "load",
    "load_weights",
    "make_points",
    "to_predictions",
    "with_nms",
]
