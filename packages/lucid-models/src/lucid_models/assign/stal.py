"""Which anchor points may answer for a ground truth, with small targets enlarged for this question only.

B images, N padded ground truths, A anchor points. Source: Jocher et al., arXiv:2606.03748, equations 4 to 6.
"""

import math

import torch
from torch import Tensor

from lucid_models.registry import STRIDES


def candidate_mask(
    points: Tensor,
    gt_boxes: Tensor,
    valid: Tensor,
    minimum: float = STRIDES[0],
    reference: float = STRIDES[1],
) -> Tensor:
    """Return (B, N, A) bool: the point lies in the ground truth, borders included, and the row is no padding.

    Each side below ``minimum`` pixels counts as ``reference`` pixels about the same centre, so that a box
    smaller than a cell still finds points. ``points`` (A, 2), ``gt_boxes`` (B, N, 4) xyxy, ``valid`` (B, N)
    bool. Raises ValueError unless 0 < minimum <= reference, both finite.

    >>> points = torch.tensor([[4.0, 4.0], [12.0, 4.0], [20.0, 4.0]])
    >>> candidate_mask(points, torch.tensor([[[5.0, 5.0, 11.0, 11.0]]]), torch.tensor([[True]]))
    tensor([[[ True,  True, False]]])
    """
    check_surrogate(minimum, reference)
    low, high = gt_boxes[..., :2], gt_boxes[..., 2:]
    centre, small = (low + high) / 2, high - low < minimum
    low = torch.where(small, centre - reference / 2, low)
    high = torch.where(small, centre + reference / 2, high)
    x1, y1 = low[..., None].unbind(-2)
    x2, y2 = high[..., None].unbind(-2)
    px, py = points.unbind(-1)
    inside = (px >= x1).logical_and_(px <= x2).logical_and_(py >= y1).logical_and_(py <= y2)
    return inside.logical_and_(valid[..., None])


def check_surrogate(minimum: float, reference: float) -> None:
    """Raise ValueError unless 0 < minimum <= reference, both finite."""
    if not (math.isfinite(minimum) and math.isfinite(reference) and 0 < minimum <= reference):
        raise ValueError(
            f"need finite 0 < minimum <= reference, got minimum {minimum}, reference {reference}"
        )
