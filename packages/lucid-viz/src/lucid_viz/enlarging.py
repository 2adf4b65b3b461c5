"""Small pictures made large enough to read what is drawn on them."""

from dataclasses import replace

from torch import Tensor

from lucid_models import Predictions
from lucid_viz.marks import check_image, check_predictions

LEAST_SIDE = 600
"""What the longer side of a drawn picture has at least, pixels: drawings are made for 640 and more."""


def enlarge(image: Tensor, predictions: Predictions) -> tuple[Tensor, Predictions]:
    """Return a small image and its predictions enlarged by a whole factor, so that captions can be read on it.

    The factor is the least that gives the longer side 600 px; an image that has them is returned as it is. Every pixel
    becomes a square of its colour, and masks, boxes and points scale exactly.

    Args:
        image: (3, H, W) uint8 RGB.
        predictions: in its pixels.

    Raises:
        ValueError: not an image of that form, or predictions of another image size or with parts that differ in number.

    Example:
        >>> import torch
        >>> boxes, score = torch.tensor([[1.0, 2.0, 9.0, 9.0]]), torch.tensor([0.5])
        >>> found = Predictions(boxes, score, torch.tensor([0]), ("cat",), (100, 150))
        >>> image, found = enlarge(torch.zeros(3, 100, 150, dtype=torch.uint8), found)
        >>> image.shape, found.boxes.tolist()
        (torch.Size([3, 400, 600]), [[4.0, 8.0, 36.0, 36.0]])
    """
    height, width = check_image(image)
    check_predictions(predictions, (height, width))
    factor = -(-LEAST_SIDE // max(height, width))
    if factor == 1:
        return image, predictions
    lengths = predictions.boxes.new_tensor([factor] * 4 + [1])
    masks, rboxes, points = predictions.masks, predictions.rboxes, predictions.keypoints
    return _repeated(image, factor), replace(
        predictions,
        boxes=predictions.boxes * factor,
        image_size=(height * factor, width * factor),
        masks=None if masks is None else _repeated(masks, factor),
        rboxes=None if rboxes is None else rboxes * lengths,
        keypoints=None if points is None else points * lengths[-3:],
    )


def _repeated(pixels: Tensor, factor: int) -> Tensor:
    """Return pixels (..., H, W) as squares of ``factor`` x ``factor``."""
    return pixels.repeat_interleave(factor, -2).repeat_interleave(factor, -1)
