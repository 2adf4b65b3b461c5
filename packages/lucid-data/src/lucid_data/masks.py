"""Mask supervision: instance masks on the prototype grid, a quarter of the canvas."""

from __future__ import annotations

from typing import Final

import numpy as np
import torch
from torch import Tensor

from lucid_data.raster import Masks, fill_outlines
from lucid_data.targets import Targets

# prototypes live at this stride of the canvas
MASK_STRIDE: Final = 4
_SMALL: Final = 4.0


def grid_masks(targets: Targets, height: int, width: int | None = None, stride: int = MASK_STRIDE) -> Tensor:
    """Return (N, height / stride, width / stride) bool masks of ``targets`` on a canvas, square without ``width``.

    Outlines are scaled to the grid and filled there at cell centres, never filled large and shrunk, so that thin
    objects stay. One shorter than four cells belongs to the cells it covers half of, and one that still fills none to
    the cell of its centre. An instance without an outline has an empty mask.

    >>> ring = torch.tensor([[0.0, 0.0], [8.0, 0.0], [8.0, 4.0], [0.0, 4.0]])
    >>> t = Targets.of(torch.tensor([[0.0, 0.0, 8.0, 4.0]]), torch.tensor([0]), polygons=[[ring]])
    >>> grid_masks(t, 8).int().tolist()
    [[[1, 1], [0, 0]]]
    """
    rows, columns = height // stride, (height if width is None else width) // stride
    outlines = [[ring.double().numpy() / stride for ring in rings] for rings in targets.polygons]
    if not outlines:
        return torch.zeros(len(targets), rows, columns, dtype=torch.bool)
    masks = fill_outlines(outlines, rows, columns)
    short = [
        i
        for i, rings in enumerate(outlines)
        if rings and np.ptp(np.concatenate(rings), axis=0).max() < _SMALL
    ]
    if short:
        fine = fill_outlines([[2 * ring for ring in outlines[i]] for i in short], 2 * rows, 2 * columns)
        masks[short] = fine.reshape(len(short), rows, 2, columns, 2).sum((2, 4)) >= 2
    _never_empty(masks, outlines)
    return torch.from_numpy(masks)


def _never_empty(
    masks: Masks, outlines: list[list[np.ndarray[tuple[int, int], np.dtype[np.float64]]]]
) -> None:
    rows, columns = masks.shape[1:]
    for i in np.flatnonzero(~masks.any((1, 2))).tolist():
        if outlines[i]:
            x, y = (
                np.floor(np.concatenate(outlines[i]).mean(0))
                .clip(0, (columns - 1, rows - 1))
                .astype(np.int64)
            )
            masks[i, y, x] = True
