"""COCO JSON: boxes, outlines, keypoints and oriented quads (cocodataset.org/#format-data)."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from math import isfinite
from pathlib import Path
from typing import Any

from msgspec import UNSET

from lucid_data.formats.coco_json import Annotation, CocoFile, OutlinedAnnotation
from lucid_data.formats.coco_values import finite_number, id_key, numbers, outline_rings
from lucid_data.formats.flip_pairs import keypoint_flip_pairs
from lucid_data.formats.parsed import BadImage, Classes, Parsed, ReadOptions, read_sizes
from lucid_data.records_builder import RecordsBuilder
from lucid_data.source import Source
from lucid_data.tasks import TaskNeeds

Json = Mapping[str, Any]
_LARGEST = 2**63 - 1
_LARGEST_SIDE = 2**31 - 1
_LARGEST_COORDINATE = 3e38  # of float32


def read_coco(source: Source, needs: TaskNeeds, options: ReadOptions) -> Parsed:
    """Return the split described by a COCO file: images by ascending id, annotations in file order.

    Category ids, sparse or shuffled, become labels by rank. Crowd annotations become ignore regions; an
    annotation of an image that is not listed, or with a box that is not finite, is left out and counted.
    Raises ValueError naming the file and the annotation for an unknown category, a missing or malformed box,
    and, where the task needs them, wrong keypoint lengths or quads.
    """
    file = CocoFile(source.labels)
    ids, names = _categories(file.categories, source.labels, options.like)
    label_of = {id_key(category): label for label, category in enumerate(ids)}
    points = _keypoint_names(file) if needs.keypoints else ()
    per_instance = _keypoint_count(file, points) if needs.keypoints else 0
    builder = RecordsBuilder(
        outlines=needs.outlines, keypoints=per_instance, rboxes=needs.rboxes, fit=options.rbox_fit
    )

    _require_images(file.images, source.labels)
    images = sorted(file.images, key=lambda image: _sort_key(image.get("id")))
    folder = _image_folder(source, images)
    sizes = _sizes(images, folder, options.exif, options.bad_image, source.labels)
    numbered: dict[str, int | None] = {}
    for image, size in zip(images, sizes, strict=True):
        own = image["id"] if isinstance(image["id"], int) else id_key(image["id"])
        if size is None:
            builder.dropped["unreadable image"] += 1
        number = None if size is None else builder.image(image["file_name"], own, size)
        numbered[id_key(image["id"])] = number
    add = _Adder(builder, label_of, needs, per_instance, options.keypoint_offset, source.labels)
    for annotation in file.annotations(outlines=needs.outlines or needs.rboxes):
        try:
            number = numbered[id_key(annotation.image_id)]
        except KeyError:
            builder.dropped["annotation of an unknown image"] += 1
            continue
        if number is None:
            continue
        if options.min_visible and _visible(annotation) < options.min_visible:
            builder.dropped["object hardly visible on its tile"] += 1
            continue
        add(number, annotation)
    add.require_what_is_learnt()
    pairs = keypoint_flip_pairs(points, str(source.labels)) if points else ()
    return Parsed(builder.build(), folder, names, ids, points, pairs)


@dataclass(frozen=True)
class _Adder:
    """Puts annotations into a builder, each with the number of its image."""

    builder: RecordsBuilder
    label_of: Mapping[str, int]
    needs: TaskNeeds
    points: int
    offset: float
    file: Path

    def __call__(self, image: int, annotation: Annotation) -> None:
        label = self.label_of.get(id_key(annotation.category_id))
        if label is None:
            where = self._where(annotation)
            raise ValueError(f"{where}: category {annotation.category_id!r} is not in 'categories'")
        box = self._box(annotation)
        if box is None:
            self.builder.dropped["box with a number that is not finite"] += 1
            return
        if annotation.iscrowd:
            self.builder.crowd(box, image=image)
            return
        area = annotation.area
        if area is not None and (type(area) is not float or not isfinite(area)):
            area = finite_number(area, self._where(annotation) + ": area")
        rings: Sequence[Sequence[float]] = ()
        quad: Sequence[float] = ()
        keypoints: Sequence[float] = ()
        if self.needs.outlines:
            segmentation = _outline(annotation)
            rings = outline_rings(segmentation, self.builder.size(image))
            if not rings and segmentation is not None and self.needs.masks:
                self.builder.dropped["instance with an unusable outline"] += 1
                return
            if not rings:
                self.builder.dropped["instance without an outline (box kept)"] += 1
        if self.needs.rboxes:
            if not isinstance(annotation, OutlinedAnnotation) or annotation.segmentation is UNSET:
                self.builder.dropped["annotation without a quadrilateral"] += 1
                return
            quad = _quad(
                annotation.segmentation, f"{self._where(annotation)} of image {annotation.image_id!r}"
            )
            box = (min(quad[::2]), min(quad[1::2]), max(quad[::2]), max(quad[1::2]))
        if self.needs.keypoints and annotation.keypoints:
            keypoints = self._keypoints(annotation)
        self.builder.instance(
            box,
            label,
            image=image,
            area=area,
            difficult=bool(annotation.difficult),
            rings=rings,
            keypoints=keypoints,
            quad=quad,
        )

    def require_what_is_learnt(self) -> None:
        """Raise ValueError when there are objects and none has what the task learns: all would be background."""
        dropped, kept = self.builder.dropped, self.builder.instances
        if (
            self.needs.masks
            and not self.builder.outlined
            and (kept or dropped["instance with an unusable outline"])
        ):
            raise ValueError(
                f"{self.file}: no annotation has a usable outline, which the segment task learns from"
            )
        if self.needs.rboxes and not kept and dropped["annotation without a quadrilateral"]:
            raise ValueError(
                f"{self.file}: no annotation has a quadrilateral, which the obb task learns from"
            )

    def _where(self, annotation: Annotation) -> str:
        return f"{self.file}, annotation {'(without id)' if annotation.id is None else annotation.id}"

    def _box(self, annotation: Annotation) -> tuple[float, float, float, float] | None:
        """Return x1, y1, x2, y2, or None where a number is not finite."""
        stated = annotation.bbox
        # a file has millions of these: the message is only put together for a box that needs it
        try:
            x, y, w, h = stated
            right, bottom = x + w, y + h
            if abs(x) + abs(y) + abs(right) + abs(bottom) < _LARGEST_COORDINATE:
                return x, y, right, bottom
        except (TypeError, ValueError, OverflowError):
            pass
        x, y, w, h = numbers(stated, 4, self._where(annotation) + ": bbox")
        small = abs(x) + abs(y) + abs(x + w) + abs(y + h) < _LARGEST_COORDINATE
        return (x, y, x + w, y + h) if small else None

    def _keypoints(self, annotation: Annotation) -> list[float]:
        flat, count = annotation.keypoints, self.points
        where = self._where(annotation)
        if not isinstance(flat, list) or len(flat) != 3 * count:
            size = len(flat) if isinstance(flat, list) else flat
            raise ValueError(
                f"{where} of image {annotation.image_id!r}: keypoints must hold {3 * count} numbers "
                f"({count} points), got {size}"
            )
        values = numbers(flat, 3 * count, where)
        if not all(map(isfinite, values)):
            raise ValueError(
                f"{where} of image {annotation.image_id!r}: keypoints must be finite, got {flat!r}"
            )
        for at in range(0, len(values), 3):
            if values[at + 2] > 0:
                values[at] += self.offset
                values[at + 1] += self.offset
        return values


def _outline(annotation: Annotation) -> object:
    stated = annotation.segmentation if isinstance(annotation, OutlinedAnnotation) else UNSET
    return None if stated is UNSET else stated


def _visible(annotation: Annotation) -> float:
    stated = annotation.visible_fraction
    return 1.0 if stated is None else finite_number(stated, f"annotation {annotation.id}: visible_fraction")


def _quad(segmentation: object, where: str) -> list[float]:
    ring = segmentation[0] if isinstance(segmentation, list) and len(segmentation) == 1 else None
    if not isinstance(ring, list) or len(ring) != 8:
        raise ValueError(f"{where}: an oriented box needs one ring of four points, got {segmentation!r}")
    return numbers(ring, 8, where)


def _categories(
    categories: Iterable[Json], file: Path, like: Classes | None
) -> tuple[tuple[int, ...], tuple[str, ...]]:
    try:
        named = {int(c["id"]): str(c["name"]) for c in categories}
    except (KeyError, TypeError, ValueError, OverflowError) as error:
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


def _keypoint_names(file: CocoFile) -> tuple[str, ...]:
    stated = [c["keypoints"] for c in file.categories if c.get("keypoints")]
    for names in stated:
        if not isinstance(names, list) or not all(isinstance(name, str) for name in names):
            raise ValueError(f"{file.path}: a category's 'keypoints' must list names, got {names!r}")
    lists = {tuple(names) for names in stated}
    if len(lists) > 1:
        raise ValueError(
            f"{file.path}: its categories have different 'keypoints' lists; one list per data set"
        )
    return lists.pop() if lists else ()


def _keypoint_count(file: CocoFile, names: Sequence[str]) -> int:
    if names:
        return len(names)
    for annotation in file.annotations(outlines=False):
        flat = annotation.keypoints
        if isinstance(flat, list) and flat:
            if len(flat) % 3:
                raise ValueError(
                    f"{file.path}, annotation {annotation.id} of image {annotation.image_id!r}: "
                    f"keypoints must come in threes, got {len(flat)} numbers"
                )
            return len(flat) // 3
    raise ValueError(f"{file.path} has no keypoints; the pose task needs a person_keypoints file")


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
        if key in seen:
            raise ValueError(
                f"{file}: image ids {seen[key]!r} and {image['id']!r} cannot be told apart; renumber the images"
            )
        if isinstance(image["id"], int) and not -_LARGEST <= image["id"] <= _LARGEST:
            raise ValueError(f"{file}: image id {image['id']} has no place in 64 bits; renumber the images")
        seen[key] = image["id"]


def _side(image: Json, name: str, file: Path) -> int:
    value = image.get(name)
    if value is None:
        return 0
    side = finite_number(value, f"{file}, image {image['id']}: {name}")
    if side > _LARGEST_SIDE:
        raise ValueError(
            f"{file}, image {image['id']}: {name} must be at most {_LARGEST_SIDE}, got {value!r}"
        )
    return int(side)


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
