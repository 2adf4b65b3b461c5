"""Findings about the annotations of a COCO file."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from lucid_data.doctor.boxes import check_box
from lucid_data.doctor.findings import Findings
from lucid_data.formats.coco_values import numbers
from lucid_data.formats.rle import decode_rle
from lucid_data.tasks import TaskNeeds

Json = Mapping[str, Any]
Sizes = Mapping[str, tuple[int, int] | None]


def check_annotations(document: Json, sizes: Sizes, file: Path, needs: TaskNeeds, found: Findings) -> None:
    """Add findings about every annotation; ``sizes`` (height, width) by image id, None where unknown."""
    annotations = [a for a in document.get("annotations", []) if isinstance(a, dict)]
    categories = {str(c.get("id")): c for c in document.get("categories", []) if isinstance(c, dict)}
    _check_ids(annotations, file, found)
    _check_absent_fields(annotations, file, found)
    _check_background(annotations, sizes, file, found)
    seen: Counter[tuple[str, ...]] = Counter()
    for annotation in annotations:
        where = f"annotation {annotation.get('id', '(without id)')}"
        if str(annotation.get("image_id")) not in sizes:
            message = f"image {annotation.get('image_id')!r} is not listed"
            remedy = "list the image or delete the annotation; it is left out"
            found.add("coco-unknown-image", "error", file, where, message, remedy)
            continue
        category = categories.get(str(annotation.get("category_id")))
        if category is None:
            message = f"category {annotation.get('category_id')!r} is not listed"
            found.add(
                "coco-unknown-category", "error", file, where, message, "add the category or correct the id"
            )
        size = sizes[str(annotation["image_id"])]
        _check_bbox(annotation, size, file, where, found)
        _check_segmentation(annotation, size, file, where, found)
        if needs.rboxes and "segmentation" in annotation and not annotation.get("iscrowd"):
            _check_quad(annotation["segmentation"], file, where, found)
        if annotation.get("keypoints") is not None:
            _check_keypoints(annotation, category or {}, size, file, where, found)
        key = (str(annotation["image_id"]), str(annotation.get("category_id")), str(annotation.get("bbox")))
        seen[key] += 1
        if seen[key] == 2 and not annotation.get("iscrowd"):
            message = "another annotation has the same image, category and box"
            found.add("coco-object-repeated", "warning", file, where, message, "delete one of them")


def _check_ids(annotations: list[dict[str, Any]], file: Path, found: Findings) -> None:
    ids = Counter(str(a["id"]) for a in annotations if "id" in a)
    repeated = {key: count for key, count in ids.items() if count > 1}
    for key, count in repeated.items():
        message = f"{count} annotations share this id"
        remedy = "renumber them; COCO's own scoring would count the last one several times"
        found.add("coco-annotation-id-repeated", "warning", file, f"annotation {key}", message, remedy)


def _check_absent_fields(annotations: list[dict[str, Any]], file: Path, found: Findings) -> None:
    meaning = {
        "id": "numbered anew for scoring",
        "area": "taken as width times height",
        "iscrowd": "taken as 0",
        "segmentation": "no outline",
    }
    for field, effect in meaning.items():
        count = sum(field not in a for a in annotations)
        if count:
            message = f"annotations without {field!r}: {count} of {len(annotations)} ({effect})"
            found.add(
                f"coco-no-{field}", "note", file, "annotations", message, f"add {field!r} if you have it"
            )
    empty = [a.get("id") for a in annotations if a.get("segmentation") == []]
    if empty:
        message = f"annotations with an empty list as outline: {len(empty)}, such as annotation {empty[0]}"
        remedy = "nothing to do for boxes; draw outlines to train masks"
        found.add("coco-outline-empty", "note", file, "annotations", message, remedy)
    flags = sum(isinstance(a.get("iscrowd"), bool) for a in annotations)
    if flags:
        message = f"annotations that write iscrowd as true or false: {flags}"
        found.add(
            "coco-iscrowd-type",
            "note",
            file,
            "annotations",
            message,
            "write 0 or 1; other tools may refuse it",
        )


def _check_background(annotations: list[dict[str, Any]], sizes: Sizes, file: Path, found: Findings) -> None:
    empty = set(sizes) - {str(a.get("image_id")) for a in annotations}
    if empty:
        message = f"images without an annotation: {len(empty)} of {len(sizes)}, such as image {min(empty)}"
        found.add("coco-background", "note", file, "images", message, "nothing to do if they show no object")


def _check_bbox(
    annotation: Json, size: tuple[int, int] | None, file: Path, where: str, found: Findings
) -> None:
    try:
        x, y, w, h = numbers(annotation.get("bbox"), 4, "bbox")
    except ValueError as error:
        found.add("coco-bbox-malformed", "error", file, where, str(error), "write [x, y, width, height]")
        return
    if any(isinstance(v, str) for v in annotation["bbox"]):
        message = f"bbox holds numbers as text: {annotation['bbox']}"
        found.add(
            "coco-number-type", "warning", file, where, message, "write numbers; other tools may refuse text"
        )
    if not all(map(math.isfinite, (x, y, w, h))):
        message = f"bbox holds a number that is not finite: {annotation['bbox']}"
        found.add("coco-bbox-not-finite", "error", file, where, message, "correct it; the object is left out")
        return
    check_box((x, y, x + w, y + h), size, "coco", file, where, found)


def _check_segmentation(
    annotation: Json, size: tuple[int, int] | None, file: Path, where: str, found: Findings
) -> None:
    segmentation = annotation.get("segmentation")
    problem = ""
    if isinstance(segmentation, list):
        problem = _ring_problem(segmentation)
    elif isinstance(segmentation, dict):
        problem = _rle_problem(segmentation, size)
    elif segmentation is not None:
        problem = f"a {type(segmentation).__name__} is no outline"
    if problem:
        message = f"unusable outline: {problem}"
        found.add("coco-outline", "warning", file, where, message, "redraw the outline; the box is kept")


def _check_quad(segmentation: Any, file: Path, where: str, found: Findings) -> None:
    rings = segmentation if isinstance(segmentation, list) else []
    if len(rings) != 1 or not isinstance(rings[0], list) or len(rings[0]) != 8:
        message = "an oriented box needs one ring of four points"
        found.add("coco-quad", "error", file, where, message, "write its four corners as segmentation")


def _ring_problem(rings: list[Any]) -> str:
    if not all(isinstance(ring, list) for ring in rings):
        return "a flat list of numbers instead of a list of rings"
    for ring in rings:
        if len(ring) == 0:
            return "one ring is empty"
        if len(ring) % 2:
            return f"a ring has {len(ring)} numbers, an odd count"
        if len(ring) < 6:
            return f"a ring has {len(ring) // 2} points; it takes three"
    return ""


def _rle_problem(encoded: Json, size: tuple[int, int] | None) -> str:
    try:
        decode_rle(encoded, size)
    except ValueError as error:
        return str(error)
    return ""


def _check_keypoints(
    annotation: Json, category: Json, size: tuple[int, int] | None, file: Path, where: str, found: Findings
) -> None:
    flat = annotation["keypoints"]
    stated = category.get("keypoints")
    named = len(stated) if isinstance(stated, list) else 0
    if not isinstance(flat, list) or len(flat) % 3 or (named and len(flat) != 3 * named):
        count = len(flat) if isinstance(flat, list) else flat
        wanted = f"{3 * named} numbers ({named} points)" if named else "three numbers per point"
        message = f"keypoints hold {count} numbers instead of {wanted}"
        found.add("coco-keypoint-length", "error", file, where, message, "complete the list")
        return
    try:
        flat = numbers(flat, len(flat), "keypoints")
    except ValueError as error:
        found.add("coco-keypoint-number", "error", file, where, str(error), "write numbers")
        return
    points = [flat[at : at + 3] for at in range(0, len(flat), 3)]
    labelled = [p for p in points if p[2] > 0]
    if "num_keypoints" in annotation and annotation["num_keypoints"] != len(labelled):
        message = f"num_keypoints is {annotation['num_keypoints']}, but {len(labelled)} points are labelled"
        found.add(
            "coco-num-keypoints", "warning", file, where, message, "correct the count; scoring goes by it"
        )
    if any(p[2] == 0 and (p[0] or p[1]) for p in points):
        message = "a point with visibility 0 has coordinates"
        found.add(
            "coco-keypoint-hidden", "note", file, where, message, "set them to 0, or the visibility to 1"
        )
    if size is not None and any(not (0 <= p[0] <= size[1] and 0 <= p[1] <= size[0]) for p in labelled):
        message = "labelled points lie outside the picture"
        found.add("coco-keypoint-outside", "warning", file, where, message, "set their visibility to 0")
