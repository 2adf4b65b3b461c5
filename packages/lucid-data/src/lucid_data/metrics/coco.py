"""COCO scores of boxes, masks and keypoints, with pycocotools as the engine.

Protocol: Lin et al., ECCV 2014, and cocodataset.org/#detection-eval and #keypoints-eval. The engine is never asked to
do anything but what it does: ground truth goes in with ``area``, ``iscrowd`` and ids as the document states them, and
nothing goes in that it would stumble on.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, Final, Literal, get_args

import numpy as np

from lucid_data.metrics.coco_checks import checked_results, load_results
from lucid_data.metrics.coco_truth import checked_truth, class_name
from lucid_data.metrics.engines import Engine, load_engine, silent
from lucid_data.metrics.report import Array, ClassScore, CocoReport, Curves

Kind = Literal["bbox", "segm", "keypoints"]

_BOX_CAPS: Final = (1, 10, 100)
_KEYPOINT_CAPS: Final = (20,)
_BOX_AREAS: Final = {"all": 0, "small": 1, "medium": 2, "large": 3}
_KEYPOINT_AREAS: Final = {"all": 0, "medium": 1, "large": 2}


def score_coco(
    ground_truth: str | Path | Mapping[str, Any],
    results: str | Path | Sequence[Mapping[str, Any]],
    kind: str = "bbox",
    *,
    max_detections: Sequence[int] | None = None,
    class_agnostic: bool = False,
    sigmas: Sequence[float] | None = None,
    exact_recall: bool = False,
    engine: str = "pycocotools",
) -> CocoReport:
    """Return the COCO numbers of ``results`` against ``ground_truth``.

    Args:
        ground_truth: a COCO document or its file. ``iscrowd`` defaults to 0, ``area`` to the mask's, else to
            w * h; annotation ids that are missing or repeat are numbered anew.
        results: a COCO result list or its file: image_id, category_id, score and bbox, segmentation or
            keypoints.
        kind: ``bbox``, ``segm`` or ``keypoints``.
        max_detections: detections per image and class that count, ascending; default 1, 10, 100, for
            keypoints 20. The last one is the cap of the summary.
        class_agnostic: score all classes as one.
        exact_recall: read precision at recalls of exactly k/100. The engine's grid lies a rounding error above ten of
            them, and a class whose recall is one of those loses 1/101; published numbers have that, hence the default.
        engine: ``pycocotools``, or ``faster``, which gives the same numbers sooner and needs the extra ``fast-eval``.
        sigmas: keypoint spreads; default COCO's for 17 points, 0.05 for any other count.

    Labels are read as the reader of COCO files reads them: for ``segm``, annotations without a usable outline are
    left out. Predictions with a number that is not finite are left out and counted. Ids are matched as readers match
    them: 7 and "7" are one id. Raises ValueError, naming the row, for a result or a label that is malformed or of an
    image or category that the ground truth does not have, and for an unknown ``kind``; FileNotFoundError for a file
    that is not there; ImportError for an engine that is not installed.

    >>> truth = {"images": [{"id": 1, "width": 8, "height": 8}], "categories": [{"id": 1, "name": "a"}],
    ...          "annotations": [{"id": 1, "image_id": 1, "category_id": 1, "bbox": [0, 0, 4, 4]}]}
    >>> found = [{"image_id": 1, "category_id": 1, "bbox": [0, 0, 4, 4], "score": 0.9}]
    >>> round(score_coco(truth, found)["map"], 6)
    1.0
    """
    if kind not in get_args(Kind):
        raise ValueError(f"kind must be one of {', '.join(get_args(Kind))}, got {kind!r}")
    found = load_results(results) if isinstance(results, str | Path) else list(results)
    points = None if sigmas is None else len(sigmas)
    document, known = checked_truth(ground_truth, kind, found, points)
    rows, dropped = checked_results(found, known, kind)
    used = load_engine(engine)
    with silent():
        truth = _index(used, document)
        # loadRes looks at the first result
        empty = {"images": document["images"], "categories": document["categories"], "annotations": []}
        scorer = used.evaluation(truth, truth.loadRes(rows) if rows else _index(used, empty), kind)
        caps = tuple(max_detections or (_KEYPOINT_CAPS if kind == "keypoints" else _BOX_CAPS))
        scorer.params.maxDets = list(caps)
        scorer.params.useCats = 0 if class_agnostic else 1
        if exact_recall:
            scorer.params.recThrs = np.arange(101) / 100
        if kind == "keypoints":
            scorer.params.kpt_oks_sigmas = _sigmas(scorer.params.kpt_oks_sigmas, known.points, sigmas)
        scorer.evaluate()
        scorer.accumulate()
    return _report(scorer, document, caps, kind, class_agnostic, len(rows), dropped)


def _report(
    engine: Any,
    document: Mapping[str, Any],
    caps: tuple[int, ...],
    kind: str,
    class_agnostic: bool,
    predictions: int,
    dropped: int,
) -> CocoReport:
    # precision and scores: thresholds x recalls x classes x areas x caps; recall: without the recall axis
    precision, recall = engine.eval["precision"], engine.eval["recall"]
    scores = engine.eval["scores"]
    thresholds, grid = engine.params.iouThrs, engine.params.recThrs
    areas = _KEYPOINT_AREAS if kind == "keypoints" else _BOX_AREAS
    at_50, at_75 = (np.isclose(thresholds, t) for t in (0.5, 0.75))
    numbers = {
        "map": _mean(precision[:, :, :, 0, -1]),
        "map_50": _mean(precision[at_50, :, :, 0, -1]),
        "map_75": _mean(precision[at_75, :, :, 0, -1]),
    }
    numbers |= {f"map_{n}": _mean(precision[:, :, :, a, -1]) for n, a in areas.items() if n != "all"}
    if kind == "keypoints":
        numbers |= {
            "mar": _mean(recall[:, :, 0, -1]),
            "mar_50": _mean(recall[at_50, :, 0, -1]),
            "mar_75": _mean(recall[at_75, :, 0, -1]),
        }
    else:
        numbers |= {f"mar_{cap}": _mean(recall[:, :, 0, m]) for m, cap in enumerate(caps)}
    numbers |= {f"mar_{n}": _mean(recall[:, :, a, -1]) for n, a in areas.items() if n != "all"}

    names = _class_names(engine, document, class_agnostic)
    counts = _ground_truth_counts(engine, class_agnostic)
    per_class = {
        name: ClassScore(
            map=_mean(precision[:, :, k, 0, -1]),
            map_50=_mean(precision[at_50, :, k, 0, -1]),
            mar=_mean(recall[:, k, 0, -1]),
            ground_truths=counts[k],
            **_best_f1(precision[at_50, :, k, 0, -1], scores[at_50, :, k, 0, -1], grid),
        )
        for k, name in enumerate(names)
    }
    curves = Curves(grid, precision[:, :, :, 0, -1], scores[:, :, :, 0, -1], thresholds, names)
    images = len(engine.params.imgIds)
    return CocoReport(
        numbers, per_class, curves, images, len(document["annotations"]), predictions, dropped, kind
    )


def _mean(values: Array) -> float:
    defined = values[values > -1]
    return float(np.mean(defined)) if defined.size else -1.0


def _best_f1(precision: Array, scores: Array, recall: Array) -> dict[str, float]:
    if not precision.size or precision.max() <= 0:
        return dict.fromkeys(("best_f1", "best_confidence", "precision", "recall"), -1.0)
    p = precision.reshape(-1)
    f1 = 2 * p * recall / np.maximum(p + recall, 1e-12)
    best = int(f1.argmax())
    return {
        "best_f1": float(f1[best]),
        "best_confidence": float(scores.reshape(-1)[best]),
        "precision": float(p[best]),
        "recall": float(recall[best]),
    }


def _class_names(engine: Any, document: Mapping[str, Any], class_agnostic: bool) -> tuple[str, ...]:
    if class_agnostic:
        return ("all",)
    named = {category["id"]: class_name(category) for category in document["categories"]}
    names = [named[i] for i in engine.params.catIds]
    if len(set(names)) != len(names):
        names = [f"{name} ({i})" for name, i in zip(names, engine.params.catIds, strict=True)]
    return tuple(names)


def _ground_truth_counts(engine: Any, class_agnostic: bool) -> list[int]:
    counts = Counter(a["category_id"] for a in engine.cocoGt.dataset["annotations"] if not a.get("iscrowd"))
    # the engine forgets its categories when it scores all as one
    return [counts.total()] if class_agnostic else [counts[category] for category in engine.params.catIds]


def _index(engine: Engine, document: Mapping[str, Any]) -> Any:
    coco = engine.index()
    coco.dataset = dict(document)
    coco.createIndex()
    return coco


def _sigmas(usual: Array, points: int, stated: Sequence[float] | None) -> Array:
    if stated is None:
        return usual if len(usual) == points else np.full(points, 0.05)
    if len(stated) != points:
        raise ValueError(f"{len(stated)} sigmas for {points} keypoints; give one each")
    return np.asarray(stated, np.float64)
