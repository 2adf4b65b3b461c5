"""How a task's boxes are decoded, found and compared: one row for upright boxes, one for rotated ones."""

from collections.abc import Callable
from dataclasses import dataclass
from functools import partial

from torch import Tensor

from lucid_models.assign import Assignment, candidate_mask, decode_branch, rotated_candidate_mask
from lucid_models.heads import BranchOutput
from lucid_models.losses.box import box_loss, l1_loss
from lucid_models.losses.rotated import RotatedForm, rotated_box_loss, rotated_l1_loss


@dataclass(frozen=True)
class BoxForm:
    """One kind of box: its columns, and the functions that decode, find and compare it."""

    columns: int
    decode: Callable[[BranchOutput, Tensor, Tensor], Tensor]
    candidates: Callable[[Tensor, Tensor, Tensor], Tensor]
    box_loss: Callable[[Tensor, Assignment, Tensor], Tensor]
    l1_loss: Callable[[Tensor, Tensor, Assignment, Tensor], Tensor]


UPRIGHT = BoxForm(4, decode_branch, candidate_mask, box_loss, l1_loss)
"""Boxes (x1, y1, x2, y2): CIoU."""


def rotated(form: RotatedForm = "hellinger", fused_assignment: bool = False) -> BoxForm:
    """Return the row of boxes (cx, cy, w, h, theta) with one of the two losses of `probiou_loss`."""
    candidates = partial(rotated_candidate_mask, fused=fused_assignment)
    loss = partial(rotated_box_loss, form=form)
    return BoxForm(5, decode_branch, candidates, loss, rotated_l1_loss)
