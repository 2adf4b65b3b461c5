"""Average precision of rotated boxes after COCO's fashion: ten thresholds, 101 recalls, exact overlap.

A detection claims the free object that it overlaps most among those that are not difficult and reach the threshold;
failing that, a difficult object that reaches it makes the detection count neither way; failing that it is a false
alarm.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final

import numpy as np
import numpy.typing as npt
import torch
from torch import Tensor

from lucid_data.metrics.average_precision import average_precision_101
from lucid_data.targets import Targets
from lucid_geometry import rotated_box_iou

THRESHOLDS: Final = np.arange(50, 100, 5) / 100
Flags = npt.NDArray[np.bool_]


@dataclass(frozen=True)
class RotatedReport:
    """COCO-style rotated scores; ``report["map"]`` reads one.

    Attributes:
        numbers: ``map``, ``map_50``, ``map_75`` and ``mar_<cap>``, means over classes that have an object that is not
            difficult; 0 when none has.
        per_class: average precision over the thresholds, at 0.5, and the number of objects that count, by name.
        images, ground_truths, predictions, dropped: what was scored; dropped predictions are not finite.
    """

    numbers: Mapping[str, float]
    per_class: Mapping[str, Mapping[str, float]]
    images: int
    ground_truths: int
    predictions: int
    dropped: int

    def __getitem__(self, name: str) -> Any:
        return self.to_dict()[name]

    def to_dict(self) -> dict[str, Any]:
        """Return everything as plain values, ready for JSON."""
        return {
            **self.numbers,
            "per_class": {name: dict(values) for name, values in self.per_class.items()},
            "images": self.images,
            "ground_truths": self.ground_truths,
            "predictions": self.predictions,
            "dropped": self.dropped,
            "kind": "rotated",
        }


def score_rotated(
    predictions: Sequence[tuple[Tensor, Tensor, Tensor]],
    truths: Sequence[Targets],
    class_names: Sequence[str],
    *,
    max_detections: int | None = 300,
) -> RotatedReport:
    """Return the scores of ``predictions`` against ``truths``, image by image in one order.

    Args:
        predictions: per image rotated boxes (N, 5), scores (N,), labels (N,).
        truths: per image labels with rotated boxes and difficult flags.
        class_names: C names.
        max_detections: the best of an image that count, over all classes; None for images merged of tiles.

    Raises ValueError when the counts of images differ.

    >>> box = torch.tensor([[5.0, 5.0, 6.0, 2.0, 0.3]])
    >>> truth = Targets.of(torch.tensor([[2.0, 3.0, 8.0, 7.0]]), torch.tensor([0]), rboxes=box)
    >>> round(score_rotated([(box, torch.ones(1), torch.tensor([0]))], [truth], ["a"])["map"], 6)
    1.0
    """
    if len(predictions) != len(truths):
        raise ValueError(f"{len(predictions)} images of predictions but {len(truths)} of ground truth")
    total = sum(len(scores) for _, scores, _ in predictions)
    kept = [_best(*image, max_detections) for image in predictions]
    precisions = np.full((len(class_names), len(THRESHOLDS)), np.nan)
    recalls = np.full_like(precisions, np.nan)
    positives = np.zeros(len(class_names), np.int64)
    for label in range(len(class_names)):
        scores, hits, counts, positives[label] = _matched(kept, truths, label)
        if positives[label]:
            order = np.argsort(-scores, kind="stable")
            for t in range(len(THRESHOLDS)):
                ranked = hits[order, t][counts[order, t]]
                precisions[label, t] = average_precision_101(ranked, int(positives[label]))
                recalls[label, t] = ranked.sum() / positives[label]
    used = positives > 0
    cap = "all" if max_detections is None else str(max_detections)
    numbers = {
        "map": _mean(precisions[used]),
        "map_50": _mean(precisions[used, 0]),
        "map_75": _mean(precisions[used, 5]),
        f"mar_{cap}": _mean(recalls[used]),
    }
    per_class = {
        name: {"map": _or_absent(p.mean()), "map_50": _or_absent(p[0]), "ground_truths": int(n)}
        for name, p, n in zip(class_names, precisions, positives.tolist(), strict=True)
    }
    finite = sum(int(_finite(r, s).sum()) for r, s, _ in predictions)
    return RotatedReport(numbers, per_class, len(truths), sum(len(t) for t in truths), finite, total - finite)


def _finite(rboxes: Tensor, scores: Tensor) -> Tensor:
    return torch.isfinite(rboxes).all(1) & torch.isfinite(scores)


def _best(rboxes: Tensor, scores: Tensor, labels: Tensor, most: int | None) -> tuple[Tensor, Tensor, Tensor]:
    usable = _finite(rboxes, scores)
    rboxes, scores, labels = rboxes[usable], scores[usable], labels[usable]
    order = torch.argsort(scores, descending=True, stable=True)[:most]
    return rboxes[order].double(), scores[order], labels[order]


def _matched(
    kept: Sequence[tuple[Tensor, Tensor, Tensor]], truths: Sequence[Targets], label: int
) -> tuple[npt.NDArray[np.float64], Flags, Flags, int]:
    """Return scores (D,), hit and counted (D, T) of one class over all images, and its positives."""
    scores: list[npt.NDArray[np.float64]] = [np.zeros(0)]
    hits: list[Flags] = [np.zeros((0, len(THRESHOLDS)), np.bool_)]
    counts: list[Flags] = [np.zeros((0, len(THRESHOLDS)), np.bool_)]
    positives = 0
    for (rboxes, values, labels), truth in zip(kept, truths, strict=True):
        mine, theirs = labels == label, truth.labels == label
        hard = truth.difficult[theirs].numpy()
        positives += int((~hard).sum())
        if mine.any():
            iou = np.zeros((int(mine.sum()), 0))
            if theirs.any():
                iou = rotated_box_iou(rboxes[mine], truth.rboxes[theirs].double()).numpy()
            hit, counted = match_ranked(iou, hard, THRESHOLDS)
            scores.append(values[mine].double().numpy())
            hits.append(hit)
            counts.append(counted)
    return np.concatenate(scores), np.concatenate(hits), np.concatenate(counts), positives


def match_ranked(
    iou: npt.NDArray[np.float64], difficult: Flags, thresholds: npt.NDArray[np.float64]
) -> tuple[Flags, Flags]:
    """Return hit and counted (D, T) bool of detections in rank order against objects, from ``iou`` (D, G).

    All thresholds advance together; the loop is over detections, each of which depends on the ones before.
    """
    detections = len(iou)
    hit = np.zeros((detections, len(thresholds)), np.bool_)
    counted = np.ones_like(hit)
    easy, hard = iou[:, ~difficult], iou[:, difficult]
    free = np.ones((len(thresholds), easy.shape[1]), np.bool_)
    rows = np.arange(len(thresholds))
    for d in range(detections):
        reach = free & (easy[d] >= thresholds[:, None])
        some = reach.any(1)
        if easy.shape[1]:
            claimed = np.where(reach, easy[d], -1.0).argmax(1)
            free[rows[some], claimed[some]] = False
        hit[d] = some
        if hard.shape[1]:
            counted[d] = some | ~(hard[d].max() >= thresholds)
    return hit, counted


def _mean(values: npt.NDArray[np.float64]) -> float:
    return float(values.mean()) if values.size else 0.0


def _or_absent(value: float) -> float:
    return -1.0 if np.isnan(value) else float(value)
