"""Predictions burned into pixels: the fast way to save a folder of drawn images."""

from collections.abc import Sequence
from functools import lru_cache
from pathlib import Path

import matplotlib
import numpy as np
import numpy.typing as npt
import torch
from PIL import Image, ImageDraw, ImageFont
from torch import Tensor

from lucid_geometry import rboxes_to_polygons
from lucid_models import Predictions
from lucid_viz.marks import TINT, check_image, check_predictions, object_corners, visible_masks
from lucid_viz.placing import Floats, beside, place
from lucid_viz.skeletons import edges_to_draw
from lucid_viz.style import RenderOptions, casing_ink, class_color, rgb, text_color
from lucid_viz.words import captions_of, note

NOTE = "#000000"
"""Colour of the plate that says that nothing was found."""


def burn_predictions(image: Tensor, predictions: Predictions, options: RenderOptions | None = None) -> Tensor:
    """Return a copy of the image with predictions above the confidence drawn into it, whatever their task.

    Captions stand inside the image, over all outlines, and apart from each other where there is room. Where nothing is
    above the confidence, that and the highest score, where it is known, are written into the upper left corner.

    Args:
        image: (3, H, W) uint8 RGB, the original image.
        predictions: boxes in its pixels.
        options: confidence, text and skeleton; line widths follow the image's size.

    Raises:
        ValueError: not an image of that form, predictions of another image size or with parts that differ in number,
            or a skeleton that names a point that is not there.
    """
    check_predictions(predictions, check_image(image))
    options = options or RenderOptions()
    pixels = image.permute(1, 2, 0).cpu().numpy().copy(order="C")
    for window, visible, color in visible_masks(predictions, options.confidence):
        part = pixels[window]
        part[visible] = _tinted(color)[part[visible], (0, 1, 2)]
    canvas = Image.fromarray(pixels)
    pen = ImageDraw.Draw(canvas)
    scale = max(canvas.size) / 640
    width, font_size = max(2, round(2 * scale)), max(11, round(13 * scale))
    boxes, labels = predictions.boxes.tolist(), predictions.labels.tolist()
    corners = object_corners(predictions)
    inner = None if predictions.rboxes is None else _shrunk(predictions.rboxes, width + 1)
    points = None if predictions.keypoints is None else predictions.keypoints.tolist()
    edges = edges_to_draw(options.skeleton, predictions.names, len(points[0])) if points else ()
    shown = (predictions.scores > options.confidence).nonzero()[:, 0].tolist()
    for number in reversed(shown):  # the surest on top
        color = class_color(labels[number])
        if inner is None:
            _rectangle(pen, boxes[number], color, width)
        else:
            _ring(pen, corners[number].tolist(), color, width)
            _ring(pen, inner[number], casing_ink(color), 1)
        if points is not None:
            _skeleton(pen, points[number], edges, color, width)
    if options.show_labels and shown:
        plates = [
            _plate(text, class_color(labels[number]), font_size)
            for number, text in zip(shown, captions_of(predictions, shown), strict=True)
        ]
        _put(canvas, plates, np.rint(corners[shown]))
    elif options.show_labels:
        canvas.paste(_plate(note(predictions, options.confidence), NOTE, font_size), (0, 0))
    return torch.from_numpy(np.array(canvas)).permute(2, 0, 1).contiguous()


@lru_cache(maxsize=64)
def _tinted(color: str) -> npt.NDArray[np.uint8]:
    """Return (256, 3): what each value of each channel becomes under a mask of this colour."""
    values = np.arange(256, dtype=np.float32)[:, None]
    opacity = np.float32(TINT)
    return np.rint(values * (1 - opacity) + np.array(rgb(color), np.float32) * opacity).astype(np.uint8)


def _rectangle(pen: ImageDraw.ImageDraw, box: list[float], color: str, width: int) -> None:
    # Pillow's corners are pixel indices, both drawn: the box's far edge lies on the pixel before it
    x1, y1, x2, y2 = box[0], box[1], max(box[0], box[2] - 1), max(box[1], box[3] - 1)
    pen.rectangle((x1, y1, x2, y2), outline=color, width=width)
    # an inner edge of the contrary lightness: the outline shows on light and dark images, and stays in the box
    if min(x2 - x1, y2 - y1) > 4 * width:
        pen.rectangle((x1 + width, y1 + width, x2 - width, y2 - width), outline=casing_ink(color))


def _shrunk(rboxes: Tensor, by: float) -> list[list[list[float]]]:
    """Return the corners of rotated boxes whose sides are shorter; one that would vanish is its centre."""
    sides = (rboxes[:, 2:4] - by).clamp_min(0)
    return rboxes_to_polygons(torch.cat((rboxes[:, :2], sides, rboxes[:, 4:]), 1)).tolist()


def _ring(pen: ImageDraw.ImageDraw, corners: list[list[float]], color: str, width: int) -> None:
    # pixel j covers [j, j + 1), and Pillow names it by its index
    ring = [(x - 0.5, y - 0.5) for x, y in corners]
    pen.line([*ring, *ring[:2]], fill=color, width=width, joint="curve")


def _skeleton(
    pen: ImageDraw.ImageDraw,
    points: list[list[float]],
    edges: Sequence[tuple[int, int]],
    color: str,
    width: int,
) -> None:
    places = [(x - 0.5, y - 0.5) for x, y, _ in points]
    seen = [visible > 0.5 for _, _, visible in points]
    for first, second in edges:
        if seen[first] and seen[second]:
            bone = [places[first], places[second]]
            pen.line(bone, fill=casing_ink(color), width=width + 2)
            pen.line(bone, fill=color, width=width)
    for (x, y), visible in zip(places, seen, strict=True):
        dot = (x - width, y - width, x + width, y + width)
        pen.ellipse(dot, outline=color, fill=color if visible else None)


def _put(canvas: Image.Image, plates: Sequence[Image.Image], corners: Floats) -> None:
    sizes = np.array([plate.size for plate in plates], np.float64)
    places = place(sizes, beside(corners, sizes), canvas.size)
    for plate, (x, y) in zip(reversed(plates), reversed(places.tolist()), strict=True):  # the surest on top
        canvas.paste(plate, (int(x), int(y)))


@lru_cache(maxsize=4096)
def _plate(text: str, color: str, font_size: int) -> Image.Image:
    """Return a caption on its plate; names with scores of two decimals come again and again."""
    font = _font(font_size)
    left, top, right, bottom = font.getbbox(text)
    _, highest, _, lowest = font.getbbox("Ag")  # plates are equally high, whatever the letters
    top, bottom = min(top, highest), max(bottom, lowest)
    plate = Image.new("RGB", (round(right - left) + 5, round(bottom - top) + 5), color)
    ImageDraw.Draw(plate).text((2 - left, 2 - top), text, fill=text_color(color), font=font)
    return plate


@lru_cache(maxsize=16)
def _font(size: int) -> ImageFont.FreeTypeFont:
    return ImageFont.truetype(
        str(Path(matplotlib.get_data_path()) / "fonts" / "ttf" / "DejaVuSans.ttf"), size
    )
