"""The marks that labels and predictions share."""

from typing import Any

import numpy as np
import numpy.typing as npt
from matplotlib.axes import Axes
from matplotlib.patches import Rectangle

from lucid_models import Predictions
from lucid_viz.style import class_color, rgb, text_color

TINT = 0.45
"""How much of a mask's colour covers the image."""


def mask_tint(predictions: Predictions, confidence: float) -> npt.NDArray[np.float32] | None:
    """Return (H, W, 4) colour and opacity of all masks above the confidence, the surest on top; None without masks."""
    if predictions.masks is None:
        return None
    tint = np.zeros((*predictions.image_size, 4), np.float32)
    masks: npt.NDArray[Any] = predictions.masks.cpu().numpy()
    sure = [i for i, score in enumerate(predictions.scores.tolist()) if score > confidence]
    for number in reversed(sure):
        color = np.array(rgb(class_color(int(predictions.labels[number]))), np.float32) / 255
        tint[masks[number]] = (*color, TINT)
    return tint


def rectangle(ax: Axes, box: list[float], color: str, width: float, style: str) -> None:
    """Draw the outline of an x1, y1, x2, y2 box."""
    x1, y1, x2, y2 = box
    ax.add_patch(
        Rectangle((x1, y1), x2 - x1, y2 - y1, fill=False, edgecolor=color, linewidth=width, linestyle=style)
    )


def box_text(ax: Axes, box: list[float], text: str, color: str, size: float) -> None:
    """Write on a plate of the class's colour at the upper left corner of a box."""
    ax.text(
        box[0],
        max(0.0, box[1]),
        text,
        fontsize=size,
        color=text_color(color),
        verticalalignment="bottom" if box[1] > 12 else "top",
        bbox={"facecolor": color, "edgecolor": "none", "pad": 1.0, "alpha": 0.85},
        clip_on=True,
        parse_math=False,  # a class name is text, dollar signs and all
    )
