"""Prediction heads and the records they return."""

from lucid_models.heads.detect import Branch, Head
from lucid_models.heads.records import BranchOutput, HeadOutput

__all__ = ["Branch", "BranchOutput", "Head", "HeadOutput"]
