"""YOLO text labels: a dataset YAML, one text file per picture, one row per object, coordinates in [0, 1]."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path, PurePosixPath
from typing import Any

import yaml

from lucid_data.formats.flip_pairs import keypoint_flip_pairs
from lucid_data.formats.parsed import Parsed, ReadOptions, read_sizes
from lucid_data.formats.yolo_rows import RowKind, read_rows, read_text
from lucid_data.images import IMAGE_SUFFIXES
from lucid_data.records_builder import RecordsBuilder
from lucid_data.source import SPLIT_SPELLINGS, Source, spellings
from lucid_data.tasks import TaskNeeds


@dataclass(frozen=True)
class DatasetFile:
    """A YOLO dataset file, checked.

    Attributes:
        path: the YAML file.
        root: the folder that split entries are relative to.
        names: class names in label order.
        splits: split name to its entries (folders or text files of paths).
        keypoint_shape: (K, 2 or 3), or None.
        flip_index: the mirror permutation of the K points, or ().
        keypoint_names: or ().
    """

    path: Path
    root: Path
    names: tuple[str, ...]
    splits: dict[str, tuple[str, ...]]
    keypoint_shape: tuple[int, int] | None
    flip_index: tuple[int, ...]
    keypoint_names: tuple[str, ...]

    @property
    def split_names(self) -> tuple[str, ...]:
        """The splits it names, in the usual spelling."""
        return tuple(s for s, ways in SPLIT_SPELLINGS.items() if any(way in self.splits for way in ways))

    def entries(self, split: str) -> tuple[str, ...]:
        """Return the entries of ``split`` under any of its spellings, () when it is not named."""
        return next((self.splits[s] for s in spellings(split) if s in self.splits), ())


def read_dataset_file(path: Path) -> DatasetFile:
    """Return the checked dataset file; nothing in it is executed or downloaded.

    Raises ValueError naming the file and the key for text that is not YAML, absent or misnumbered ``names``,
    ``nc`` that disagrees with them, and malformed ``kpt_shape`` or ``flip_idx``.
    """
    try:
        content = yaml.safe_load(path.read_text(encoding="utf-8-sig"))
    except (yaml.YAMLError, UnicodeDecodeError) as error:
        raise ValueError(f"{path} is not YAML: {' '.join(str(error).split())}") from error
    if not isinstance(content, dict):
        raise ValueError(f"{path} must hold keys such as 'names' and 'train'")
    names = _names(content, path)
    if "nc" in content and content["nc"] != len(names):
        raise ValueError(
            f"{path}: nc is {content['nc']!r} but names has {len(names)} entries; make them agree"
        )
    root = path.parent
    if content.get("path"):
        stated = Path(str(content["path"]))
        root = stated if stated.is_absolute() else path.parent / stated
        if not root.is_dir():
            root = path.parent
    splits = {
        key: tuple(str(e) for e in (value if isinstance(value, list) else [value]))
        for key, value in content.items()
        if key in {s for ways in SPLIT_SPELLINGS.values() for s in ways} and value
    }
    shape = _keypoint_shape(content, path)
    flip = _flip_index(content, shape, path)
    points = content.get("kpt_names") or ()
    if isinstance(points, dict):
        points = next(iter(points.values()))
    return DatasetFile(path, root, names, splits, shape, flip, tuple(map(str, points)))


def read_yolo(source: Source, needs: TaskNeeds, options: ReadOptions) -> Parsed:
    """Return the split of a YOLO tree, pictures in sorted order.

    A picture without a label file is background and counted, an error with ``strict_labels``. Rows that repeat
    are removed and counted; so are, in splits of whole folders, label files without a picture. Raises
    FileNotFoundError listing the places tried, ValueError with file and line.
    """
    like = options.like
    data = read_dataset_file(source.labels)
    kind = row_kind(needs, data)
    if like is not None and like.names != data.names:
        raise ValueError(f"{data.path}: names {list(data.names)} differ from {list(like.names)}")
    pictures = list_images(data, source)
    sizes = read_sizes(pictures, exif=options.exif, bad_image=options.bad_image)
    points = data.keypoint_shape[0] if needs.keypoints and data.keypoint_shape else 0
    builder = RecordsBuilder(
        outlines=needs.outlines, keypoints=points, rboxes=needs.rboxes, fit=options.rbox_fit
    )
    number = 0
    for picture, size in zip(pictures, sizes, strict=True):
        if size is None:
            builder.dropped["unreadable image"] += 1
            continue
        number += 1
        name = picture.relative_to(data.root) if picture.is_relative_to(data.root) else picture.absolute()
        builder.image(str(name), number, size)
        labels = label_path(picture)
        if not labels.is_file():
            if options.strict_labels:
                raise FileNotFoundError(f"{picture} has no label file {labels}")
            builder.dropped["picture without a label file (background)"] += 1
            continue
        repeated = read_rows(labels, kind, len(data.names), size, builder)
        if repeated:
            builder.dropped["repeated row"] += repeated
    if lists_folders(data, source) and (orphans := orphan_labels(pictures)):
        builder.dropped["label file without a picture"] = len(orphans)
    records = builder.build()
    pairs = _pairs(data) if needs.keypoints else ()
    names = data.keypoint_names if needs.keypoints else ()
    return Parsed(records, data.root, data.names, tuple(range(len(data.names))), names, pairs)


def label_path(picture: Path) -> Path:
    """Return the label file of a picture: the last folder ``images`` becomes ``labels``; else it lies beside.

    >>> label_path(Path("set/images/train/a.jpg")).as_posix()
    'set/labels/train/a.txt'
    """
    parts = list(picture.parts)
    for at in range(len(parts) - 2, -1, -1):
        if parts[at] == "images":
            parts[at] = "labels"
            break
    return Path(*parts).with_suffix(".txt")


def orphan_labels(pictures: Sequence[Path]) -> list[Path]:
    """Return the files in the label folders of ``pictures``, whole folders of them, that belong to none of them."""
    expected = {label_path(picture) for picture in pictures}
    folders = sorted({path.parent for path in expected if "labels" in path.parent.parts})
    found = (path for folder in folders for path in sorted(folder.glob("*.txt")))
    return [path for path in found if path not in expected and path.name != "classes.txt"]


def lists_folders(data: DatasetFile, source: Source) -> bool:
    """Return whether a split is made of whole folders: one that a file lists may leave labelled pictures out."""
    entries = data.entries(source.split)
    return bool(source.images) if not entries else all(_resolve(entry, data).is_dir() for entry in entries)


def label_places(source: Source, pictures: Sequence[Path]) -> set[Path]:
    """Return the folders of everything but pictures that a split is read from: label files and lists of pictures."""
    data = read_dataset_file(source.labels)
    entries = {_resolve(entry, data) for entry in data.entries(source.split)}
    return {label_path(picture).parent for picture in pictures} | {entry.parent for entry in entries}


def list_images(data: DatasetFile, source: Source) -> list[Path]:
    """Return the pictures of a split, sorted; FileNotFoundError lists every place tried."""
    entries = data.entries(source.split)
    if not entries and source.images:
        return _in_folder(source.images[0])
    found: list[Path] = []
    for entry in entries:
        place = _resolve(entry, data)
        if place.is_dir():
            found += _in_folder(place)
        else:
            lines = read_text(place).split("\n")
            found += [_listed(line.strip(), place, data) for line in lines if line.strip()]
    if not found:
        raise FileNotFoundError(
            f"{data.path}: split {source.split!r} names no picture ({', '.join(entries)})"
        )
    return found


def _resolve(entry: str, data: DatasetFile) -> Path:
    literal = data.root / entry
    parts = PurePosixPath(entry).parts
    stripped = parts[next((i for i, p in enumerate(parts) if p != ".."), len(parts)) :]
    tried = [literal, data.root.joinpath(*stripped)]
    for place in tried:
        if place.exists():
            return place
    places = ", ".join(str(p) for p in dict.fromkeys(tried))
    raise FileNotFoundError(f"{data.path} names {entry!r}, found at none of: {places}")


def _listed(line: str, listing: Path, data: DatasetFile) -> Path:
    tried = [data.root / line, listing.parent / line]
    return next((p for p in tried if p.is_file()), tried[0])


def _in_folder(folder: Path) -> list[Path]:
    return sorted(p for p in folder.rglob("*") if p.suffix.lower() in IMAGE_SUFFIXES and p.is_file())


def _names(content: dict[Any, Any], path: Path) -> tuple[str, ...]:
    names = content.get("names")
    if isinstance(names, dict):
        if sorted(names, key=str) != sorted(range(len(names)), key=str):
            raise ValueError(f"{path}: the keys of names must be 0..{len(names) - 1}, got {list(names)}")
        names = [names[i] for i in range(len(names))]
    if not isinstance(names, list) or not names:
        raise ValueError(f"{path}: 'names' must list the classes, got {names!r}")
    return tuple(map(str, names))


def _keypoint_shape(content: dict[Any, Any], path: Path) -> tuple[int, int] | None:
    shape = content.get("kpt_shape")
    if shape is None:
        return None
    whole = isinstance(shape, list) and all(type(number) is int for number in shape)
    if not whole or len(shape) != 2 or shape[1] not in (2, 3) or shape[0] < 1:
        raise ValueError(f"{path}: kpt_shape must be [points, 2] or [points, 3], got {shape!r}")
    return shape[0], shape[1]


def _flip_index(content: dict[Any, Any], shape: tuple[int, int] | None, path: Path) -> tuple[int, ...]:
    flip = content.get("flip_idx")
    if not flip or shape is None:
        return ()
    whole = isinstance(flip, list) and all(type(number) is int for number in flip)
    if not whole or sorted(flip) != list(range(shape[0])) or any(flip[flip[i]] != i for i in range(shape[0])):
        raise ValueError(f"{path}: flip_idx must swap the {shape[0]} points in pairs, got {flip!r}")
    return tuple(flip)


def row_kind(needs: TaskNeeds, data: DatasetFile) -> RowKind:
    """Return the row that label files must hold for a task; ValueError when pose lacks ``kpt_shape``."""
    if needs.keypoints:
        if data.keypoint_shape is None:
            raise ValueError(f"{data.path}: the pose task needs kpt_shape, such as [17, 3]")
        points, numbers = data.keypoint_shape
        return RowKind("pose", points, numbers)
    return RowKind("segment" if needs.outlines else "obb" if needs.rboxes else "detect")


def _pairs(data: DatasetFile) -> tuple[tuple[int, int], ...]:
    if data.flip_index:
        return tuple((i, j) for i, j in enumerate(data.flip_index) if i < j)
    return keypoint_flip_pairs(data.keypoint_names, str(data.path))
