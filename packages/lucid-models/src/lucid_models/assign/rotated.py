"""Oriented boxes: decoding in the box's own frame, candidate points, and the overlap that ranks anchors.

B images, N padded ground truths, A anchor points. Rotated boxes are (cx, cy, w, h, theta) in canvas pixels and
radians, canonical as `lucid_geometry.canonicalize_rboxes` gives them.
"""

import torch
from torch import Tensor

from lucid_geometry import canonicalize_rboxes, points_in_rboxes, probiou
from lucid_models.assign.fused import CONTAINMENT
from lucid_models.assign.stal import check_surrogate
from lucid_models.registry import STRIDES

# pixels; beyond it the squares of squares in the overlap leave float32
_FARTHEST = 1e6


def decode_rboxes(box: Tensor, angle: Tensor, points: Tensor, strides: Tensor) -> Tensor:
    """Return canonical rotated boxes (..., A, 5) float32 of distances (..., A, 4) and angles (..., A, 1).

    Left, top, right and bottom are measured along the turned axes, from ``points`` (..., A, 2) in ``strides``
    (..., A), so that a point inside its box has no negative distance at any angle; at angle 0 the box is that
    of `decode_boxes`; half a turn exchanges opposite distances. Nothing is clamped. float64 stays float64.

    >>> box, angle = torch.tensor([[1.0, 1, 3, 1]]), torch.tensor([[0.0]])
    >>> decode_rboxes(box, angle, torch.tensor([[10.0, 10]]), torch.tensor([2.0]))
    tensor([[12., 10.,  8.,  4.,  0.]])
    """
    if box.dtype != torch.float64:
        box, angle = box.float(), angle.float()
    left, top, right, bottom = (box * strides[..., None]).unbind(-1)
    theta = angle[..., 0]
    cos, sin = theta.cos(), theta.sin()
    along, across = (right - left) / 2, (bottom - top) / 2
    x, y = points.unbind(-1)
    cx, cy = x + along * cos - across * sin, y + along * sin + across * cos
    return canonicalize_rboxes(torch.stack((cx, cy, left + right, top + bottom, theta), -1))


def rotated_candidate_mask(
    points: Tensor,
    gt_rboxes: Tensor,
    valid: Tensor,
    minimum: float = STRIDES[0],
    reference: float = STRIDES[1],
    fused: bool = False,
) -> Tensor:
    """Return (B, N, A) bool: as `candidate_mask`, for rotated ground truth (B, N, 5) and its own two sides.

    ``fused`` as in `assign_anchors`.

    >>> points = torch.tensor([[4.0, 4.0], [12.0, 4.0], [20.0, 4.0]])
    >>> rbox = torch.tensor([[[12.0, 4.0, 20.0, 2.0, 0.0]]])
    >>> rotated_candidate_mask(points, rbox, torch.tensor([[True]]))
    tensor([[[True, True, True]]])
    """
    check_surrogate(minimum, reference)
    sides = gt_rboxes[..., 2:4]
    sides = torch.where(sides < minimum, reference, sides)
    # a height above the width stays: containment does not ask for the canonical form
    surrogate = torch.cat((gt_rboxes[..., :2], sides, gt_rboxes[..., 4:]), -1)

    def native() -> Tensor:
        return points_in_rboxes(points, surrogate).transpose(-1, -2) & valid[..., None]

    return CONTAINMENT(native, (points, surrogate, valid), rows=valid) if fused else native()


def rotated_overlap(gt_rboxes: Tensor, rboxes: Tensor) -> Tensor:
    """Return (B, N, A) ProbIoU of ground truth (B, N, 5) with predictions (B, A, 5).

    ProbIoU, not exact IoU: it is what the box loss raises, it has one closed form for every pair and so a
    fixed shape, and it ranks predictions that do not meet yet. A prediction that is not finite, or lies a
    million pixels away, overlaps nothing. Source: Llerena et al., arXiv:2106.06072.

    >>> bar = torch.tensor([[[0.0, 0.0, 40.0, 10.0, 0.7853982]]])
    >>> rotated_overlap(bar, bar)
    tensor([[[1.]]])
    """
    near = (rboxes.abs() < _FARTHEST).all(-1)  # false for NaN
    safe = torch.where(near[..., None], rboxes, 1.0)
    overlap = probiou(gt_rboxes[..., :, None, :], safe[..., None, :, :])
    return torch.where(near[..., None, :], overlap, 0.0)
