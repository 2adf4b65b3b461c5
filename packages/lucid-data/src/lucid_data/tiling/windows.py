"""Where the tiles of a large picture lie, and what each leaves of the labels (Xia et al., CVPR 2018, section 5)."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

import numpy as np
import numpy.typing as npt
import torch
from torch import Tensor

from lucid_geometry import clip_rboxes

# from this visible fraction on an object keeps its annotation whole
WHOLE: Final = 0.7


def tile_windows(height: int, width: int, patch: int = 1024, overlap: int = 200) -> npt.NDArray[np.int64]:
    """Return (T, 4) windows x1 y1 x2 y2, row by row, that cover a picture of ``height`` x ``width``.

    Windows are ``patch`` wide and high (the picture's side where that is less) and step by ``patch - overlap``; the
    last one ends at the border. Raises ValueError unless 0 <= overlap < patch and the sides are positive.

    >>> tile_windows(1000, 2500)[:, 0].tolist()
    [0, 824, 1476]
    """
    if not 0 <= overlap < patch:
        raise ValueError(f"overlap must be in 0..{patch - 1} for a patch of {patch}, got {overlap}")
    if height < 1 or width < 1:
        raise ValueError(f"a picture has positive sides, got {height} x {width}")
    y, x = _starts(height, patch, patch - overlap), _starts(width, patch, patch - overlap)
    top, left = (grid.ravel() for grid in np.meshgrid(y, x, indexing="ij"))
    return np.stack([left, top, left + min(patch, width), top + min(patch, height)], 1)


def _starts(length: int, patch: int, stride: int) -> npt.NDArray[np.int64]:
    starts = np.arange(0, max(length - patch, 0) + 1, stride, dtype=np.int64)
    return np.append(starts, length - patch) if starts[-1] + patch < length else starts


@dataclass(frozen=True, eq=False)
class WindowLabels:
    """What windows leave of a picture's objects, one row per pair of window and object that shows in it.

    Attributes:
        window, instance: (P,) int64, ascending.
        rboxes: (P, 5) float64 in pixels of the window.
        boxes: (P, 4) float64 in pixels of the window.
        visible: (P,) float64 fraction of the object's area inside.
        cut: (P,) bool, whether the label was refitted to the visible part.
    """

    window: Tensor
    instance: Tensor
    rboxes: Tensor
    boxes: Tensor
    visible: Tensor
    cut: Tensor


def window_labels(rboxes: Tensor, boxes: Tensor, windows: npt.NDArray[np.int64]) -> WindowLabels:
    """Return what ``windows`` (T, 4), all of one size, leave of ``rboxes`` (M, 5) and their annotated ``boxes`` (M, 4).

    An object with at least 0.7 of its area inside keeps its label, moved but not cut. Another one that shows becomes
    the rotated box at its own angle around the visible part, with that part's envelope as box. Objects without area and
    windows they do not touch give no row. All pairs are clipped in one call, in float64.

    >>> one = torch.tensor([[4.0, 1.0, 4.0, 2.0, 0.0]])
    >>> left = window_labels(one, torch.tensor([[2.0, 0.0, 6.0, 2.0]]), np.array([[0, 0, 3, 4], [1, 0, 4, 4]]))
    >>> left.visible.tolist(), left.boxes.tolist()
    ([0.25, 0.5], [[2.0, 0.0, 3.0, 2.0], [1.0, 0.0, 3.0, 2.0]])
    """
    objects, spans = rboxes.double().view(-1, 5), torch.from_numpy(windows).double()
    height, width = (windows[0, 3:] - windows[0, 1:2]).item(), (windows[0, 2:3] - windows[0, :1]).item()
    reach = objects[:, 2:4].norm(dim=1, keepdim=True) / 2
    low, high = objects[:, :2] - reach, objects[:, :2] + reach
    near = (low[None] < spans[:, None, 2:]).all(-1) & (high[None] > spans[:, None, :2]).all(-1)
    window, instance = (near & (objects[:, 2:4] > 0).all(1)).nonzero(as_tuple=True)
    origin = spans[window, :2]
    mine = objects[instance]
    moved = torch.cat([mine[:, :2] - origin, mine[:, 2:]], 1)
    clipped = clip_rboxes(moved, height, width)
    visible = clipped.areas / (mine[:, 2] * mine[:, 3])
    whole = (visible >= WHOLE)[:, None]
    annotated = boxes.double().view(-1, 4)[instance] - origin.repeat(1, 2)
    seen = visible > 0
    return WindowLabels(
        window[seen],
        instance[seen],
        torch.where(whole, moved, clipped.rboxes)[seen],
        torch.where(whole, annotated, clipped.boxes)[seen],
        visible[seen].clamp(max=1.0),
        ~whole[seen, 0],
    )
