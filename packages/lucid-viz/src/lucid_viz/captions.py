"""Captions on axes, placed anew whenever these are drawn: only then is known how large text and picture are."""

from collections.abc import Sequence
from typing import Any

import numpy as np
from matplotlib.artist import Artist
from matplotlib.axes import Axes
from matplotlib.backend_bases import RendererBase
from matplotlib.text import Text

from lucid_viz.marks import highest
from lucid_viz.placing import Floats, beside, place
from lucid_viz.style import text_color

PAD = 1.0
"""Of a plate around its text, points."""
DOWNWARDS = np.array((1.0, -1.0))
"""Turns the upward y of figures into the downward y of pictures, and back."""


class _Caption(Text):
    """A text that is drawn where its object is in view; whether it is visible at all is its owner's choice."""

    in_view = True

    def draw(self, renderer: RendererBase, *args: Any, **kwargs: Any) -> None:
        """Draw the text, unless its object is out of view."""
        if self.in_view:
            super().draw(renderer, *args, **kwargs)


def write_captions(
    ax: Axes, texts: Sequence[str], colors: Sequence[str], corners: Floats, size: float
) -> None:
    """Write captions beside objects, over everything drawn: see :func:`lucid_viz.placing.place`.

    They keep clear of those written before on the same axes. The axes' owner may hide or remove them as any text.

    Args:
        ax: axes that show the image.
        texts: N of them, the most important first; an empty one is left out.
        colors: of the N plates.
        corners: (N, 4, 2) of the objects, in the axes' data.
        size: of the text, points.
    """
    placer = next((one for one in ax.artists if isinstance(one, _Captions)), None)
    if placer is None:
        placer = _Captions()
        ax.add_artist(placer)
    written = [
        (_text(ax, text, color, corner, size), corner)
        for text, color, corner in reversed(
            list(zip(texts, colors, corners, strict=True))
        )  # the first on top
        if text
    ]
    placer.captions += reversed(written)


def _text(ax: Axes, text: str, color: str, corners: Floats, size: float) -> _Caption:
    x, y = highest(corners.tolist())
    written = _Caption(
        x,
        y,
        text,
        fontsize=size,
        color=text_color(color),
        verticalalignment="bottom",
        bbox={"facecolor": color, "edgecolor": "none", "pad": PAD, "alpha": 0.85},
        parse_math=False,  # a class name is text, dollar signs and all
    )
    ax.add_artist(written)  # clipped to the axes, and so no part of the layout either
    return written


class _Captions(Artist):
    """Draws nothing: moves texts to their places just before they are drawn.

    Attributes:
        captions: texts and the corners (4, 2) of their objects, in the axes' data.
    """

    def __init__(self) -> None:
        super().__init__()
        self.captions: list[tuple[_Caption, Floats]] = []
        self.set_zorder(2.5)  # after lines, before texts

    def draw(self, renderer: RendererBase, *args: Any, **kwargs: Any) -> None:
        """Place the captions of objects that are in view, of those that the owner of the axes has left there."""
        present = [(text, c) for text, c in self.captions if text.axes is self.axes and text.get_visible()]
        if self.axes is None or not present:
            return
        frame, pad = self.axes.bbox, float(np.asarray(renderer.points_to_pixels(PAD)))
        size, origin = (float(frame.width), float(frame.height)), np.array((frame.x0, frame.y1))
        # from here in pixels from the left upper corner of the picture
        data = np.concatenate([corners for _, corners in present])
        corners = (self.axes.transData.transform(data) - origin).reshape(-1, 4, 2) * DOWNWARDS
        in_view = ((corners.max(1) >= 0) & (corners.min(1) <= size)).all(1)
        for (text, _), seen in zip(present, in_view.tolist(), strict=True):
            text.in_view = seen
        texts = [text for text, _ in present if text.in_view]
        if not texts:
            return
        extents = [text.get_window_extent(renderer) for text in texts]
        sizes = np.array([(extent.width, extent.height) for extent in extents], np.float64) + 2 * pad
        starts = place(sizes, beside(corners[in_view], sizes), size)
        lower = (starts + (0, 1) * sizes + (pad, -pad)) * DOWNWARDS + origin
        for text, point in zip(texts, self.axes.transData.inverted().transform(lower), strict=True):
            text.set_position(point)
