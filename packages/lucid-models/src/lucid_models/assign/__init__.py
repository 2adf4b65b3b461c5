"""Label assignment: which anchor points answer for which ground truth, and how strongly."""

from lucid_models.assign.grid import decode_boxes, make_points
from lucid_models.assign.one_to_one import keep_best
from lucid_models.assign.stal import candidate_mask
from lucid_models.assign.tal import MANY_RULE, ONE_RULE, Assignment, AssignRule, assign_anchors

__all__ = [
    "MANY_RULE",
    "ONE_RULE",
    "AssignRule",
    "Assignment",
    "assign_anchors",
    "candidate_mask",
    "decode_boxes",
    "keep_best",
    "make_points",
]
