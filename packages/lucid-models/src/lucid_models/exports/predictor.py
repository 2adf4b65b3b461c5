"""Images in, predictions out, by an exported file."""

from collections.abc import Iterator, Mapping, Sequence
from functools import partial
from itertools import chain
from os import PathLike, fspath
from pathlib import Path
from typing import Any, Literal

import torch
from torch import Tensor
from torch.nn.functional import pad

from lucid_geometry import Letterbox
from lucid_models.decode import canvas_to_image, place_on_image
from lucid_models.exports.formats import FORMATS
from lucid_models.predictions import Predictions
from lucid_models.predictor import letterbox_batch
from lucid_models.registry import look_up
from lucid_models.sources import batches


class ExportedPredictor:
    """A file written by `export` that maps images to `Predictions` on the CPU, used as a `Predictor` is.

    ``format`` is told by the file's suffix (.onnx, .torchscript, .pt2, .safetensors) unless given. Detections that
    score at most ``confidence`` are dropped. Images are computed ``batch_size`` at a time, or as many as the file was
    exported for; the first ``max_detections`` of the rows it was exported with are looked at, all when None. What a
    file has fixed can be read and not chosen: ``names``, ``image_size`` (pixels), ``device`` (the CPU) and ``path``
    ("e2e", the one-to-one branch); ``info`` is its `ExportInfo`. Raises FileNotFoundError when there is no file,
    ValueError when it is no export of that format or for a number below 1, ImportError where what reads the
    format is not installed.

    >>> import tempfile
    >>> from lucid_models import build_detector, export
    >>> detector = build_detector("detect", "n", names=["a"], image_size=64)
    >>> file = export(detector, f"{tempfile.mkdtemp()}/a.torchscript", "torchscript")
    >>> ExportedPredictor(file)([torch.zeros(3, 48, 80, dtype=torch.uint8)])[0].image_size
    (48, 80)
    """

    def __init__(
        self,
        file: str | PathLike[str],
        *,
        format: str | None = None,
        confidence: float = 0.25,
        max_detections: int | None = None,
        batch_size: int = 8,
    ) -> None:
        if batch_size < 1:
            raise ValueError(f"batch_size must be at least 1, got {batch_size}")
        if max_detections is not None and max_detections < 1:
            raise ValueError(f"max_detections must be at least 1, got {max_detections}")
        place = fspath(file)
        if not Path(place).is_file():
            raise FileNotFoundError(f"no exported file at {place}")
        if format is None:
            suffixes = {row.suffix: name for name, row in FORMATS.items()}
            format = look_up(suffixes, "suffix of an export", Path(place).suffix)
        row = look_up(FORMATS, "format", format)
        row.require(row.readers)
        self.info, self._run = row.read(place)
        self.names = self.info.names
        self.image_size = self.info.image_size
        self.device = torch.device("cpu")
        self.confidence = confidence
        rows = self.info.max_detections
        self.max_detections = rows if max_detections is None else min(max_detections, rows)
        self.path: Literal["e2e"] = "e2e"
        self.batch_size = self.info.batch or batch_size

    def __call__(self, images: Any) -> list[Predictions]:
        """Return one `Predictions` per image, in order; ``images`` and errors as `Predictor` has them."""
        return list(self.stream(images))

    def stream(self, images: Any) -> Iterator[Predictions]:
        """Return an iterator over what a call returns; files are read and masks made as it moves on.

        What is in memory is checked before this returns.
        """
        return chain.from_iterable(map(self._predict, batches(images, self.batch_size)))

    def rows(self, canvases: Tensor) -> tuple[Tensor, ...]:
        """Return the graph's outputs, as ``info.outputs`` names them, for canvases float32 (B, 3, S, S) in [0, 1].

        Fewer canvases than the file was exported for are completed and the rest is dropped.
        """
        missing = 0 if self.info.batch is None else self.info.batch - len(canvases)
        with torch.inference_mode():
            outputs = self._run(pad(canvases, (0, 0, 0, 0, 0, 0, 0, missing)))
        return tuple(output[: len(canvases)] for output in outputs)

    def _predict(self, images: Sequence[Tensor]) -> Iterator[Predictions]:
        canvas, letterboxes = letterbox_batch(images, self.image_size)
        outputs = self.rows(canvas.float().div_(255).contiguous())
        named = dict(zip(self.info.outputs, outputs, strict=True))
        # one picture's masks at a time
        return map(partial(self._placed, named), range(len(letterboxes)), letterboxes)

    def _placed(self, named: Mapping[str, Tensor], i: int, letterbox: Letterbox) -> Predictions:
        keypoints, masks = named.get("keypoints"), named.get("masks")
        return place_on_image(
            named["detections"][i, : self.max_detections],
            letterbox,
            self.names,
            self.confidence,
            None if keypoints is None else keypoints[i, : self.max_detections],
            None if masks is None else partial(_picked, masks[i], letterbox),
        )


def _picked(masks: Tensor, letterbox: Letterbox, kept: Tensor) -> Tensor:
    return canvas_to_image(masks[kept], letterbox)
