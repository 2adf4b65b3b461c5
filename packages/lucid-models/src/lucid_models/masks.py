"""Instance masks as the network states them: weighted sums of prototypes, cut to a box.

B images, P masks each, K prototypes of h x w cells.
"""

import torch
from torch import Tensor


def assemble_masks(coeff: Tensor, prototypes: Tensor) -> Tensor:
    """Return mask logits (B, P, h, w) of coefficients (B, P, K) and prototypes (B, K, h, w).

    Source: Jocher et al., arXiv:2606.03748, equation 7.

    >>> assemble_masks(torch.tensor([[[2.0, -1.0]]]), torch.ones(1, 2, 1, 1))
    tensor([[[[1.]]]])
    """
    return (coeff @ prototypes.flatten(2)).view(*coeff.shape[:2], *prototypes.shape[2:])


def inside_boxes(boxes: Tensor, height: int, width: int) -> Tensor:
    """Return (..., height, width) bool: the pixel's centre lies in the box (..., 4), ends half-open.

    >>> inside_boxes(torch.tensor([1.0, 0.0, 2.5, 1.0]), 1, 4)
    tensor([[False,  True, False, False]])
    """
    x = torch.arange(width, device=boxes.device) + 0.5
    y = torch.arange(height, device=boxes.device) + 0.5
    return inside_at(boxes, x, y)


def inside_at(boxes: Tensor, x: Tensor, y: Tensor) -> Tensor:
    """Return (..., h, w) bool: the centre (x, y) lies in the box (..., 4), for ``x`` (w,) and ``y`` (h,).

    >>> inside_at(torch.tensor([1.0, 0.0, 2.5, 1.0]), torch.tensor([0.5, 1.5]), torch.tensor([0.5]))
    tensor([[False,  True]])
    """
    x1, y1, x2, y2 = boxes[..., None].unbind(-2)
    columns, rows = (x1 <= x) & (x < x2), (y1 <= y) & (y < y2)
    return rows[..., :, None] & columns[..., None, :]
