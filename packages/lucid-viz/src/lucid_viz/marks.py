"""The marks that labels and predictions share."""

from collections.abc import Iterator, Sequence
from typing import TypeVar

import numpy as np
import numpy.typing as npt
import torch
from matplotlib.artist import Artist
from matplotlib.axes import Axes
from matplotlib.patches import Polygon, Rectangle
from matplotlib.patheffects import withStroke
from torch import Tensor

from lucid_geometry import rboxes_to_polygons
from lucid_models import Predictions
from lucid_viz.placing import Floats, outlines
from lucid_viz.style import CASING, casing, class_color, rgb

TINT = 0.45
"""How much of a mask's colour covers the image."""

Points = list[list[float]]
_Drawn = TypeVar("_Drawn", bound=Artist)


def check_image(image: Tensor) -> tuple[int, int]:
    """Return the height and width of a uint8 RGB image (3, H, W); ValueError for anything else or without pixels."""
    if image.ndim != 3 or image.shape[0] != 3 or image.dtype != torch.uint8 or not image.numel():
        raise ValueError(f"image of shape {tuple(image.shape)}, {image.dtype}: give (3, H, W), uint8 RGB")
    return image.shape[1], image.shape[2]


def check_predictions(predictions: Predictions, image_size: tuple[int, int] | None = None) -> None:
    """Raise ValueError where parts of predictions differ in number, have another form, or miss the image's size."""
    count, size = len(predictions), image_size or predictions.image_size
    points = 0 if predictions.keypoints is None else predictions.keypoints.shape[1]
    if tuple(predictions.image_size) != tuple(size):
        raise ValueError(
            f"predictions for an image of {predictions.image_size}, image of {size} (height, width)"
        )
    expected = {
        "boxes": (predictions.boxes, (count, 4)),
        "labels": (predictions.labels, (count,)),
        "masks": (predictions.masks, (count, *size)),
        "rboxes": (predictions.rboxes, (count, 5)),
        "keypoints": (predictions.keypoints, (count, points, 3)),
    }
    for name, (value, shape) in expected.items():
        if value is not None and tuple(value.shape) != shape:
            raise ValueError(
                f"predictions.{name} of shape {tuple(value.shape)}: {count} scores and the image want {shape}"
            )


def object_corners(predictions: Predictions) -> Floats:
    """Return the corners (N, 4, 2) of oriented boxes where there are any, else of the upright ones."""
    if predictions.rboxes is None:
        return outlines(predictions.boxes.tolist())
    return np.array(rboxes_to_polygons(predictions.rboxes).tolist(), np.float64).reshape(-1, 4, 2)


def visible_masks(
    predictions: Predictions, confidence: float
) -> Iterator[tuple[tuple[slice, slice], npt.NDArray[np.bool_], str]]:
    """Yield what shows of each mask above the confidence, the surest on top: window, pixels within it, colour."""
    if predictions.masks is None:
        return
    masks: npt.NDArray[np.bool_] = predictions.masks.cpu().numpy()
    taken = np.zeros(masks.shape[1:], np.bool_)
    for mask, score, label in zip(
        masks, predictions.scores.tolist(), predictions.labels.tolist(), strict=True
    ):
        if score <= confidence:
            continue
        # work within the mask's own window: most cover a small part of a large picture
        rows = np.flatnonzero(mask.any(1))
        if not len(rows):
            continue
        columns = np.flatnonzero(mask[rows[0] : rows[-1] + 1].any(0))
        window = slice(rows[0], rows[-1] + 1), slice(columns[0], columns[-1] + 1)
        pixels = mask[window] & ~taken[window]
        taken[window] |= pixels
        yield window, pixels, class_color(label)


def mask_tint(predictions: Predictions, confidence: float) -> npt.NDArray[np.float32] | None:
    """Return (H, W, 4) colour and opacity of all masks above the confidence, the surest on top; None without masks."""
    if predictions.masks is None:
        return None
    tint = np.zeros((*predictions.image_size, 4), np.float32)
    for window, pixels, color in visible_masks(predictions, confidence):
        tint[window][pixels] = (*(np.array(rgb(color), np.float32) / 255), TINT)
    return tint


def rectangle(ax: Axes, box: list[float], color: str, width: float, style: str) -> None:
    """Draw the outline of an x1, y1, x2, y2 box."""
    x1, y1, x2, y2 = box
    patch = Rectangle(
        (x1, y1), x2 - x1, y2 - y1, fill=False, edgecolor=color, linewidth=width, linestyle=style
    )
    ax.add_patch(cased(patch, color, width))


def closed_line(ax: Axes, corners: Points, color: str, width: float, style: str) -> None:
    """Draw the outline through corners (x, y) and back to the first."""
    patch = Polygon(corners, fill=False, edgecolor=color, linewidth=width, linestyle=style)
    ax.add_patch(cased(patch, color, width))


def bones(
    ax: Axes,
    points: Points,
    shown: Sequence[bool],
    edges: Sequence[tuple[int, int]],
    color: str,
    width: float,
    style: str,
) -> None:
    """Draw the edges of a skeleton whose two points are shown, as one line with gaps."""
    pairs = [(points[first], points[second]) for first, second in edges if shown[first] and shown[second]]
    if pairs:
        x, y = zip(*((end[0], end[1]) for pair in pairs for end in (*pair, (np.nan, np.nan))), strict=True)
        (line,) = ax.plot(x, y, linestyle=style, linewidth=width, color=color, label="skeleton")
        cased(line, color, width)


def cased(artist: _Drawn, color: str, width: float) -> _Drawn:
    """Put a thin edge of the contrary lightness around a line, so that it shows on light and dark images; return it."""
    artist.set_path_effects([withStroke(linewidth=width + 1.0, foreground=casing(color), alpha=CASING)])
    return artist


def highest(corners: Points) -> list[float]:
    """Return the corner with the least y, the left one of two.

    Example:
        >>> highest([[4.0, 9.0], [7.0, 1.0], [2.0, 1.0]])
        [2.0, 1.0]
    """
    return min(corners, key=lambda corner: (corner[1], corner[0]))
