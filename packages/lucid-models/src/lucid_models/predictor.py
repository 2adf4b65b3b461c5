"""Images in, predictions out."""

from collections.abc import Iterator, Sequence
from itertools import chain
from os import PathLike
from typing import Any, Literal

import torch
from torch import Tensor
from torch.nn.functional import interpolate

from lucid_geometry import Letterbox
from lucid_models.assign import make_points
from lucid_models.decode import decode_each, end_to_end, with_nms
from lucid_models.deploy import fuse
from lucid_models.detector import Detector
from lucid_models.loading import load
from lucid_models.predictions import Predictions
from lucid_models.sources import batches

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


def letterbox_batch(images: Sequence[Tensor], side: int) -> tuple[Tensor, list[Letterbox]]:
    """Return canvases uint8 (B, 3, side, side), channels last, of images uint8 (3, H, W), and how they lie there.

    >>> canvas, letterboxes = letterbox_batch([torch.zeros(3, 20, 40, dtype=torch.uint8)], 64)
    >>> canvas.shape, letterboxes[0].pad_top
    (torch.Size([1, 3, 64, 64]), 16)
    """
    letterboxes = [Letterbox(image.shape[1], image.shape[2], side, side) for image in images]
    canvas = torch.empty((len(images), 3, side, side), dtype=torch.uint8, memory_format=torch.channels_last)
    for image, letterbox, out in zip(images, letterboxes, canvas, strict=True):
        letterbox_image(image.cpu(), letterbox, out)
    return canvas, letterboxes


class Predictor:
    """A folded detector that maps images to `Predictions`.

    ``detector`` is a `Detector` or the path of a checkpoint. ``image_size`` (pixels, a multiple of 32)
    defaults to the detector's own. Detections that score at most ``confidence`` are dropped; ``path`` chooses
    the one-to-one branch without suppression ("e2e") or the one-to-many branch with it ("nms"). Raises
    ValueError for another path or a number below 1, and what `load` raises.

    >>> from lucid_models import build_detector
    >>> predictor = Predictor(build_detector("detect", "n", names=["a"]), image_size=64)
    >>> predictor([torch.zeros(3, 48, 80, dtype=torch.uint8)])[0].image_size
    (48, 80)
    """

    def __init__(
        self,
        detector: Detector | str | PathLike[str],
        *,
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
        if max_detections < 1:
            raise ValueError(f"max_detections must be at least 1, got {max_detections}")
        source = detector if isinstance(detector, Detector) else load(detector)
        self.names = source.names
        self.image_size = source.image_size if image_size is None else image_size
        self.device = torch.device(device)
        self.confidence = confidence
        self.max_detections = max_detections
        self.path = path
        self.batch_size = batch_size
        self._decoder = end_to_end if path == "e2e" else with_nms
        self._grid = make_points(self.image_size, self.image_size, source.strides, self.device)
        network = fuse(source, "o2o" if path == "e2e" else "o2m")
        # the faster exact route on CPUs (lucid bench predict): convolutions need no reordering of their input
        self._network = network.to(self.device).to(memory_format=torch.channels_last)

    def __call__(self, images: Any) -> list[Predictions]:
        """Return one `Predictions` per image, in order; sizes may differ.

        ``images`` is one image or a sequence of them: tensors uint8 (3, H, W), arrays uint8 (H, W, 3), both
        RGB, paths of pictures and paths of folders (see `list_pictures`); a tensor (B, 3, H, W) is a batch.
        Raises what `as_image` raises.
        """
        return list(self.stream(images))

    def stream(self, images: Any) -> Iterator[Predictions]:
        """Return an iterator over what a call returns; files are read and masks made as it moves on.

        What is in memory is checked before this returns.
        """
        return chain.from_iterable(map(self._predict, batches(images, self.batch_size)))

    def _predict(self, images: Sequence[Tensor]) -> Iterator[Predictions]:
        canvas, letterboxes = letterbox_batch(images, self.image_size)
        with torch.inference_mode():
            output = self._network(canvas.to(self.device).float().div_(255))
        # the network's output needs no gradient, so what is made of it outside is ordinary tensors without one
        return decode_each(
            output,
            *self._grid,
            letterboxes,
            self.names,
            decoder=self._decoder,
            max_detections=self.max_detections,
            confidence=self.confidence,
        )
