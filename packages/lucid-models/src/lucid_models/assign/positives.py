"""The positives of an assignment as rows of fixed number.

B images, A anchor points, P rows.
"""

from typing import NamedTuple

import torch
from torch import Tensor

from lucid_models.assign.tal import Assignment


class Positives(NamedTuple):
    """Positives in ascending anchor order, then filler; all (B, P)."""

    anchor: Tensor
    """int64, 0 on filler."""
    row: Tensor
    """int64, the ground truth's row, 0 on filler."""
    valid: Tensor
    """bool, false on filler."""


def positives(assignment: Assignment, limit: int) -> Positives:
    """Return the `Positives` of an assignment that has at most ``limit`` of them per image; P = ``limit``.

    The number of rows does not depend on values, so nothing is read back to the host.

    >>> index = torch.tensor([[-1, 2, -1, 0]])
    >>> weights = (index >= 0).float()
    >>> assignment = Assignment(index >= 0, index, index, torch.zeros(1, 4, 4), weights)
    >>> positives(assignment, 3)[:2]
    (tensor([[1, 3, 0]]), tensor([[2, 0, 0]]))
    """
    foreground = assignment.fg_mask
    place = foreground.cumsum(1)
    # background is written to a spare last column
    slot = torch.where(foreground, place - 1, limit)
    anchors = torch.arange(foreground.shape[1], device=slot.device).expand_as(slot)
    anchor = anchors.new_zeros(len(slot), limit + 1).scatter_(1, slot, anchors)[:, :limit]
    valid = torch.arange(limit, device=slot.device) < place[:, -1:]
    row = torch.where(valid, assignment.gt_index.gather(1, anchor), 0)
    return Positives(anchor, row, valid)


def rows_at(values: Tensor, index: Tensor) -> Tensor:
    """Return (B, P, ...) the rows of ``values`` (B, M, ...) at ``index`` (B, P) int64.

    >>> rows_at(torch.tensor([[[1.0, 2.0], [3.0, 4.0]]]), torch.tensor([[1, 1, 0]]))
    tensor([[[3., 4.],
             [3., 4.],
             [1., 2.]]])
    """
    wide = index.reshape(*index.shape, *(1 for _ in values.shape[2:])).expand(-1, -1, *values.shape[2:])
    return values.gather(1, wide)
