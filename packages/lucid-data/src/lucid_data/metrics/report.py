"""What scoring returns: the summary numbers, per class, and the curves behind them."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

Array = npt.NDArray[np.float64]


@dataclass(frozen=True)
class ClassScore:
    """One class: average precision over all thresholds and at 0.5, average recall, ground truths counted.

    -1 where there is nothing to score. ``best_f1`` at IoU 0.5 (OKS for keypoints) is reached by keeping detections
    from ``best_confidence`` up; ``precision`` and ``recall`` are those at that point.
    """

    map: float
    map_50: float
    mar: float
    ground_truths: int
    best_f1: float
    best_confidence: float
    precision: float
    recall: float

    def to_dict(self) -> dict[str, float | int]:
        """Return the fields as plain numbers."""
        return dict(self.__dict__)


@dataclass(frozen=True, eq=False)
class Curves:
    """Precision against recall, for plotting.

    Attributes:
        recall: (R,) the recall grid.
        precision: (T, R, C) interpolated precision per threshold and class, -1 where undefined.
        confidence: (T, R, C) the score at which that recall is reached, -1 where undefined.
        thresholds: (T,) IoU or OKS.
        class_names: C names.
    """

    recall: Array
    precision: Array
    confidence: Array
    thresholds: Array
    class_names: tuple[str, ...]


@dataclass(frozen=True, eq=False)
class CocoReport:
    """The COCO numbers of one result list; ``report["map"]`` reads one of them.

    Attributes:
        numbers: ``map``, ``map_50``, ``map_75``, ``map_small``, ``map_medium``, ``map_large``, ``mar_1``,
            ``mar_10``, ``mar_100``, ``mar_small``, ``mar_medium``, ``mar_large`` (the ``mar_`` names follow the
            caps asked for); for keypoints ``map*`` and ``mar``, ``mar_50``, ``mar_75``, ``mar_medium``,
            ``mar_large``. -1 is undefined.
        per_class: by class name.
        curves: precision-recall data.
        images, ground_truths, predictions: what was scored.
        dropped: predictions left out because a number in them is not finite.
        kind: ``bbox``, ``segm`` or ``keypoints``.
    """

    numbers: Mapping[str, float]
    per_class: Mapping[str, ClassScore]
    curves: Curves
    images: int
    ground_truths: int
    predictions: int
    dropped: int
    kind: str

    def __getitem__(self, name: str) -> Any:
        return self.to_dict()[name]

    def keys(self) -> Iterable[str]:
        """Return the names that ``to_dict`` has, so that ``dict(report)`` is that dictionary."""
        return self.to_dict().keys()

    def to_dict(self) -> dict[str, Any]:
        """Return everything but the curves as plain values, ready for JSON."""
        return {
            **self.numbers,
            "per_class": {name: score.to_dict() for name, score in self.per_class.items()},
            "images": self.images,
            "ground_truths": self.ground_truths,
            "predictions": self.predictions,
            "dropped": self.dropped,
            "kind": self.kind,
        }
