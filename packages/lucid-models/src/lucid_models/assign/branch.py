"""The boxes of a branch, of whichever kind it predicts."""

from torch import Tensor

from lucid_models.assign.grid import decode_boxes
from lucid_models.assign.rotated import decode_rboxes
from lucid_models.heads import BranchOutput


def decode_branch(output: BranchOutput, points: Tensor, strides: Tensor) -> Tensor:
    """Return the boxes of a branch in canvas pixels: (B, A, 5) rotated where it predicts angles, else (B, A, 4).

    >>> import torch
    >>> branch = BranchOutput(cls=torch.zeros(1, 1, 2), box=torch.tensor([[[1.0, 2, 3, 4]]]))
    >>> decode_branch(branch, torch.tensor([[10.0, 10.0]]), torch.tensor([2.0]))
    tensor([[[ 8.,  6., 16., 18.]]])
    """
    if output.angle is None:
        return decode_boxes(output.box.float(), points, strides)
    return decode_rboxes(output.box.float(), output.angle.float(), points, strides)
