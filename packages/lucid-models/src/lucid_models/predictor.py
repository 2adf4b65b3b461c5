"""Images in, predictions out."""

from collections.abc import Sequence
from os import PathLike
from typing import Literal

import torch
from torch import Tensor
from torch.nn.functional import interpolate

from lucid_geometry import Letterbox
from lucid_models.assign import make_points
from lucid_models.checkpoint import load
from lucid_models.decode import end_to_end, with_nms
from lucid_models.deploy import fuse
from lucid_models.detector import Detector
from lucid_models.predictions import Predictions, to_predictions

GREY = 114
"""Padding value of the letterbox, uint8."""


def letterbox_image(image: Tensor, letterbox: Letterbox, out: Tensor | None = None) -> Tensor:
    """Return the canvas uint8 (3, canvas height, canvas width) of an image uint8 (3, H, W).

    The image is resized bilinearly with antialiasing in uint8 and surrounded by grey 114. ``out`` receives
    the result where given.

    >>> canvas = letterbox_image(torch.zeros(3, 20, 40, dtype=torch.uint8), Letterbox(20, 40, 64, 64))
    >>> canvas[0, :, 0].tolist().count(114)
    32
    """
    if out is None:
        out = image.new_empty(3, letterbox.canvas_height, letterbox.canvas_width)
    out.fill_(GREY)
    size = (letterbox.new_height, letterbox.new_width)
    if size != (letterbox.height, letterbox.width):
        image = interpolate(image[None], size=size, mode="bilinear", antialias=True)[0]
    top, left = letterbox.pad_top, letterbox.pad_left
    out[:, top : top + size[0], left : left + size[1]] = image
    return out


class Predictor:
    """A folded detector that maps images to `Predictions`.

    ``detector`` is a `Detector` or the path of a checkpoint. ``image_size`` (pixels, a multiple of 32)
    defaults to the detector's own. Detections that score at most ``confidence`` are dropped; ``path`` chooses
    the one-to-one branch without suppression ("e2e") or the one-to-many branch with it ("nms"). Raises
    ValueError for another path or a batch size below 1, and what `load` raises.

    >>> from lucid_models import build_detector
    >>> predictor = Predictor(build_detector("detect", "n", names=["a"]), image_size=64)
    >>> predictor([torch.zeros(3, 48, 80, dtype=torch.uint8)])[0].image_size
    (48, 80)
    """

    def __init__(
        self,
        detector: Detector | str | PathLike[str],
        image_size: int | None = None,
        device: str | torch.device = "cpu",
        confidence: float = 0.25,
        max_detections: int = 300,
        path: Literal["e2e", "nms"] = "e2e",
        batch_size: int = 8,
    ) -> None:
        if path not in ("e2e", "nms"):
            raise ValueError(f"path must be 'e2e' or 'nms', got {path!r}")
        if batch_size < 1:
            raise ValueError(f"batch_size must be at least 1, got {batch_size}")
        source = detector if isinstance(detector, Detector) else load(detector)
        self.names = source.names
        self.image_size = source.image_size if image_size is None else image_size
        self.device = torch.device(device)
        self.confidence = confidence
        self.max_detections = max_detections
        self.path = path
        self.batch_size = batch_size
        self._grid = make_points(self.image_size, self.image_size, source.strides, self.device)
        network = fuse(source, "o2o" if path == "e2e" else "o2m")
        self._network = network.to(self.device).to(memory_format=torch.channels_last)

    def __call__(self, images: Sequence[Tensor]) -> list[Predictions]:
        """Return one `Predictions` per image, uint8 (3, H, W) RGB, in order; sizes may differ.

        Raises TypeError for another dtype and ValueError for another shape, with the image's position.
        """
        for position, image in enumerate(images):
            if image.dtype != torch.uint8:
                raise TypeError(f"image {position} must be uint8, got {image.dtype}")
            if image.dim() != 3 or image.shape[0] != 3 or 0 in image.shape:
                raise ValueError(f"image {position} must be (3, H, W) RGB, got {tuple(image.shape)}")
        results: list[Predictions] = []
        for start in range(0, len(images), self.batch_size):
            results += self._predict(images[start : start + self.batch_size])
        return results

    def _predict(self, images: Sequence[Tensor]) -> list[Predictions]:
        side = self.image_size
        letterboxes = [Letterbox(image.shape[1], image.shape[2], side, side) for image in images]
        canvas = torch.empty(
            (len(images), 3, side, side), dtype=torch.uint8, memory_format=torch.channels_last
        )
        for image, letterbox, out in zip(images, letterboxes, canvas, strict=True):
            letterbox_image(image.cpu(), letterbox, out)
        with torch.inference_mode():
            output = self._network(canvas.to(self.device).float().div_(255))
            if self.path == "e2e":
                detections, _ = end_to_end(output, *self._grid, self.max_detections)
            else:
                detections, _ = with_nms(output, *self._grid, self.max_detections)
        # the copy leaves inference mode behind, so that results are ordinary tensors
        return to_predictions(detections.clone(), letterboxes, self.names, self.confidence)
