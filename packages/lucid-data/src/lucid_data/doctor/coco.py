"""Findings about a COCO file: its lists, images and categories."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from lucid_data.doctor.coco_annotations import check_annotations
from lucid_data.doctor.findings import Findings
from lucid_data.doctor.pictures import Picture, Progress, examine_pictures
from lucid_data.images import IMAGE_SUFFIXES
from lucid_data.tasks import TaskNeeds

Json = Mapping[str, Any]


def check_coco(
    file: Path,
    folders: Sequence[Path],
    needs: TaskNeeds,
    *,
    decode: bool,
    progress: Progress,
    found: Findings,
) -> set[Path]:
    """Add findings about one COCO file whose pictures lie in one of ``folders``; return the pictures it lists."""
    document = _load(file, found)
    if document is None:
        return set()
    images = [image for image in document.get("images", []) if isinstance(image, dict)]
    folder = _folder(folders, images)
    _check_images(images, file, found)
    named = [image for image in images if isinstance(image.get("file_name"), str)]
    paths = {str(image.get("id")): folder / image["file_name"] for image in named}
    pictures = examine_pictures(
        list(dict.fromkeys(paths.values())), decode=decode, progress=progress, found=found
    )
    _check_sizes(named, paths, pictures, file, found)
    _check_categories(document, file, found)
    sizes: dict[str, tuple[int, int] | None] = {str(image.get("id")): None for image in images}
    sizes |= {key: pictures[path].stored for key, path in paths.items()}
    check_annotations(document, sizes, file, needs, found)
    return set(paths.values())


def check_unlisted(folders: Sequence[Path], listed: set[Path], found: Findings) -> None:
    """Add a note for pictures in the folders of the listed ones that no COCO file names."""
    for folder in dict.fromkeys(path.parent for path in sorted(listed)):
        if folder.is_dir():
            for path in sorted(folder.iterdir()):
                if path.suffix.lower() in IMAGE_SUFFIXES and path not in listed:
                    message = "no annotation file lists this picture"
                    found.add("coco-unlisted-image", "note", path, "", message, "list it, or ignore this")


def _load(file: Path, found: Findings) -> dict[str, Any] | None:
    data = file.read_bytes()
    if data.startswith(b"\xef\xbb\xbf"):
        message = "the file begins with a byte-order mark"
        found.add(
            "coco-bom", "note", file, "", message, "save it as UTF-8 without one; other tools may refuse it"
        )
    try:
        document = json.loads(data.decode("utf-8-sig"))
    except (UnicodeDecodeError, json.JSONDecodeError, RecursionError) as error:
        found.add("coco-not-json", "error", file, "", f"not JSON: {error}", "export the file again")
        return None
    if not isinstance(document, dict):
        found.add("coco-not-json", "error", file, "", "not a COCO document", "export the file again")
        return None
    for key in ("images", "annotations", "categories"):
        if not isinstance(document.get(key), list):
            near = next((k for k in document if k.rstrip("s") == key.rstrip("s").replace("ie", "y")), None)
            near = near or next((k for k in document if k != key and k.rstrip("s") == key.rstrip("s")), None)
            remedy = f"rename {near!r} to {key!r}" if near else f"add the list {key!r}"
            found.add("coco-missing-list", "error", file, "", f"there is no list {key!r}", remedy)
            if near and isinstance(document[near], list):
                document[key] = document[near]
    return document


def _folder(folders: Sequence[Path], images: Sequence[Json]) -> Path:
    names = [image["file_name"] for image in images if isinstance(image.get("file_name"), str)]
    return max(folders, key=lambda f: sum((f / name).is_file() for name in names[:50]), default=Path("."))


def _check_images(images: Sequence[Json], file: Path, found: Findings) -> None:
    ids = Counter(str(image.get("id")) for image in images)
    names = Counter(image.get("file_name") for image in images)
    texts = [image for image in images if isinstance(image.get("id"), str)]
    if texts:
        message = f"image ids that are text: {len(texts)}, such as {texts[0]['id']!r}"
        found.add("coco-id-type", "warning", file, "images", message, "write ids as whole numbers")
    for image in images:
        where = f"image {image.get('id', '(without id)')}"
        if "id" not in image or not isinstance(image.get("file_name"), str):
            message = "an image needs an id and a file_name"
            found.add("coco-image-incomplete", "error", file, where, message, "complete it")
    for key, count in ids.items():
        if count > 1:
            found.add(
                "coco-image-id-repeated",
                "error",
                file,
                f"image {key}",
                f"{count} images share this id",
                "renumber",
            )
    for name, count in names.items():
        if name is not None and count > 1:
            message = f"{count} images share this file"
            found.add("coco-file-repeated", "warning", file, str(name), message, "merge their annotations")


def _check_sizes(
    images: Sequence[Json],
    paths: Mapping[str, Path],
    pictures: Mapping[Path, Picture],
    file: Path,
    found: Findings,
) -> None:
    unsized = 0
    for image in images:
        picture = pictures[paths[str(image.get("id"))]]
        stated = (image.get("height"), image.get("width"))
        if not all(isinstance(v, int | float) and v > 0 for v in stated):
            unsized += 1
        elif picture.stored is not None and stated != picture.stored:
            height, width = picture.stored
            swapped = stated == (width, height)
            message = f"stated {stated[1]} x {stated[0]}, the picture is {width} x {height}"
            if picture.size == stated:
                message += " unless its orientation tag is followed (exif=True)"
            else:
                message += " (width and height are swapped)" if swapped else ""
            where = f"image {image.get('id')} ({image.get('file_name')})"
            found.add("coco-size-differs", "warning", file, where, message, "correct it; the picture counts")
    if unsized:
        message = f"images without usable width and height: {unsized}"
        found.add(
            "coco-size-missing", "warning", file, "images", message, "add them; headers are read meanwhile"
        )


def _check_categories(document: Json, file: Path, found: Findings) -> None:
    categories = [c for c in document.get("categories", []) if isinstance(c, dict)]
    used = Counter(str(a.get("category_id")) for a in document.get("annotations", []) if isinstance(a, dict))
    if not categories and isinstance(document.get("categories"), list):
        found.add(
            "coco-no-categories", "error", file, "categories", "the list is empty", "add the categories"
        )
    ids = [c.get("id") for c in categories]
    for category in categories:
        where = f"category {category.get('id', '(without id)')}"
        if "id" not in category or "name" not in category:
            found.add(
                "coco-category-incomplete", "error", file, where, "needs an id and a name", "complete it"
            )
        elif not used[str(category["id"])]:
            message = f"{category['name']!r} has no annotation"
            message += "; an id of 0 is often an exporter's placeholder" if category["id"] == 0 else ""
            remedy = "remove it if no picture will ever show it; it stays a class until then"
            found.add("coco-category-unused", "note", file, where, message, remedy)
        _check_skeleton(category, file, where, found)
    for key, count in Counter(map(str, ids)).items():
        if count > 1:
            found.add(
                "coco-category-id-repeated",
                "error",
                file,
                f"category {key}",
                f"{count} share this id",
                "renumber",
            )
    for name, count in Counter(str(c.get("name")) for c in categories).items():
        if count > 1:
            message = f"{count} categories are called {name!r}"
            found.add(
                "coco-category-name-repeated", "warning", file, "categories", message, "merge or rename them"
            )
    whole = [i for i in ids if isinstance(i, int)]
    if whole != sorted(whole) or (whole and max(whole) - min(whole) + 1 != len(whole)):
        message = f"category ids are sparse or unsorted: {', '.join(map(str, whole[:12]))}"
        found.add(
            "coco-category-ids",
            "note",
            file,
            "categories",
            message,
            "nothing to do: labels go by rank of the id",
        )


def _check_skeleton(category: Json, file: Path, where: str, found: Findings) -> None:
    points = category.get("keypoints") or []
    for edge in category.get("skeleton") or []:
        if not all(isinstance(end, int) and 1 <= end <= len(points) for end in edge):
            message = (
                f"skeleton edge {edge} names a point that does not exist (there are {len(points)}, from 1)"
            )
            found.add("coco-skeleton", "warning", file, where, message, "correct the edge")
