"""Rotated boxes cut to windows, refitted at their own angle."""

from __future__ import annotations

import torch
from torch import Tensor

from lucid_geometry import clip_rboxes


def clip_rboxes_to(rboxes: Tensor, windows: Tensor) -> tuple[Tensor, Tensor]:
    """Return rotated boxes (N, 5) and envelopes (N, 4) of what ``windows`` (4,) or (N, 4) leave of ``rboxes`` (N, 5).

    A box wholly inside comes back bit for bit; rows are zero where nothing is left. There are as many clips as
    different windows: four in a mosaic.

    >>> clip_rboxes_to(torch.tensor([[4.0, 1.0, 4.0, 2.0, 0.0]]), torch.tensor([0.0, 0.0, 5.0, 4.0]))[0].tolist()
    [[3.5, 1.0, 3.0, 2.0, 0.0]]
    """
    each = windows.expand(rboxes.shape[0], 4)
    out, envelopes = torch.zeros_like(rboxes), torch.zeros(rboxes.shape[0], 4)
    kinds, which = torch.unique(each, dim=0, return_inverse=True)
    for number, (x1, y1, x2, y2) in enumerate(kinds.tolist()):
        rows = (which == number).nonzero()[:, 0]
        shift = torch.tensor([x1, y1])
        mine = rboxes[rows]
        moved = torch.cat((mine[:, :2] - shift, mine[:, 2:]), 1)
        clipped = clip_rboxes(moved, y2 - y1, x2 - x1)
        left = clipped.areas > 0
        # a whole box keeps its bits: shifting there and back may not
        whole = (clipped.rboxes == moved).all(1, keepdim=True)
        back = torch.cat((clipped.rboxes[:, :2] + shift, clipped.rboxes[:, 2:]), 1)
        out[rows] = torch.where(whole, mine, back) * left[:, None]
        envelopes[rows] = (clipped.boxes + shift.repeat(2)) * left[:, None]
    return out, envelopes
