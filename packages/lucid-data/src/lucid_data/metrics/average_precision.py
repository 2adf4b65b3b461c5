"""Average precision of one ranked list of hits: three rules for the area under one curve."""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

Hits = npt.NDArray[np.bool_]
Array = npt.NDArray[np.float64]


def precision_recall(hits: npt.ArrayLike, positives: int) -> tuple[Array, Array]:
    """Return precision and recall (D,) after each of the ranked detections ``hits`` (D,) bool, best first."""
    found = np.cumsum(np.asarray(hits, np.float64))
    return found / np.arange(1, len(found) + 1), found / positives if positives else np.zeros_like(found)


def average_precision_101(hits: npt.ArrayLike, positives: int) -> float:
    """Return the mean of the precision envelope at recalls k/100, k = 0..100; -1 without positives.

    Recalls are compared in whole numbers, hits * 100 >= k * positives, so that a recall of exactly k/100 counts.

    >>> round(average_precision_101([True, False, True], 3), 6)
    0.554455
    """
    if not positives:
        return -1.0
    found = np.cumsum(np.asarray(hits, np.int64))
    precision = np.append(_envelope(found / np.arange(1, len(found) + 1)), 0.0)
    at = np.searchsorted(found * 100, np.arange(101) * positives, side="left")
    return float(precision[at].mean())


def average_precision_11(hits: npt.ArrayLike, positives: int) -> float:
    """Return the mean of the largest precision at recalls of at least 0, 0.1, ... 1 (VOC 2007); -1 without positives.

    >>> round(average_precision_11([True, False, True], 3), 6)
    0.545455
    """
    if not positives:
        return -1.0
    precision, recall = precision_recall(hits, positives)
    best = np.append(_envelope(precision), 0.0)
    return float(best[np.searchsorted(recall, np.arange(0.0, 1.1, 0.1), side="left")].mean())


def average_precision_area(hits: npt.ArrayLike, positives: int) -> float:
    """Return the area under the precision envelope (VOC 2010 on); -1 without positives.

    >>> round(average_precision_area([True, False, True], 3), 6)
    0.555556
    """
    if not positives:
        return -1.0
    precision, recall = precision_recall(hits, positives)
    return float((np.diff(recall, prepend=0.0) * _envelope(precision)).sum())


def _envelope(precision: Array) -> Array:
    best: Array = np.maximum.accumulate(precision[::-1])[::-1]
    return best
