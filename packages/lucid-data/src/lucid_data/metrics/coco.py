"""COCO scores of boxes, masks and keypoints, with pycocotools as the engine.

Protocol: Lin et al., ECCV 2014, and cocodataset.org/#detection-eval and #keypoints-eval. The engine is never asked to
do anything but what it does: ground truth goes in with ``area``, ``iscrowd`` and ids as the document states them.
"""

from __future__ import annotations

import copy
import io
import json
import math
from collections import Counter
from collections.abc import Mapping, Sequence
from contextlib import redirect_stdout
from pathlib import Path
from typing import Any, Final, Literal, get_args

import numpy as np
from pycocotools import mask as rle

from lucid_data.formats.coco_json import load_document
from lucid_data.formats.coco_values import finite_number, id_key, numbers
from lucid_data.metrics.engines import Engine, load_engine
from lucid_data.metrics.report import Array, ClassScore, CocoReport, Curves

Kind = Literal["bbox", "segm", "keypoints"]

_BOX_CAPS: Final = (1, 10, 100)
_KEYPOINT_CAPS: Final = (20,)
_BOX_AREAS: Final = {"all": 0, "small": 1, "medium": 2, "large": 3}
_KEYPOINT_AREAS: Final = {"all": 0, "medium": 1, "large": 2}
_NUMERIC_FIELDS: Final = ("bbox", "keypoints", "score")


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

    Predictions with a number that is not finite are left out and counted. Ids are matched as readers match them:
    7 and "7" are one id. Raises ValueError for an unknown ``kind``, a result without its fields, an image that the
    ground truth does not have, and a labelled box or area that is not finite numbers, with the annotation's id;
    ImportError for an engine that is not installed.

    >>> truth = {"images": [{"id": 1, "width": 8, "height": 8}], "categories": [{"id": 1, "name": "a"}],
    ...          "annotations": [{"id": 1, "image_id": 1, "category_id": 1, "bbox": [0, 0, 4, 4]}]}
    >>> found = [{"image_id": 1, "category_id": 1, "bbox": [0, 0, 4, 4], "score": 0.9}]
    >>> round(score_coco(truth, found)["map"], 6)
    1.0
    """
    if kind not in get_args(Kind):
        raise ValueError(f"kind must be one of {', '.join(get_args(Kind))}, got {kind!r}")
    document = load_document(ground_truth) if isinstance(ground_truth, str | Path) else dict(ground_truth)
    found = load_results(results) if isinstance(results, str | Path) else list(results)
    document["annotations"] = _with_ids([_completed(a, kind) for a in document["annotations"]])
    document, finite = _with_one_id_type(document, [dict(r) for r in found if _finite(r, kind)])
    _check_results(finite, document, kind)
    used = load_engine(engine)
    with redirect_stdout(io.StringIO()):
        truth = _index(used, document)
        scorer = used.evaluation(truth, _predictions(used, truth, document, finite, kind), kind)
        caps = tuple(max_detections or (_KEYPOINT_CAPS if kind == "keypoints" else _BOX_CAPS))
        scorer.params.maxDets = list(caps)
        scorer.params.useCats = 0 if class_agnostic else 1
        if exact_recall:
            scorer.params.recThrs = np.arange(101) / 100
        if kind == "keypoints":
            _set_sigmas(scorer, document, sigmas)
        scorer.evaluate()
        scorer.accumulate()
    return _report(scorer, document, caps, kind, class_agnostic, len(finite), len(found) - len(finite))


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
    named = {c["id"]: str(c.get("name", c["id"])) for c in document["categories"]}
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


def _predictions(
    engine: Engine, truth: Any, document: Mapping[str, Any], results: list[dict[str, Any]], kind: str
) -> Any:
    if not results:  # loadRes looks at the first result
        return _index(
            engine, {"images": document["images"], "categories": document["categories"], "annotations": []}
        )
    own = copy.deepcopy(results)  # loadRes writes into what it is given
    if kind == "segm":
        sizes = {image["id"]: (image["height"], image["width"]) for image in document["images"]}
        for result in own:
            if isinstance(result["segmentation"], list) and not result.get("bbox"):
                # loadRes takes polygons only where a box gives it the area
                parts = rle.frPyObjects(result["segmentation"], *sizes[result["image_id"]])
                result["segmentation"] = rle.merge(parts)
    return truth.loadRes(own)


def _completed(annotation: Mapping[str, Any], kind: str) -> dict[str, Any]:
    full = dict(annotation)
    full.setdefault("iscrowd", 0)
    where = f"annotation {full.get('id', '(without id)')} of image {full.get('image_id')!r}"
    if kind == "bbox" or "bbox" in full:
        full["bbox"] = numbers(full.get("bbox"), 4, f"{where}: bbox")
        if not all(map(math.isfinite, full["bbox"])):
            raise ValueError(f"{where}: bbox {full['bbox']} is not finite; correct or remove the annotation")
    if full.get("area") is not None:
        full["area"] = finite_number(full["area"], f"{where}: area")
    else:
        _x, _y, w, h = full["bbox"]
        full["area"] = w * h
        segmentation = full.get("segmentation")
        if (
            kind == "segm"
            and isinstance(segmentation, dict)
            and isinstance(segmentation.get("counts"), str | bytes)
        ):
            full["area"] = float(rle.area(segmentation))
    if kind == "keypoints":
        full.setdefault("num_keypoints", sum(1 for v in full.get("keypoints", ())[2::3] if v > 0))
    return full


def _with_one_id_type(
    document: dict[str, Any], results: list[dict[str, Any]]
) -> tuple[dict[str, Any], list[dict[str, Any]]]:
    # the engine compares ids as they are: an annotation of image "7" would not be one of image 7
    own = [image["id"] for image in document["images"]]
    whole = all(isinstance(one, int) for one in own)
    images = {id_key(one): one if whole else str(one) for one in own}
    if len(images) != len(set(own)):
        raise ValueError("image ids differ only in their type, such as 7 and '7'; renumber the images")
    categories = {id_key(c["id"]): c["id"] for c in document["categories"]}
    if not all(isinstance(one, int) for one in categories.values()):
        categories = {key: int(key) if key.lstrip("-").isdecimal() else key for key in categories}

    def matched(row: Mapping[str, Any]) -> dict[str, Any]:
        full = dict(row)
        for name, known in (("image_id", images), ("category_id", categories)):
            if name in full:
                full[name] = known.get(id_key(full[name]), full[name])
        return full

    changed = {
        "images": [image | {"id": images[id_key(image["id"])]} for image in document["images"]],
        "categories": [c | {"id": categories[id_key(c["id"])]} for c in document["categories"]],
        "annotations": [matched(annotation) for annotation in document["annotations"]],
    }
    return document | changed, [matched(result) for result in results]


def _with_ids(annotations: list[dict[str, Any]]) -> list[dict[str, Any]]:
    # the engine looks annotations up by id: two with one id would both become the last
    ids = [a.get("id") for a in annotations]
    if None in ids or len(set(ids)) != len(ids):
        return [a | {"id": number} for number, a in enumerate(annotations, 1)]
    return annotations


def load_results(path: str | Path) -> list[dict[str, Any]]:
    """Return the result list in a file; FileNotFoundError or ValueError naming it otherwise."""
    file = Path(path)
    if not file.is_file():
        raise FileNotFoundError(f"result file {file} does not exist")
    try:
        results = json.loads(file.read_bytes().decode("utf-8-sig"))
    except (UnicodeDecodeError, json.JSONDecodeError) as error:
        raise ValueError(f"{file} is not JSON: {error}") from error
    if not isinstance(results, list):
        raise ValueError(f"{file} must hold a list of results, got {type(results).__name__}")
    return results


def _finite(result: Mapping[str, Any], kind: str) -> bool:
    for name in _NUMERIC_FIELDS:
        value = result.get(name)
        if value is not None:
            flat = value if isinstance(value, list | tuple) else (value,)
            if not all(math.isfinite(number) for number in flat):
                return False
    return True


def _check_results(results: Sequence[Mapping[str, Any]], document: Mapping[str, Any], kind: str) -> None:
    field = "segmentation" if kind == "segm" else kind
    images = {image["id"] for image in document["images"]}
    for number, result in enumerate(results):
        missing = [name for name in ("image_id", "category_id", "score", field) if name not in result]
        if missing:
            raise ValueError(f"result {number} has no {', '.join(missing)}; {kind} results need it")
        if result["image_id"] not in images:
            raise ValueError(f"result {number}: image {result['image_id']!r} is not in the ground truth")


def _set_sigmas(engine: Any, document: Mapping[str, Any], sigmas: Sequence[float] | None) -> None:
    if sigmas is None:
        counts = {len(a["keypoints"]) // 3 for a in document["annotations"] if a.get("keypoints")}
        if counts - {17}:
            engine.params.kpt_oks_sigmas = np.full(max(counts), 0.05)
    else:
        engine.params.kpt_oks_sigmas = np.asarray(sigmas, np.float64)
