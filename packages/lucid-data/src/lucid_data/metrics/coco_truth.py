"""COCO ground truth checked and put in the form that scoring takes, by the rules of the reader."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from numbers import Real
from pathlib import Path
from typing import Any, Final

from pycocotools import mask as rle

from lucid_data.formats.coco_json import load_document
from lucid_data.formats.coco_values import finite_number, id_key, numbers
from lucid_data.ground_truth import Size, usable_outline

Row = Mapping[str, Any]

_LARGEST_SIDE: Final = 2**31 - 1
_LARGEST_ID: Final = 2**53
_COCO_POINTS: Final = 17


@dataclass(frozen=True)
class Known:
    """What annotations and results of one ground truth refer to.

    Attributes:
        images, categories: the engine's id by the text of the id that is stated.
        sizes: height and width by the engine's image id; for ``segm`` only, else {}.
        points: keypoints per object; for ``keypoints`` only, else 0.
    """

    images: Mapping[str, int]
    categories: Mapping[str, int]
    sizes: Mapping[int, Size]
    points: int


def checked_truth(
    ground_truth: str | Path | Row, kind: str, results: Sequence[Any] = (), points: int | None = None
) -> tuple[dict[str, Any], Known]:
    """Return a COCO document, or that of a file, as the engine can take it, and what its ids are.

    Annotations of images that are not listed are left out, for ``segm`` those without a usable outline too; rings
    that are unusable go. A missing ``iscrowd`` is 0, a missing ``area`` the mask's or the box's, missing keypoints
    are zeros that do not count. The number of keypoints is that of the categories, else of the first annotation,
    else ``points``, else of the first of ``results``. What is given is not changed.

    Raises ValueError naming the image, category or annotation that cannot be read so.
    """
    document = _document(ground_truth)
    categories = [c | {"id": _category_id(c, n)} for n, c in enumerate(document["categories"])]
    image_ids = _image_ids(document["images"])
    images = [i | {"id": n} for i, n in zip(document["images"], image_ids.values(), strict=True)]
    if kind == "segm":
        images = [image | _stated_size(image, n) for n, image in enumerate(images)]
    known = Known(
        image_ids,
        {id_key(category["id"]): category["id"] for category in categories},
        {image["id"]: (image["height"], image["width"]) for image in images} if kind == "segm" else {},
        _point_count(document, results, points) if kind == "keypoints" else 0,
    )
    read = (_annotation(a, n, known, kind) for n, a in enumerate(document["annotations"]))
    annotations = _numbered([annotation for annotation in read if annotation is not None])
    return {**document, "images": images, "categories": categories, "annotations": annotations}, known


def id_text(value: object, where: str) -> str:
    """Return the text by which an id is compared; ValueError naming ``where`` for what is no id."""
    if isinstance(value, bool) or not isinstance(value, str | Real):
        raise ValueError(f"{where} must be a number or text, got {value!r}")
    return id_key(value)


def class_name(category: Row) -> str:
    """Return the name of a category, its id where it has none."""
    name = category.get("name")
    return str(category["id"] if name is None else name)


def _document(ground_truth: object) -> dict[str, Any]:
    if isinstance(ground_truth, str | Path):
        return load_document(ground_truth)
    if not isinstance(ground_truth, Mapping):
        raise ValueError(f"ground truth must be a COCO document or its file, got {ground_truth!r}")
    for key in ("images", "annotations", "categories"):
        if not isinstance(ground_truth.get(key), list):
            raise ValueError(f"the ground truth has no list {key!r}; add it")
        for position, entry in enumerate(ground_truth[key]):
            if not isinstance(entry, dict):
                raise ValueError(f"{key}[{position}] must be an object, got {entry!r}")
    return dict(ground_truth)


def _category_id(category: Row, position: int) -> int:
    where = f"categories[{position}]: id"
    try:
        return int(id_text(category.get("id"), where))
    except ValueError:
        raise ValueError(f"{where} must be a whole number, got {category.get('id')!r}") from None


def _image_ids(images: Sequence[Row]) -> dict[str, int]:
    """Return the engine's ids by the text of the stated ones: whole numbers as they are, others by rank."""
    stated = [image.get("id") for image in images]
    keys = [id_text(one, f"images[{n}]: id") for n, one in enumerate(stated)]
    first = {key: n for n, key in reversed(list(enumerate(keys)))}
    for position, key in enumerate(keys):
        if first[key] != position:
            raise ValueError(
                f"images[{position}]: id {stated[position]!r} is that of images[{first[key]}] too, "
                f"{stated[first[key]]!r}; renumber the images"
            )
    if all(isinstance(one, int) and abs(one) < _LARGEST_ID for one in stated):
        return {key: int(key) for key in keys}
    # equal scores are ranked in the order of their images, which is that of the ids as text
    rank = {key: n for n, key in enumerate(sorted(keys), 1)}
    return {key: rank[key] for key in keys}


def _stated_size(image: Row, position: int) -> dict[str, int]:
    size = {}
    for name in ("height", "width"):
        where = f"images[{position}]: {name}"
        value = image.get(name)
        if value is None:
            raise ValueError(f"{where} is missing; masks are scored in the picture's size, add it")
        side = finite_number(value, where)
        if not (side.is_integer() and 1 <= side <= _LARGEST_SIDE):
            raise ValueError(f"{where} must be a whole number of 1 or more, got {value!r}")
        size[name] = int(side)
    return size


def _point_count(document: Row, results: Sequence[Any], points: int | None) -> int:
    listed = {len(c["keypoints"]) for c in document["categories"] if isinstance(c.get("keypoints"), list)} - {
        0
    }
    if len(listed) > 1:
        raise ValueError(
            "the categories have 'keypoints' lists of different lengths; one list per ground truth"
        )
    if listed:
        return listed.pop()
    own = _first_length(document["annotations"])
    return own or points or _first_length(results) or _COCO_POINTS


def _first_length(rows: Sequence[Any]) -> int:
    lists = (row.get("keypoints") for row in rows if isinstance(row, Mapping))
    return next((max(1, len(one) // 3) for one in lists if isinstance(one, list | tuple) and one), 0)


def _annotation(annotation: Row, position: int, known: Known, kind: str) -> dict[str, Any] | None:
    """Return an annotation complete for ``kind``, or None for one that is left out."""
    own = annotation.get("id")
    name = f"annotations[{position}]" if own is None else f"annotation {own}"
    image = known.images.get(id_text(annotation.get("image_id"), f"{name}: image_id"))
    if image is None:
        return None
    where = f"{name} of image {annotation['image_id']!r}"
    category = known.categories.get(id_text(annotation.get("category_id"), f"{where}: category_id"))
    if category is None:
        raise ValueError(f"{where}: category {annotation['category_id']!r} is not in 'categories'")
    full = {**annotation, "image_id": image, "category_id": category}
    full["iscrowd"] = int(bool(annotation.get("iscrowd")))
    if kind == "segm":
        outline = usable_outline(annotation.get("segmentation"), known.sizes[image])
        if outline is None:
            return None
        full["segmentation"] = outline
    box = full.pop("bbox", None)
    if box is not None or kind != "segm":
        full["bbox"] = _finite(box, 4, f"{where}: bbox")
    full["area"] = _area(full, kind, where)
    if kind == "keypoints":
        full |= _keypoints(full, known.points, where)
    return full


def _finite(value: object, count: int, where: str) -> list[float]:
    read = numbers(value, count, where)
    if not all(map(math.isfinite, read)):
        raise ValueError(f"{where} {read} is not finite; correct or remove the annotation")
    return read


def _area(annotation: Row, kind: str, where: str) -> float:
    if annotation.get("area") is not None:
        return finite_number(annotation["area"], f"{where}: area")
    outline = annotation.get("segmentation")
    if kind == "segm" and isinstance(outline, dict) and isinstance(outline["counts"], str | bytes):
        return float(rle.area(outline))
    if "bbox" not in annotation:
        raise ValueError(f"{where} has neither area nor bbox; add one of them")
    _x, _y, w, h = annotation["bbox"]
    return float(w * h)


def _keypoints(annotation: Row, points: int, where: str) -> dict[str, Any]:
    flat = annotation.get("keypoints")
    # readers look at no keypoints of a crowd
    if not flat or (annotation["iscrowd"] and not (isinstance(flat, list) and len(flat) == 3 * points)):
        return {"keypoints": [0.0] * (3 * points), "num_keypoints": 0}
    if not isinstance(flat, list | tuple) or len(flat) != 3 * points:
        size = len(flat) if isinstance(flat, list | tuple) else repr(flat)
        raise ValueError(f"{where}: keypoints must hold {3 * points} numbers ({points} points), got {size}")
    read = _finite(flat, 3 * points, f"{where}: keypoints")
    stated = annotation.get("num_keypoints")
    if stated is None:
        return {"keypoints": read, "num_keypoints": sum(v > 0 for v in read[2::3])}
    return {"keypoints": read, "num_keypoints": finite_number(stated, f"{where}: num_keypoints")}


def _numbered(annotations: list[dict[str, Any]]) -> list[dict[str, Any]]:
    # the engine looks annotations up by id, two with one id would both become the last, and notes ids as floats
    ids = [annotation.get("id") for annotation in annotations]
    if all(type(one) is int and abs(one) < _LARGEST_ID for one in ids) and len(set(ids)) == len(ids):
        return annotations
    return [annotation | {"id": number} for number, annotation in enumerate(annotations, 1)]
