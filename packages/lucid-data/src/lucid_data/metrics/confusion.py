"""Which class was taken for which, background included."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt
from torch import Tensor

from lucid_geometry import box_iou


@dataclass(frozen=True, eq=False)
class ConfusionMatrix:
    """Counts (C + 1, C + 1): rows are predicted classes, columns true ones, the last of each is background."""

    counts: npt.NDArray[np.int64]
    class_names: tuple[str, ...]


def confusion_matrix(
    predictions: Sequence[tuple[Tensor, Tensor, Tensor]],
    truths: Sequence[tuple[Tensor, Tensor]],
    class_names: Sequence[str],
    *,
    iou_threshold: float = 0.45,
    confidence: float = 0.25,
) -> ConfusionMatrix:
    """Return the confusion matrix over images.

    Args:
        predictions: per image boxes (N, 4), scores (N,), labels (N,).
        truths: per image boxes (M, 4), labels (M,).
        class_names: C names.
        iou_threshold: pairs must overlap more than this; the best overlap is matched first, one to one.
        confidence: predictions scored higher than this count.

    >>> import torch
    >>> box = torch.tensor([[0.0, 0.0, 4.0, 4.0]])
    >>> confusion_matrix([(box, torch.ones(1), torch.tensor([1]))], [(box, torch.tensor([0]))], "ab").counts.tolist()
    [[0, 0, 0], [1, 0, 0], [0, 0, 0]]
    """
    if len(predictions) != len(truths):
        raise ValueError(f"{len(predictions)} images of predictions but {len(truths)} of ground truth")
    c = len(class_names)
    counts = np.zeros((c + 1, c + 1), np.int64)
    for (boxes, scores, labels), (true_boxes, true_labels) in zip(predictions, truths, strict=True):
        sure = scores > confidence
        boxes, found = boxes[sure], labels[sure].numpy()
        wanted = true_labels.numpy()
        rows, columns = _match(box_iou(boxes, true_boxes), iou_threshold)
        np.add.at(counts, (found[rows], wanted[columns]), 1)
        counts[:c, c] += np.bincount(np.delete(found, rows), minlength=c)
        counts[c, :c] += np.bincount(np.delete(wanted, columns), minlength=c)
    return ConfusionMatrix(counts, tuple(class_names))


def _match(iou: Tensor, threshold: float) -> tuple[npt.NDArray[np.int64], npt.NDArray[np.int64]]:
    """Return the pairs of a greedy matching by falling overlap.

    Every round takes all pairs that are each other's best; that is what taking the best pair over and over gives.
    """
    left = np.where(iou.numpy() > threshold, iou.numpy(), -1.0)
    rows: list[int] = []
    columns: list[int] = []
    while left.size and left.max() > 0:
        best_column, best_row = left.argmax(1), left.argmax(0)
        mutual = np.flatnonzero((best_row[best_column] == np.arange(len(left))) & (left.max(1) > 0))
        rows += mutual.tolist()
        columns += best_column[mutual].tolist()
        left[mutual], left[:, best_column[mutual]] = -1.0, -1.0
    return np.array(rows, np.int64), np.array(columns, np.int64)
