"""Where average precision is lost: six kinds of error and what removing each would gain.

After Bolya et al., "TIDE" (ECCV 2020), at one threshold for hits and one below which nothing is meant.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final, Literal

import numpy as np
import numpy.typing as npt
from torch import Tensor

from lucid_data.metrics.average_precision import average_precision_101
from lucid_geometry import box_iou

ErrorKind = Literal["class", "location", "both", "duplicate", "background", "missed"]
ERROR_KINDS: Final[tuple[ErrorKind, ...]] = ("class", "location", "both", "duplicate", "background", "missed")

Floats = npt.NDArray[np.float64]


@dataclass(frozen=True)
class ErrorSplit:
    """Average precision at the hit threshold, and per kind of error how many there are and what mending them gains."""

    map_50: float
    counts: dict[ErrorKind, int]
    gains: dict[ErrorKind, float]


@dataclass
class _Detection:
    score: float
    label: int
    hit: bool
    kind: ErrorKind | None = None
    truth: tuple[int, int, int] | None = None


def error_split(
    predictions: Sequence[tuple[Tensor, Tensor, Tensor]],
    truths: Sequence[tuple[Tensor, Tensor]],
    class_names: Sequence[str],
    *,
    hit: float = 0.5,
    background: float = 0.1,
) -> ErrorSplit:
    """Return the error split of ``predictions`` against ``truths``, image by image.

    Args:
        predictions: per image boxes (N, 4), scores (N,), labels (N,).
        truths: per image boxes (M, 4), labels (M,).
        class_names: C names.
        hit: overlap from which a detection finds its object.
        background: overlap below which it means none.

    A detection that finds nothing free is, in this order: ``location`` when it overlaps an object of its class by at
    least ``background``, ``class`` when it reaches ``hit`` with one of another class, ``duplicate`` when its object is
    found already, ``background`` when it overlaps nothing, else ``both``. ``missed`` are objects that neither a hit
    nor a location or class error is about. Mending takes one kind at a time: location and class errors become hits of
    their object, the best-scored one each, others go.

    >>> import torch
    >>> box = torch.tensor([[0.0, 0.0, 4.0, 4.0]])
    >>> split = error_split([(box, torch.ones(1), torch.tensor([1]))], [(box, torch.tensor([0]))], ["a", "b"])
    >>> split.counts["class"], split.gains["class"]
    (1, 1.0)
    """
    if len(predictions) != len(truths):
        raise ValueError(f"{len(predictions)} images of predictions but {len(truths)} of ground truth")
    found: list[_Detection] = []
    positives = np.zeros(len(class_names), np.int64)
    met: set[tuple[int, int, int]] = set()
    objects: list[tuple[int, int, int]] = []
    for image, ((boxes, scores, labels), (true_boxes, true_labels)) in enumerate(
        zip(predictions, truths, strict=True)
    ):
        wanted = true_labels.numpy()
        positives += np.bincount(wanted, minlength=len(class_names))
        objects += [(image, j, int(c)) for j, c in enumerate(wanted)]
        order = np.argsort(-scores.double().numpy(), kind="stable")
        iou = box_iou(boxes.double(), true_boxes.double()).numpy()[order]
        mine = _judge(
            image, iou, scores.double().numpy()[order], labels.numpy()[order], wanted, hit, background
        )
        met |= {d.truth for d in mine if d.truth and (d.hit or d.kind in ("class", "location"))}
        found += mine
    missed = [o for o in objects if o not in met]
    counts: dict[ErrorKind, int] = {kind: sum(d.kind == kind for d in found) for kind in ERROR_KINDS}
    counts["missed"] = len(missed)
    base = _mean_precision(found, positives)
    gains = {kind: _mean_precision(_mended(found, kind), positives) - base for kind in ERROR_KINDS[:-1]}
    fewer = positives - np.bincount([c for _, _, c in missed], minlength=len(class_names))
    gains["missed"] = _mean_precision(found, fewer, over=positives > 0) - base
    return ErrorSplit(base, counts, gains)


def _judge(
    image: int,
    iou: Floats,
    scores: Floats,
    labels: npt.NDArray[np.int64],
    wanted: npt.NDArray[np.int64],
    hit: float,
    background: float,
) -> list[_Detection]:
    taken = np.zeros(len(wanted), np.bool_)
    out = []
    for row, score, label in zip(iou, scores.tolist(), labels.tolist(), strict=True):
        same = wanted == label
        free = np.where(same & ~taken, row, -1.0)
        if free.size and free.max() >= hit:
            j = int(free.argmax())
            taken[j] = True
            out.append(_Detection(score, label, True, None, (image, j, label)))
            continue
        out.append(_error(image, row, score, label, wanted, same, taken, hit, background))
    # an error may be about an object that a later, lower-scored detection finds; such a one needs no mending
    for d in out:
        if d.kind in ("class", "location") and d.truth and taken[d.truth[1]]:
            d.truth = None
    return out


def _error(
    image: int,
    row: Floats,
    score: float,
    label: int,
    wanted: npt.NDArray[np.int64],
    same: npt.NDArray[np.bool_],
    taken: npt.NDArray[np.bool_],
    hit: float,
    background: float,
) -> _Detection:
    own, other = np.where(same, row, -1.0), np.where(same, -1.0, row)
    best_own, best_other = (float(x.max()) if x.size else -1.0 for x in (own, other))
    if background <= best_own < hit:
        j = int(own.argmax())
        return _Detection(score, label, False, "location", (image, j, label))
    if best_other >= hit:
        j = int(other.argmax())
        return _Detection(score, label, False, "class", (image, j, int(wanted[j])))
    if best_own >= hit:
        return _Detection(score, label, False, "duplicate")
    if max(best_own, best_other) < background:
        return _Detection(score, label, False, "background")
    return _Detection(score, label, False, "both")


def _mended(found: list[_Detection], kind: ErrorKind) -> list[_Detection]:
    out = []
    used: set[tuple[int, int, int]] = set()
    for d in sorted(found, key=lambda d: -d.score):
        if d.kind != kind:
            out.append(d)
        elif kind in ("class", "location") and d.truth and d.truth not in used:
            used.add(d.truth)
            out.append(_Detection(d.score, d.truth[2], True))
    return out


def _mean_precision(
    found: list[_Detection], positives: npt.NDArray[np.int64], over: npt.NDArray[np.bool_] | None = None
) -> float:
    classes = np.flatnonzero(positives > 0 if over is None else over)
    ranked = sorted(found, key=lambda d: -d.score)
    values = []
    for c in classes.tolist():
        hits = [d.hit for d in ranked if d.label == c]
        # a class whose objects are all taken out is without fault
        values.append(average_precision_101(hits, int(positives[c])) if positives[c] else 1.0)
    return float(np.mean(values)) if values else 0.0
