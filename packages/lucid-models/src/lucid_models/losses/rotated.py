"""Losses of oriented boxes, computed on every anchor and kept on the positives.

B images, A anchor points; boxes are (cx, cy, w, h, theta). Predictions on background anchors are replaced
before any arithmetic, as in the upright losses.
"""

import math
from typing import Literal

import torch
from torch import Tensor

from lucid_geometry import angle_difference, probiou_loss
from lucid_models.assign import Assignment
from lucid_models.losses.box import positives_only, weighted_sum

# pixels; shorter sides count as this long in the elongation
_MIN_SIDE = 1e-4

RotatedForm = Literal["hellinger", "bhattacharyya"]


def rotated_box_loss(
    rboxes: Tensor, assignment: Assignment, normalizer: Tensor, form: RotatedForm = "hellinger"
) -> Tensor:
    """Return the weighted sum of the ProbIoU loss over the positives divided by ``normalizer``, 0-d.

    ``rboxes`` (B, A, 5) float. Without positives it is exactly 0, attached with zero gradient. Source:
    Llerena et al., "Gaussian Bounding Boxes and Probabilistic IoU", arXiv:2106.06072.

    >>> target = torch.tensor([[[0.0, 0, 40, 10, 0]]])
    >>> one = torch.ones(1, 1)
    >>> assignment = Assignment(one > 0, one.long() - 1, one.long() - 1, target, one)
    >>> rotated_box_loss(target, assignment, torch.tensor(1.0))
    tensor(0.)
    """
    safe, target = positives_only(rboxes, assignment)
    return weighted_sum(probiou_loss(safe, target, form), assignment) / normalizer


def rotated_l1_loss(rboxes: Tensor, strides: Tensor, assignment: Assignment, normalizer: Tensor) -> Tensor:
    """Return the weighted sum over positives of the errors of centre and sides in strides, over ``normalizer``.

    ``rboxes`` (B, A, 5) float, ``strides`` (A,) in pixels. With d the difference of the angles, the sides' error is
    cos^2 d (|w - w*| + |h - h*|) + sin^2 d (|w - h*| + |h - w*|): whichever sides lie along each other are compared,
    so that both descriptions of a rectangle score alike, and a box that fits but for a quarter turn does not. (Were
    long sides compared with long ones at every d, that box would be a trap: neither this term, the overlap nor
    `angle_loss` had a gradient out of it.) The rotated box and not its envelope is the target: an envelope would
    contradict the overlap term at every angle but 0. Without positives it is exactly 0, attached.

    >>> target = torch.tensor([[[0.0, 0, 40, 10, 0]]])
    >>> one = torch.ones(1, 1)
    >>> assignment = Assignment(one > 0, one.long() - 1, one.long() - 1, target, one)
    >>> rotated_l1_loss(target + torch.tensor([4.0, 4, 4, 4, 0]), torch.tensor([8.0]), assignment, torch.tensor(1.0))
    tensor(2.)
    """
    safe, target = positives_only(rboxes, assignment)
    centre = (safe - target)[..., :2].abs().sum(-1)
    along = (safe - target)[..., 2:4].abs().sum(-1)
    across = (safe[..., 2:4].flip(-1) - target[..., 2:4]).abs().sum(-1)
    turned = (safe[..., 4] - target[..., 4]).sin().square()
    return weighted_sum((centre + along.lerp(across, turned)) / strides, assignment) / normalizer


def angle_loss(angle: Tensor, assignment: Assignment, normalizer: Tensor, spread: float = 3.0) -> Tensor:
    """Return the weighted sum over positives of omega sin^2(2 d) divided by ``normalizer``, 0-d.

    d is the difference of the raw ``angle`` (B, A, 1) and the target's; omega = exp(-ln^2(w / h) / spread^2)
    of the target's sides weakens the term for elongated boxes, whose overlap already fixes the angle. The
    function has period pi / 2, so the two descriptions of a square score alike. Raises ValueError unless
    ``spread`` is positive. Source: Jocher et al., arXiv:2606.03748, equations 14 and 15.

    >>> target = torch.tensor([[[0.0, 0, 10, 10, 0]]])
    >>> one = torch.ones(1, 1)
    >>> assignment = Assignment(one > 0, one.long() - 1, one.long() - 1, target, one)
    >>> angle_loss(torch.full((1, 1, 1), 0.25), assignment, torch.tensor(1.0))
    tensor(0.2298)
    """
    if not spread > 0:
        raise ValueError(f"angle_loss: spread must be positive, got {spread}")
    foreground, target = assignment.fg_mask, assignment.target_boxes
    raw = torch.where(foreground, angle[..., 0], 0.0)
    width, height = target[..., 2].clamp(min=_MIN_SIDE), target[..., 3].clamp(min=_MIN_SIDE)
    omega = torch.exp(-((width / height).log() / spread).square())
    difference = angle_difference(raw, target[..., 4], period=math.pi / 2)
    return weighted_sum(omega * (2 * difference).sin().square(), assignment) / normalizer
