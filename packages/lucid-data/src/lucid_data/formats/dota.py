"""DOTA text labels: one file per picture, four corners, a class and a difficulty per line, in pixels.

Xia et al., CVPR 2018. Lines before the objects may state ``imagesource:``, ``gsd:`` or acquisition dates.
"""

from __future__ import annotations

import math
import re
from dataclasses import dataclass
from pathlib import Path

from lucid_data.formats.dota_classes import DOTA_CLASSES, class_list, label_of, spelled
from lucid_data.formats.parsed import Parsed, ReadOptions, RowError, read_sizes
from lucid_data.images import IMAGE_SUFFIXES
from lucid_data.layout import dota_label_folders
from lucid_data.records_builder import RecordsBuilder
from lucid_data.source import Source
from lucid_data.tasks import TaskNeeds

_HEADER = re.compile(r"^\s*['\"]?[A-Za-z][^:]*:")
FORM = "a DOTA line is: x1 y1 x2 y2 x3 y3 x4 y4 class difficulty"


@dataclass(frozen=True)
class DotaObject:
    """One line: corners as x y in order, the class as spelled, the difficulty as written (0 when absent)."""

    quad: tuple[float, ...]
    name: str
    difficulty: int = 0
    stated: bool = True

    @property
    def area(self) -> float:
        """The signed shoelace area, px^2; positive runs clockwise on screen."""
        x, y = self.quad[::2], self.quad[1::2]
        return 0.5 * sum(x[i] * y[(i + 1) % 4] - x[(i + 1) % 4] * y[i] for i in range(4))

    @property
    def box(self) -> tuple[float, float, float, float]:
        """The envelope of the corners, x1 y1 x2 y2."""
        x, y = self.quad[::2], self.quad[1::2]
        return min(x), min(y), max(x), max(y)


def is_header(line: str) -> bool:
    """Tell whether a line states something about the picture instead of an object.

    >>> is_header("imagesource:GoogleEarth"), is_header("1 1 2 1 2 2 1 2 ship 0")
    (True, False)
    """
    return _HEADER.match(line) is not None


def parse_line(line: str, where: str) -> DotaObject:
    """Return the object of one line; RowError (a ValueError) starting with ``where`` says what is wrong.

    Nine columns mean difficulty 0. A class name may hold spaces.

    >>> parse_line("1 1 3 1 3 2 1 2 storage-tank 1", "a.txt:1").name
    'storage-tank'
    """
    if "," in line:
        raise RowError(where, "commas", "columns are separated by commas", f"write spaces; {FORM}")
    fields = line.split()
    if len(fields) < 9:
        raise RowError(where, "columns", f"{len(fields)} columns", FORM)
    first = next((at for at, field in enumerate(fields) if not _is_number(field)), len(fields))
    if first != 8:
        reason = f"{first} numbers before {' '.join(fields[first:]) or 'the end'!r} instead of 8"
        raise RowError(where, "columns", reason, FORM)
    quad = tuple(float(field) for field in fields[:8])
    if not all(map(math.isfinite, quad)):
        raise RowError(where, "not-finite", f"a corner is not finite: {line.strip()!r}", "correct the line")
    stated = len(fields) > 9
    words = fields[8:-1] if stated else fields[8:]
    if stated and not re.fullmatch(r"[+-]?\d+", fields[-1]):
        raise RowError(where, "difficulty", f"difficulty {fields[-1]!r} is not a whole number", FORM)
    return DotaObject(quad, " ".join(words), int(fields[-1]) if stated else 0, stated)


def read_dota_file(path: Path) -> list[DotaObject]:
    """Return the objects of one label file; RowError with file and 1-based line, ValueError for what is no text."""
    try:
        text = path.read_text(encoding="utf-8-sig")
    except UnicodeDecodeError as error:
        raise ValueError(f"{path}: not UTF-8 text ({error})") from error
    lines = ((f"{path}:{n}", line) for n, line in enumerate(text.splitlines(), 1) if line.strip())
    return [parse_line(line, where) for where, line in lines if not is_header(line)]


def read_dota(source: Source, needs: TaskNeeds, options: ReadOptions) -> Parsed:
    """Return the split of a DOTA tree, pictures in sorted order.

    Boxes bound the annotated corners; rotated boxes are fitted to them. Objects without area, repeated lines and label
    files without a picture are left out and counted. A picture without a label file is background and counted, an error
    with ``strict_labels``. Raises ValueError with the file for an unknown class.
    """
    if needs.keypoints or needs.outlines:
        raise ValueError(f"{source.labels} holds DOTA quadrilaterals only; use the obb or the detect task")
    folder = source.images[0]
    pictures = list_pictures(folder)
    files = {p.stem: p for p in sorted(source.labels.glob("*.txt"))}
    objects = {p.stem: read_dota_file(files[p.stem]) for p in pictures if p.stem in files}
    if options.like is not None:
        names = options.like.names
    elif options.dota_version is not None:
        names = class_list((), options.dota_version)
    else:
        names = class_list(names_in_tree(source))
    sizes = read_sizes(pictures, exif=options.exif, bad_image=options.bad_image)
    builder = RecordsBuilder(rboxes=needs.rboxes, fit=options.rbox_fit)
    if orphans := files.keys() - {picture.stem for picture in pictures}:
        builder.dropped["label file without a picture"] = len(orphans)
    number = 0
    for picture, size in zip(pictures, sizes, strict=True):
        if size is None:
            builder.dropped["unreadable image"] += 1
            continue
        number += 1
        builder.image(picture.relative_to(folder).as_posix(), number, size)
        if picture.stem not in objects:
            if options.strict_labels:
                raise FileNotFoundError(f"{picture} has no label file {source.labels / picture.stem}.txt")
            builder.dropped["picture without a label file (background)"] += 1
            continue
        seen: set[DotaObject] = set()
        for item in objects[picture.stem]:
            label = label_of(item.name, names)
            if label is None:
                raise ValueError(f"{files[picture.stem]}: {unknown_class(item.name, names)}")
            if item in seen:
                builder.dropped["repeated line"] += 1
            elif item.area == 0:
                builder.dropped["object without area"] += 1
            else:
                builder.instance(
                    item.box, label, difficult=item.difficulty != 0, area=abs(item.area), quad=item.quad
                )
            seen.add(item)
    return Parsed(builder.build(), folder, names, tuple(range(1, len(names) + 1)))


def unknown_class(name: str, names: tuple[str, ...]) -> str:
    """Return what to say about a class that is not in ``names``."""
    for version, classes in DOTA_CLASSES.items():
        if spelled(name) in classes:
            return f"class {name!r} belongs to DOTA-v{version}; say dota_version={version!r}"
    return f"unknown class {name!r}; the list is {', '.join(names)}"


def names_in_tree(source: Source) -> set[str]:
    """Return the class names of all splits as spelled, so that every split gets the same labels."""
    folders = dict.fromkeys((source.labels, *dota_label_folders(source.root)))
    found: set[str] = set()
    for folder in folders:
        for path in sorted(folder.glob("*.txt")):
            found |= {item.name for item in read_dota_file(path)}
    return found


def list_pictures(folder: Path) -> list[Path]:
    """Return the pictures of a folder, sorted by name."""
    return sorted(p for p in folder.iterdir() if p.suffix.lower() in IMAGE_SUFFIXES and p.is_file())


def _is_number(field: str) -> bool:
    try:
        float(field)
    except ValueError:
        return False
    return True
