"""Label assignment: which anchor points answer for which ground truth, and how strongly."""

from lucid_models.assign.branch import decode_branch
from lucid_models.assign.grid import decode_boxes, make_points
from lucid_models.assign.one_to_one import keep_best
from lucid_models.assign.positives import Positives, positives, rows_at
from lucid_models.assign.rotated import decode_rboxes, rotated_candidate_mask, rotated_overlap
from lucid_models.assign.stal import candidate_mask
from lucid_models.assign.tal import MANY_RULE, ONE_RULE, Assignment, AssignRule, assign_anchors

__all__ = [
    "MANY_RULE",
    "ONE_RULE",
    "AssignRule",
    "Assignment",
    "Positives",
    "assign_anchors",
    "candidate_mask",
    "decode_boxes",
    "decode_branch",
    "decode_rboxes",
    "keep_best",
    "make_points",
    "positives",
    "rotated_candidate_mask",
    "rotated_overlap",
    "rows_at",
]
