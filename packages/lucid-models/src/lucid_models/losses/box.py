"""Box regression losses, computed on every anchor and kept on the positives.

B images, A anchor points. Predictions on background anchors are replaced before any arithmetic, so a
degenerate or non-finite one changes neither value nor gradient.
"""

import torch
from torch import Tensor

from lucid_geometry import complete_box_iou
from lucid_models.assign import Assignment


def box_loss(boxes: Tensor, assignment: Assignment, normalizer: Tensor) -> Tensor:
    """Return the weighted sum of 1 - CIoU over the positives divided by ``normalizer``, 0-d.

    ``boxes`` (B, A, 4) xyxy float. Without positives it is exactly 0, attached with zero gradient. Source:
    Zheng et al., "Distance-IoU Loss", arXiv:1911.08287.

    >>> target = torch.tensor([[[0.0, 0, 10, 10]]])
    >>> one = torch.ones(1, 1)
    >>> assignment = Assignment(one > 0, one.long() - 1, one.long() - 1, target, one)
    >>> box_loss(target + 5, assignment, torch.tensor(1.0))
    tensor(0.9683)
    """
    safe, target = positives_only(boxes, assignment)
    return weighted_sum(1 - complete_box_iou(safe, target), assignment) / normalizer


def l1_loss(boxes: Tensor, strides: Tensor, assignment: Assignment, normalizer: Tensor) -> Tensor:
    """Return the weighted sum over positives of the corners' absolute errors in strides, over ``normalizer``.

    ``boxes`` (B, A, 4) xyxy float, ``strides`` (A,) in pixels. In pixels instead of strides this term would
    drown the others eight- to thirty-two-fold. Without positives it is exactly 0, attached.

    >>> target = torch.tensor([[[0.0, 0, 10, 10]]])
    >>> one = torch.ones(1, 1)
    >>> assignment = Assignment(one > 0, one.long() - 1, one.long() - 1, target, one)
    >>> l1_loss(target + 4, torch.tensor([8.0]), assignment, torch.tensor(1.0))
    tensor(2.)
    """
    safe, target = positives_only(boxes, assignment)
    return weighted_sum((safe - target).abs().sum(-1) / strides, assignment) / normalizer


def positives_only(boxes: Tensor, assignment: Assignment) -> tuple[Tensor, Tensor]:
    """Return predictions and targets with a harmless equal pair on background anchors."""
    # (0, 0, 1, 1), or (0, 0, 1, 1, 1) for rotated boxes, made on the device: a tensor of host values would be
    # a copy that waits
    unit = (torch.arange(boxes.shape[-1], device=boxes.device) > 1).to(boxes.dtype)
    foreground = assignment.fg_mask[..., None]
    return torch.where(foreground, boxes, unit), torch.where(foreground, assignment.target_boxes, unit)


def weighted_sum(values: Tensor, assignment: Assignment) -> Tensor:
    """Return the sum over positives of ``values`` (B, A) times their alignment weights, 0-d."""
    return torch.where(assignment.fg_mask, assignment.align_weights * values, 0.0).sum()
