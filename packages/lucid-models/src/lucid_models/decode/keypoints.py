"""From offsets to keypoints on the canvas."""

import torch
from torch import Tensor

from lucid_models.assign import rows_at
from lucid_models.heads import BranchOutput


def decode_keypoints(output: BranchOutput, points: Tensor, strides: Tensor, anchors: Tensor) -> Tensor:
    """Return keypoints (B, k, K, 3) float32 of the ``anchors`` (B, k) that a decoder chose.

    Rows of x and y in canvas pixels, unbounded, and the probability that the point is visible; zeros where
    the anchor is -1. Raises ValueError when the branch predicts no keypoints.

    >>> offsets, logits = torch.tensor([[[[1.0, -0.5]]]]), torch.zeros(1, 1, 1)
    >>> branch = BranchOutput(logits, torch.ones(1, 1, 4), keypoints=offsets, keypoint_visibility=logits)
    >>> decode_keypoints(branch, torch.tensor([[4.0, 4.0]]), torch.tensor([8.0]), torch.tensor([[0]]))
    tensor([[[[12.0000,  0.0000,  0.5000]]]])
    """
    if output.keypoints is None or output.keypoint_visibility is None:
        raise ValueError("decode_keypoints: the branch predicts no keypoints")
    safe = anchors.clamp(min=0)
    offsets = rows_at(output.keypoints, safe).float() * strides[safe][..., None, None]
    visible = rows_at(output.keypoint_visibility, safe).float().sigmoid()
    rows = torch.cat((points[safe][..., None, :] + offsets, visible[..., None]), -1)
    return torch.where(anchors[..., None, None] >= 0, rows, 0.0)
