"""COCO results checked, row by row, and put in the form that scoring takes."""

from __future__ import annotations

import json
import math
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, Final

from pycocotools import mask as rle

from lucid_data.formats.coco_values import numbers
from lucid_data.formats.rle import decode_rle
from lucid_data.ground_truth import Size
from lucid_data.metrics.coco_truth import Known, id_text

FIELDS: Final = {"bbox": "bbox", "segm": "segmentation", "keypoints": "keypoints"}


def load_results(path: str | Path) -> list[Any]:
    """Return the result list in a file; FileNotFoundError or ValueError naming it otherwise."""
    file = Path(path)
    if not file.is_file():
        raise FileNotFoundError(f"result file {file} does not exist")
    try:
        results = json.loads(file.read_bytes().decode("utf-8-sig"))
    except (ValueError, RecursionError) as error:
        raise ValueError(f"{file} is not JSON: {error}") from error
    if not isinstance(results, list):
        raise ValueError(f"{file} must hold a list of results, got {type(results).__name__}")
    return results


def checked_results(results: Sequence[Any], known: Known, kind: str) -> tuple[list[dict[str, Any]], int]:
    """Return the results that can be scored, with the engine's ids and what ``kind`` needs, and how many others.

    Those others hold a number that is not finite. Masks come as compressed run lengths. A box beside a mask or
    keypoints stays where every result has one: the engine takes its area, and looks at the first to know.

    Raises ValueError naming the result that is malformed, or of an image or category not in the ground truth.
    """
    read = [_result(result, f"result {number}", known, kind) for number, result in enumerate(results)]
    finite = [row for row in read if row is not None]
    if kind != "bbox" and not all("bbox" in row for row in finite):
        for row in finite:
            row.pop("bbox", None)
    return finite, len(read) - len(finite)


def _result(result: object, where: str, known: Known, kind: str) -> dict[str, Any] | None:
    """Return one result, or None when a number of it is not finite."""
    if not isinstance(result, Mapping):
        raise ValueError(f"{where} must be an object, got {result!r}")
    name = FIELDS[kind]
    missing = [one for one in ("image_id", "category_id", "score", name) if one not in result]
    if missing:
        raise ValueError(f"{where} has no {', '.join(missing)}; {kind} results need it")
    image = known.images.get(id_text(result["image_id"], f"{where}: image_id"))
    if image is None:
        raise ValueError(f"{where}: image {result['image_id']!r} is not in the ground truth")
    category = known.categories.get(id_text(result["category_id"], f"{where}: category_id"))
    if category is None:
        raise ValueError(f"{where}: category {result['category_id']!r} is not in 'categories'")
    score = result["score"]
    if isinstance(score, bool):
        raise ValueError(f"{where}: score must be a number, got {score!r}")
    row: dict[str, Any] = {"image_id": image, "category_id": category}
    (row["score"],) = values = numbers([score], 1, f"{where}: score")
    box = result.get("bbox")
    if kind == "bbox" or (box is not None and box != []):
        row["bbox"] = numbers(box, 4, f"{where}: bbox")
        values = values + row["bbox"]
    if kind == "keypoints":
        row["keypoints"] = numbers(result[name], 3 * known.points, f"{where}: keypoints")
        values = values + row["keypoints"]
    if not all(map(math.isfinite, values)):
        return None
    if kind == "segm":
        mask = _mask(result[name], known.sizes[image], f"{where}: segmentation")
        if mask is None:
            return None
        row["segmentation"] = mask
    return row


def _mask(segmentation: object, size: Size, where: str) -> dict[str, Any] | None:
    """Return the compressed run lengths of a mask, or None when a coordinate is not finite."""
    if isinstance(segmentation, dict):
        try:
            # the engine never comes back from run lengths that do not cover their picture
            decode_rle(segmentation, size)
        except OverflowError:
            raise ValueError(f"{where}: a run length is longer than any picture") from None
        except ValueError as error:
            raise ValueError(f"{where}: {error}") from None
        lengths: dict[str, Any] = {"size": list(size), "counts": segmentation["counts"]}
        return _encoded(lengths, size) if isinstance(lengths["counts"], list) else lengths
    if not isinstance(segmentation, list) or not segmentation:
        raise ValueError(f"{where} must be rings of x, y numbers or run lengths, got {segmentation!r}")
    rings = []
    for ring in segmentation:
        if not isinstance(ring, list) or len(ring) < 6 or len(ring) % 2:
            raise ValueError(f"{where}: a ring must hold x, y of three points or more, got {ring!r}")
        rings.append(numbers(ring, len(ring), f"{where}: a ring"))
    if not all(math.isfinite(number) for ring in rings for number in ring):
        return None
    return dict(rle.merge(_encoded(rings, size)))


def _encoded(outline: list[list[float]] | dict[str, Any], size: Size) -> Any:
    return rle.frPyObjects(outline, *size)
