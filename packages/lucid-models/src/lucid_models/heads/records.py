"""The records a head returns.

B images, A anchor points in level order 8, 16, 32 and row-major, C classes, K keypoints.
"""

from typing import NamedTuple

from torch import Tensor


class BranchOutput(NamedTuple):
    """Dense output of one branch; what the task does not predict is None."""

    cls: Tensor
    """(B, A, C) class logits."""
    box: Tensor
    """(B, A, 4) distances left, top, right, bottom from the anchor point, in strides, unbounded."""
    coeff: Tensor | None = None
    """(B, A, 32) mask coefficients in [-1, 1]."""
    angle: Tensor | None = None
    """(B, A, 1) angle in radians, unbounded."""
    keypoints: Tensor | None = None
    """(B, A, K, 2) offsets from the anchor point, in strides, unbounded."""
    keypoint_visibility: Tensor | None = None
    """(B, A, K) visibility logits."""
    keypoint_sigma: Tensor | None = None
    """(B, A, K, 2) uncertainty before its sigmoid; training only."""
    prototypes: Tensor | None = None
    """(B, 32, H / 4, W / 4) mask prototypes, one tensor for both branches."""


class HeadOutput(NamedTuple):
    """Both branches: one-to-many (dense supervision) and one-to-one (the one that is deployed)."""

    o2m: BranchOutput
    o2o: BranchOutput
    semantic: Tensor | None = None
    """(B, C, H / 8, W / 8) class logits per cell; training mode of a segment detector only."""
