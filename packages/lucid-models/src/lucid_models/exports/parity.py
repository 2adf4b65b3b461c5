"""The gate between a detector and what was exported from it: the same predictions on the same pictures."""

from dataclasses import dataclass
from os import PathLike
from typing import Any

import torch
from torch import Tensor

from lucid_geometry import rboxes_to_polygons
from lucid_models.detector import Detector
from lucid_models.exports.predictor import ExportedPredictor
from lucid_models.predictions import Predictions
from lucid_models.predictor import Predictor

SCORE_TOLERANCE = 1e-4
BOX_TOLERANCE = 0.02
"""Pixels of the original image; corners of rotated boxes and keypoints are held to it too."""
MASK_TOLERANCE = 1e-3
"""Share of an instance's pixels: the threshold on a probability turns rounding into whole pixels."""


@dataclass(frozen=True)
class Parity:
    """The largest differences over all images, in the units of the tolerances; 0 where a task lacks the quantity.

    ``lost`` counts detections of the detector above the confidence that the file lacks, ``extra`` those that
    only the file has: of another class, or farther away than the tolerance.
    """

    images: int
    detections: int
    lost: int
    extra: int
    score: float
    box: float
    keypoint: float
    mask: float

    @property
    def passed(self) -> bool:
        """Whether every detection has its partner within all tolerances."""
        return (
            self.lost == self.extra == 0
            and self.score <= SCORE_TOLERANCE
            and self.box <= BOX_TOLERANCE
            and self.keypoint <= BOX_TOLERANCE
            and self.mask <= MASK_TOLERANCE
        )


def parity(
    detector: Detector | str | PathLike[str],
    path: str | PathLike[str],
    images: Any,
    *,
    format: str | None = None,
    confidence: float = 0.25,
    batch_size: int = 8,
) -> Parity:
    """Return how the file at ``path`` differs from the eager `Predictor` of ``detector`` on ``images``.

    Both are given the same pictures, of any sizes, one by one. Detections are compared with the nearest of
    the same class on the other side, so that near-equal scores may change places. A score within the
    tolerance of ``confidence`` may fall on either side of it: its partner is looked for a tolerance below.
    ``passed`` of the result is the verdict. Raises what the two predictors raise.

    >>> parity("best.ckpt", "model.onnx", "photos").passed  # doctest: +SKIP
    True
    """
    lowest = max(confidence - SCORE_TOLERANCE, 0.0)
    exported = ExportedPredictor(path, format=format, confidence=lowest, batch_size=batch_size)
    info = exported.info
    eager = Predictor(
        detector,
        image_size=info.image_size,
        confidence=lowest,
        max_detections=info.max_detections,
        batch_size=batch_size,
    )
    pairs = [
        _compare(expected, found, confidence)
        for expected, found in zip(eager.stream(images), exported.stream(images), strict=True)
    ]
    sums = [sum(pair[i] for pair in pairs) for i in range(3)]
    largest = [max((pair[i] for pair in pairs), default=0.0) for i in range(3, 7)]
    return Parity(len(pairs), int(sums[0]), int(sums[1]), int(sums[2]), *largest)


def _compare(expected: Predictions, found: Predictions, confidence: float) -> tuple[float, ...]:
    """Return detections, lost, extra and the largest score, box, keypoint and mask difference of one image."""
    there, back = expected.scores > confidence, found.scores > confidence
    distance = _distances(expected, found)
    lost = there & _unmatched(distance, _distances(expected, expected)[:, there])
    extra = back & _unmatched(distance.T, _distances(found, found)[:, back])
    matched = (there & ~lost).nonzero()[:, 0]
    counts = int(there.sum()), int(lost.sum()), int(extra.sum())
    if not len(matched):
        return *counts, 0.0, 0.0, 0.0, 0.0
    # of several at the same place the one that scores most alike
    gap = (expected.scores[:, None] - found.scores).abs()[matched]
    gap, other = gap.masked_fill(distance[matched] > BOX_TOLERANCE, torch.inf).min(1)
    return (
        *counts,
        _largest(gap),
        _largest(distance[matched, other]),
        _keypoint_difference(expected.keypoints, found.keypoints, matched, other),
        _mask_difference(expected.masks, found.masks, matched, other),
    )


def _unmatched(across: Tensor, among: Tensor) -> Tensor:
    """Return (N,) bool: no counterpart in ``across`` (N, M), or fewer than detections ``among`` (N, n) ask for one.

    What lies within a tolerance of a detection has its own counterpart within two.
    """
    wanted = (among <= BOX_TOLERANCE).sum(1)
    return ~(across <= BOX_TOLERANCE).any(1) | ((across <= 2 * BOX_TOLERANCE).sum(1) < wanted)


def _distances(expected: Predictions, found: Predictions) -> Tensor:
    """Return (N, M) the largest coordinate difference of two boxes in pixels, infinite between classes."""
    if expected.rboxes is None or found.rboxes is None:
        distance = (expected.boxes[:, None] - found.boxes).abs().amax(-1)
    else:
        one, other = rboxes_to_polygons(expected.rboxes), rboxes_to_polygons(found.rboxes)
        # a nearly square box may name its corners from another one on
        turns = torch.stack([other.roll(turn, 1) for turn in range(4)])
        distance = (one[None, :, None] - turns[:, None]).abs().amax((-2, -1)).amin(0)
    return distance.masked_fill(expected.labels[:, None] != found.labels, torch.inf)


def _keypoint_difference(
    expected: Tensor | None, found: Tensor | None, matched: Tensor, other: Tensor
) -> float:
    if expected is None or found is None:
        return 0.0
    return _largest((expected[matched] - found[other])[..., :2])


def _mask_difference(expected: Tensor | None, found: Tensor | None, matched: Tensor, other: Tensor) -> float:
    if expected is None or found is None:
        return 0.0
    one, two = expected[matched], found[other]
    return _largest((one ^ two).sum((1, 2)) / (one | two).sum((1, 2)).clamp(min=1))


def _largest(difference: Tensor) -> float:
    return float(difference.abs().max()) if difference.numel() else 0.0
