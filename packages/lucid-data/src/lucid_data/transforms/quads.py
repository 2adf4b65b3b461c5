"""Rotated boxes cut to windows, refitted at their own angle."""

from __future__ import annotations

import torch
from torch import Tensor

from lucid_geometry import clip_rboxes


def clip_rboxes_to(rboxes: Tensor, windows: Tensor) -> tuple[Tensor, Tensor]:
    """Return rotated boxes (N, 5) and envelopes (N, 4) of what ``windows`` (4,) or (N, 4) leave of ``rboxes`` (N, 5).

    A box wholly inside comes back bit for bit; rows are zero where nothing is left. Boxes of all windows are cut
    together.

    >>> clip_rboxes_to(torch.tensor([[4.0, 1.0, 4.0, 2.0, 0.0]]), torch.tensor([0.0, 0.0, 5.0, 4.0]))[0].tolist()
    [[3.5, 1.0, 3.0, 2.0, 0.0]]
    """
    each = windows.expand(rboxes.shape[0], 4)
    shift, size = each[:, :2], (each[:, 2:] - each[:, :2]).double()
    moved = torch.cat((rboxes[:, :2] - shift, rboxes[:, 2:]), 1)
    clipped = clip_rboxes(moved, size[:, 1], size[:, 0])
    left = (clipped.areas > 0)[:, None]
    # a whole box keeps its bits: shifting there and back may not
    whole = (clipped.rboxes == moved).all(1, keepdim=True)
    back = torch.cat((clipped.rboxes[:, :2] + shift, clipped.rboxes[:, 2:]), 1)
    return torch.where(whole, rboxes, back) * left, (clipped.boxes + shift.repeat(1, 2)) * left
