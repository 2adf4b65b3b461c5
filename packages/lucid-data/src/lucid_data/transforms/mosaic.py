"""Where pictures lie on the composition canvas: four around a random centre, or one alone.

Every picture arrives with its long side equal to the output side S, so an object keeps the size it has at
validation. Four of them share a 2S x 2S canvas: 0 above-left of the centre, 1 above-right, 2 below-left, 3 below-right
(Bochkovskiy, Wang and Liao, arXiv 2004.10934).
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from lucid_data.randomness import Stream
from lucid_geometry import Letterbox

Cells = tuple[int, int, int, int]


@dataclass(frozen=True)
class Place:
    """One picture on the composition canvas, whole pixels.

    Attributes:
        left, top: where its corner lies (may be negative).
        anchor_x, anchor_y: the point that must not come apart when the canvas is resampled: the mosaic's
            centre, or the picture's own corner.
        window: the part of the canvas it may show on, x1 y1 x2 y2.
    """

    left: int
    top: int
    anchor_x: int
    anchor_y: int
    window: Cells


@dataclass(frozen=True)
class MosaicParams:
    """Where the four pictures meet on the 2S canvas."""

    centre_x: int
    centre_y: int


def sample_mosaic(stream: Stream, side: int) -> MosaicParams:
    """Return a centre with each axis uniform in [S/2, 3S/2), truncated to whole pixels."""
    return MosaicParams(
        int(stream.uniform(0.5 * side, 1.5 * side)), int(stream.uniform(0.5 * side, 1.5 * side))
    )


def mosaic_places(sizes: Sequence[tuple[int, int]], side: int, params: MosaicParams) -> list[Place]:
    """Return the places of four pictures of ``sizes`` (height, width) around the centre.

    >>> place = mosaic_places([(4, 8)] * 4, 8, MosaicParams(6, 7))[0]
    >>> place.left, place.top, place.window
    (-2, 3, (0, 0, 6, 7))
    """
    if len(sizes) != 4:
        raise ValueError(f"a mosaic has four pictures, got {len(sizes)}")
    cx, cy, end = params.centre_x, params.centre_y, 2 * side
    places = []
    for cell, (height, width) in enumerate(sizes):
        right, below = cell % 2 == 1, cell >= 2
        window = (cx if right else 0, cy if below else 0, end if right else cx, end if below else cy)
        places.append(Place(cx if right else cx - width, cy if below else cy - height, cx, cy, window))
    return places


def single_place(size: tuple[int, int], side: int) -> Place:
    """Return the place of one picture of ``size`` (height, width), long side S, centred on an S canvas."""
    box = Letterbox(size[0], size[1], side, side)
    left, top = box.pad_left, box.pad_top
    return Place(left, top, left, top, (0, 0, side, side))
