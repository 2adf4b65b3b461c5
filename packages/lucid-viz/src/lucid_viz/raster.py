"""Predictions burned into pixels: the fast way to save a folder of drawn images."""

from functools import lru_cache
from pathlib import Path

import matplotlib
import numpy as np
import torch
from PIL import Image, ImageDraw, ImageFont
from torch import Tensor

from lucid_geometry import rboxes_to_polygons
from lucid_models import Predictions
from lucid_viz.marks import mask_tint
from lucid_viz.style import RenderOptions, caption, class_color, text_color


def burn_predictions(image: Tensor, predictions: Predictions, options: RenderOptions | None = None) -> Tensor:
    """Return a copy of the image with predictions above the confidence drawn into it, whatever their task.

    Args:
        image: (3, H, W) uint8 RGB, the original image.
        predictions: boxes in its pixels.
        options: confidence and text; line widths follow the image's size.

    Raises:
        ValueError: not an image of that form.
    """
    if image.ndim != 3 or image.shape[0] != 3 or image.dtype != torch.uint8:
        raise ValueError(f"image of shape {tuple(image.shape)}, {image.dtype}: give (3, H, W), uint8 RGB")
    options = options or RenderOptions()
    pixels = image.permute(1, 2, 0).contiguous().cpu().numpy()
    tint = mask_tint(predictions, options.confidence)
    if tint is not None:
        opacity = tint[..., 3:]
        pixels = np.rint(pixels * (1 - opacity) + 255 * tint[..., :3] * opacity).astype(np.uint8)
    canvas = Image.fromarray(pixels)
    pen = ImageDraw.Draw(canvas)
    scale = max(canvas.size) / 640
    width, font = max(2, round(2 * scale)), _font(max(11, round(13 * scale)))
    rows = list(
        zip(predictions.boxes.tolist(), predictions.scores.tolist(), predictions.labels.tolist(), strict=True)
    )
    for number, (box, score, label) in reversed(list(enumerate(rows))):  # the surest on top
        if score <= options.confidence:
            continue
        color = class_color(label)
        # Pillow's corners are pixel indices, both drawn: the box's far edge lies on the pixel before it.
        x1, y1, x2, y2 = box[0], box[1], max(box[0], box[2] - 1), max(box[1], box[3] - 1)
        if predictions.rboxes is None:
            pen.rectangle((x1, y1, x2, y2), outline=color, width=width)
        else:
            # the same for a corner: pixel j covers [j, j + 1)
            corners = (rboxes_to_polygons(predictions.rboxes[number]) - 0.5).flatten().tolist()
            pen.line([*corners, *corners[:2]], fill=color, width=width, joint="curve")
        if predictions.keypoints is not None:
            for x, y, visible in predictions.keypoints[number].tolist():
                dot = (x - 0.5 - width, y - 0.5 - width, x - 0.5 + width, y - 0.5 + width)
                pen.ellipse(dot, outline=color, fill=color if visible > 0.5 else None)
        if options.show_labels:
            _label(pen, (x1, y1), caption(predictions.names, label, score), color, font)
    return torch.from_numpy(np.array(canvas)).permute(2, 0, 1).contiguous()


def _label(
    pen: ImageDraw.ImageDraw, corner: tuple[float, float], text: str, color: str, font: ImageFont.FreeTypeFont
) -> None:
    left, top, right, bottom = pen.textbbox((0, 0), text, font=font)
    width, height = right - left + 4, bottom - top + 4
    x, y = corner
    y = y - height if y >= height else y
    pen.rectangle((x, y, x + width, y + height), fill=color)
    pen.text((x + 2 - left, y + 2 - top), text, fill=text_color(color), font=font)


@lru_cache(maxsize=16)
def _font(size: int) -> ImageFont.FreeTypeFont:
    return ImageFont.truetype(
        str(Path(matplotlib.get_data_path()) / "fonts" / "ttf" / "DejaVuSans.ttf"), size
    )
