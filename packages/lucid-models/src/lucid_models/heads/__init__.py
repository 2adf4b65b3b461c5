"""Prediction heads and the records they return."""

from lucid_models.heads.detect import Branch, Head
from lucid_models.heads.records import BranchOutput, HeadOutput
from lucid_models.heads.segment import NUM_PROTOTYPES, PROTOTYPE_STRIDE, MaskNet

__all__ = ["NUM_PROTOTYPES", "PROTOTYPE_STRIDE", "Branch", "BranchOutput", "Head", "HeadOutput", "MaskNet"]
