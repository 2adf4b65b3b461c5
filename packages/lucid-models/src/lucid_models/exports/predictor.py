"""Images in, predictions out, by an exported file."""

from collections.abc import Iterator, Sequence
from functools import partial
from os import PathLike, fspath
from pathlib import Path
from typing import Any

import torch
from torch import Tensor
from torch.nn.functional import pad

from lucid_geometry import Letterbox
from lucid_models.decode import canvas_to_image, place_on_image
from lucid_models.exports.formats import FORMATS
from lucid_models.predictions import Predictions
from lucid_models.predictor import letterbox_batch
from lucid_models.registry import look_up
from lucid_models.sources import as_image, expand


class ExportedPredictor:
    """A file written by `export` that maps images to `Predictions` on the CPU, as a `Predictor` does.

    ``format`` is told by the file's suffix (.onnx, .torchscript, .pt2, .safetensors) unless given. ``info``
    is the file's `ExportInfo`. Images are computed ``batch_size`` at a time, or as many as the file was
    exported for; ``max_detections`` of the rows it was exported with are looked at, all when None. Raises
    FileNotFoundError when there is no file, ValueError when it is no export of that format or for a number below 1,
    ImportError where what reads the format is not installed.

    >>> ExportedPredictor("model.onnx")("photos")[0].boxes  # doctest: +SKIP
    """

    def __init__(
        self,
        path: str | PathLike[str],
        format: str | None = None,
        confidence: float = 0.25,
        batch_size: int = 8,
        max_detections: int | None = None,
    ) -> None:
        if batch_size < 1:
            raise ValueError(f"batch_size must be at least 1, got {batch_size}")
        if max_detections is not None and max_detections < 1:
            raise ValueError(f"max_detections must be at least 1, got {max_detections}")
        place = fspath(path)
        if not Path(place).is_file():
            raise FileNotFoundError(f"no exported file at {place}")
        if format is None:
            suffixes = {row.suffix: name for name, row in FORMATS.items()}
            format = look_up(suffixes, "suffix of an export", Path(place).suffix)
        row = look_up(FORMATS, "format", format)
        row.require(row.readers)
        self.info, self._run = row.read(place)
        self.confidence = confidence
        self.batch_size = self.info.batch or batch_size
        self.max_detections = max_detections

    def __call__(self, images: Any) -> list[Predictions]:
        """Return one `Predictions` per image, in order; ``images`` and errors as `Predictor` has them."""
        sources = expand(images)
        found: list[Predictions] = []
        for start in range(0, len(sources), self.batch_size):
            part = sources[start : start + self.batch_size]
            found += self._predict([as_image(source, start + i) for i, source in enumerate(part)])
        return found

    def rows(self, canvases: Tensor) -> tuple[Tensor, ...]:
        """Return the graph's outputs, as ``info.outputs`` names them, for canvases float32 (B, 3, S, S) in [0, 1].

        Fewer canvases than the file was exported for are completed and the rest is dropped.
        """
        missing = 0 if self.info.batch is None else self.info.batch - len(canvases)
        with torch.inference_mode():
            outputs = self._run(pad(canvases, (0, 0, 0, 0, 0, 0, 0, missing)))
        return tuple(output[: len(canvases)] for output in outputs)

    def _predict(self, images: Sequence[Tensor]) -> Iterator[Predictions]:
        canvas, letterboxes = letterbox_batch(images, self.info.image_size)
        named = dict(zip(self.info.outputs, self.rows(canvas.float().div_(255).contiguous()), strict=True))
        keypoints, masks = named.get("keypoints"), named.get("masks")
        for i, letterbox in enumerate(letterboxes):
            yield place_on_image(
                named["detections"][i, : self.max_detections],
                letterbox,
                self.info.names,
                self.confidence,
                None if keypoints is None else keypoints[i, : self.max_detections],
                None if masks is None else partial(_picked, masks[i], letterbox),
            )


def _picked(masks: Tensor, letterbox: Letterbox, kept: Tensor) -> Tensor:
    return canvas_to_image(masks[kept], letterbox)
