"""COCO JSON: boxes, outlines, keypoints and oriented quads (cocodataset.org/#format-data)."""

from __future__ import annotations

import json
import math
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any

from lucid_data.formats.flip_pairs import keypoint_flip_pairs
from lucid_data.formats.parsed import BadImage, Classes, Parsed, ReadOptions, read_sizes
from lucid_data.formats.rle import rle_rings
from lucid_data.layout import Source
from lucid_data.records import RecordsBuilder
from lucid_data.tasks import TaskNeeds

Json = Mapping[str, Any]


def load_document(path: str | Path) -> dict[str, Any]:
    """Return the COCO document at ``path``; a byte-order mark is allowed.

    Raises FileNotFoundError, and ValueError for text that is not JSON or has no ``images``, ``annotations``
    and ``categories`` lists of objects.
    """
    file = Path(path)
    if not file.is_file():
        raise FileNotFoundError(f"COCO file {file} does not exist")
    try:
        document = json.loads(file.read_bytes().decode("utf-8-sig"))
    except (UnicodeDecodeError, json.JSONDecodeError) as error:
        raise ValueError(f"{file} is not JSON: {error}") from error
    if not isinstance(document, dict):
        raise ValueError(f"{file} holds a {type(document).__name__}, not a COCO document")
    for key in ("images", "annotations", "categories"):
        if not isinstance(document.get(key), list):
            has = ", ".join(sorted(document)) or "nothing"
            raise ValueError(f"{file} has no list {key!r} (it has {has}); add it or rename the key")
        for position, entry in enumerate(document[key]):
            if not isinstance(entry, dict):
                raise ValueError(f"{file}, {key}[{position}]: must be an object, got {entry!r}")
    return document


def id_key(value: object) -> str:
    """Return the text by which ids are compared: 7, 7.0 and "7" are one id.

    >>> {id_key(7), id_key(7.0), id_key("7")}
    {'7'}
    """
    return str(int(value)) if isinstance(value, float) and value.is_integer() else str(value)


def read_coco(source: Source, needs: TaskNeeds, options: ReadOptions) -> Parsed:
    """Return the split described by a COCO file: images by ascending id, annotations in file order.

    Category ids, sparse or shuffled, become labels by rank. Crowd annotations become ignore regions; an
    annotation of an image that is not listed, or with a box that is not finite, is left out and counted.
    Raises ValueError naming the file and the annotation for an unknown category, a missing or malformed box,
    and, where the task needs them, wrong keypoint lengths or quads.
    """
    document = load_document(source.labels)
    ids, names = _categories(document["categories"], source.labels, options.like)
    label_of = {id_key(category): label for label, category in enumerate(ids)}
    points = _keypoint_names(document, source.labels) if needs.keypoints else ()
    per_instance = _keypoint_count(document, points, source.labels) if needs.keypoints else 0
    builder = RecordsBuilder(outlines=needs.outlines, keypoints=per_instance, rboxes=needs.rboxes)

    _require_images(document["images"], source.labels)
    images = sorted(document["images"], key=lambda image: _sort_key(image.get("id")))
    folder = _image_folder(source, images)
    sizes = _sizes(images, folder, options.exif, options.bad_image, source.labels)
    by_image: dict[str, list[Json]] = {id_key(image["id"]): [] for image in images}
    for annotation in document["annotations"]:
        owner = by_image.get(id_key(annotation.get("image_id")))
        if owner is None:
            builder.dropped["annotation of an unknown image"] += 1
        else:
            owner.append(annotation)
    for image, size in zip(images, sizes, strict=True):
        if size is None:
            builder.dropped["unreadable image"] += 1
            continue
        own = image["id"] if isinstance(image["id"], int) else id_key(image["id"])
        builder.image(image["file_name"], own, size)
        for annotation in by_image[id_key(image["id"])]:
            if options.min_visible and float(annotation.get("visible_fraction", 1.0)) < options.min_visible:
                builder.dropped["object hardly visible on its tile"] += 1
                continue
            _add(
                builder,
                annotation,
                label_of,
                needs,
                per_instance,
                options.keypoint_offset,
                source.labels,
                size,
            )
    pairs = keypoint_flip_pairs(points, str(source.labels)) if points else ()
    return Parsed(builder.build(), folder, names, ids, points, pairs)


def _add(
    builder: RecordsBuilder,
    annotation: Json,
    label_of: Mapping[str, int],
    needs: TaskNeeds,
    points: int,
    offset: float,
    file: Path,
    size: tuple[int, int],
) -> None:
    where = f"{file}, annotation {annotation.get('id', '(without id)')}"
    label = label_of.get(id_key(annotation.get("category_id")))
    if label is None:
        raise ValueError(f"{where}: category {annotation.get('category_id')!r} is not in 'categories'")
    x, y, w, h = numbers(annotation.get("bbox"), 4, f"{where}: bbox")
    if not has_finite_box(annotation):
        builder.dropped["box with a number that is not finite"] += 1
        return
    box: Sequence[float] = (x, y, x + w, y + h)
    if annotation.get("iscrowd"):
        builder.crowd(box)
        return
    stated = annotation.get("area")
    area = None if stated is None else finite_number(stated, f"{where}: area")
    rings: Sequence[Sequence[float]] = ()
    quad: Sequence[float] = ()
    keypoints: Sequence[float] = ()
    if needs.outlines:
        segmentation = annotation.get("segmentation")
        rings = outline_rings(segmentation, size)
        if not rings and segmentation is not None and needs.masks:
            builder.dropped["instance with an unusable outline"] += 1
            return
        if not rings:
            builder.dropped["instance without an outline (box kept)"] += 1
    if needs.rboxes:
        if "segmentation" not in annotation:
            builder.dropped["annotation without a quadrilateral"] += 1
            return
        quad = _quad(annotation["segmentation"], f"{where} of image {annotation.get('image_id')!r}")
        box = (min(quad[::2]), min(quad[1::2]), max(quad[::2]), max(quad[1::2]))
    if needs.keypoints and annotation.get("keypoints"):
        keypoints = _keypoints(annotation, points, offset, where)
    builder.instance(
        box,
        label,
        area=area,
        difficult=bool(annotation.get("difficult", 0)),
        rings=rings,
        keypoints=keypoints,
        quad=quad,
    )


def numbers(value: object, count: int, where: str) -> list[float]:
    """Return ``value`` as ``count`` floats (numbers written as text are read); ValueError names ``where``."""
    if not isinstance(value, list | tuple) or len(value) != count:
        raise ValueError(f"{where} must hold {count} numbers, got {value!r}")
    try:
        return [float(item) for item in value]
    except (TypeError, ValueError):
        raise ValueError(f"{where} must hold {count} numbers, got {value!r}") from None


def has_finite_box(annotation: Json) -> bool:
    """Tell whether the ``bbox`` of an annotation is four finite numbers."""
    return all(map(math.isfinite, numbers(annotation.get("bbox"), 4, "bbox")))


def finite_number(value: object, where: str) -> float:
    """Return ``value`` as a finite float (a number written as text is read); ValueError names ``where``."""
    (number,) = numbers([value], 1, where)
    if not math.isfinite(number):
        raise ValueError(f"{where} must be finite, got {value!r}")
    return number


def usable_rings(segmentation: object) -> list[list[float]]:
    """Return the polygon rings of a ``segmentation`` that have at least three whole, finite points.

    >>> usable_rings([[], [0, 0, 4, 0, 4, 4], [1, 1, 2]])
    [[0.0, 0.0, 4.0, 0.0, 4.0, 4.0]]
    """
    if not isinstance(segmentation, list):
        return []
    rings = []
    for ring in segmentation:
        if isinstance(ring, list) and len(ring) >= 6 and len(ring) % 2 == 0:
            try:
                values = [float(v) for v in ring]
            except (TypeError, ValueError):
                continue
            if all(map(math.isfinite, values)):
                rings.append(values)
    return rings


def outline_rings(segmentation: object, size: tuple[int, int]) -> list[list[float]]:
    """Return the rings of a polygon list or of a run-length mask, traced; [] when there is no usable one.

    >>> outline_rings({"size": [1, 2], "counts": [0, 2]}, (1, 2))
    [[0.0, 0.0, 2.0, 0.0, 2.0, 1.0, 0.0, 1.0]]
    """
    if not isinstance(segmentation, dict):
        return usable_rings(segmentation)
    try:
        return [ring.reshape(-1).tolist() for ring in rle_rings(segmentation, size)]
    except ValueError:
        return []


def _quad(segmentation: object, where: str) -> list[float]:
    ring = segmentation[0] if isinstance(segmentation, list) and len(segmentation) == 1 else None
    if not isinstance(ring, list) or len(ring) != 8:
        raise ValueError(f"{where}: an oriented box needs one ring of four points, got {segmentation!r}")
    return numbers(ring, 8, where)


def _keypoints(annotation: Json, count: int, offset: float, where: str) -> list[float]:
    flat = annotation["keypoints"]
    if not isinstance(flat, list) or len(flat) != 3 * count:
        size = len(flat) if isinstance(flat, list) else flat
        raise ValueError(
            f"{where} of image {annotation.get('image_id')!r}: keypoints must hold {3 * count} numbers "
            f"({count} points), got {size}"
        )
    values = numbers(flat, 3 * count, where)
    for at in range(0, len(values), 3):
        if values[at + 2] > 0:
            values[at] += offset
            values[at + 1] += offset
    return values


def _categories(
    categories: Iterable[Json], file: Path, like: Classes | None
) -> tuple[tuple[int, ...], tuple[str, ...]]:
    try:
        named = {int(c["id"]): str(c["name"]) for c in categories}
    except (KeyError, TypeError, ValueError) as error:
        raise ValueError(f"{file}: every category needs an integer 'id' and a 'name' ({error})") from error
    if not named:
        raise ValueError(f"{file}: 'categories' is empty")
    if like is not None:
        known = dict(zip(like.ids, like.names, strict=True))
        odd = [f"{i} {n!r}" for i, n in sorted(named.items()) if known.get(i) != n]
        if odd:
            raise ValueError(f"{file} has categories that the other split lacks: {', '.join(odd)}")
        return like.ids, like.names
    ids = tuple(sorted(named))
    return ids, tuple(named[i] for i in ids)


def _keypoint_names(document: Json, file: Path) -> tuple[str, ...]:
    lists = {tuple(c["keypoints"]) for c in document["categories"] if c.get("keypoints")}
    if len(lists) > 1:
        raise ValueError(f"{file}: its categories have different 'keypoints' lists; one list per data set")
    return lists.pop() if lists else ()


def _keypoint_count(document: Json, names: Sequence[str], file: Path) -> int:
    if names:
        return len(names)
    for annotation in document["annotations"]:
        flat = annotation.get("keypoints")
        if flat:
            if len(flat) % 3:
                raise ValueError(
                    f"{file}, annotation {annotation.get('id')} of image {annotation.get('image_id')!r}: "
                    f"keypoints must come in threes, got {len(flat)} numbers"
                )
            return len(flat) // 3
    raise ValueError(f"{file} has no keypoints; the pose task needs a person_keypoints file")


def _sort_key(image_id: object) -> tuple[int, int, str]:
    if isinstance(image_id, int):
        return (0, image_id, "")
    text = str(image_id)
    return (0, int(text), "") if text.isdecimal() else (1, 0, text)


def _image_folder(source: Source, images: Sequence[Json]) -> Path:
    if len(source.images) == 1:
        return source.images[0]
    some = [image["file_name"] for image in images[:20]]
    for folder in source.images:
        if any((folder / name).is_file() for name in some):
            return folder
    tried = ", ".join(str(folder) for folder in source.images) or "no folder"
    first = some[0] if some else "(none listed)"
    raise FileNotFoundError(f"the pictures of {source.labels} (such as {first}) are in none of: {tried}")


def _require_images(images: Sequence[Json], file: Path) -> None:
    seen: dict[str, object] = {}
    for image in images:
        if image.get("id") is None or not isinstance(image.get("file_name"), str) or not image["file_name"]:
            raise ValueError(f"{file}: every image needs an 'id' and a 'file_name', got {dict(image)!r}")
        key = id_key(image["id"])
        if key in seen and type(seen[key]) is not type(image["id"]):
            raise ValueError(f"{file}: image ids {seen[key]!r} and {image['id']!r} cannot be told apart")
        seen[key] = image["id"]


def _side(image: Json, name: str, file: Path) -> int:
    value = image.get(name)
    return int(finite_number(value, f"{file}, image {image['id']}: {name}")) if value is not None else 0


def _sizes(
    images: Sequence[Json], folder: Path, exif: bool, bad_image: BadImage, file: Path
) -> list[tuple[int, int] | None]:
    stated: list[tuple[int, int] | None] = [
        (_side(image, "height", file), _side(image, "width", file)) for image in images
    ]
    unknown = [i for i, size in enumerate(stated) if size is None or min(size) <= 0]
    paths = [folder / images[i]["file_name"] for i in unknown]
    for i, size in zip(unknown, read_sizes(paths, exif=exif, bad_image=bad_image), strict=True):
        stated[i] = size
    return stated
