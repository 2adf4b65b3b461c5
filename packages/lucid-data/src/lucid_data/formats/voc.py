"""Pascal VOC: one XML file per picture (host.robots.ox.ac.uk/pascal/VOC/voc2012/htmldoc).

Corners are read as edges: x1 = xmin, x2 = xmax, without the one-pixel shift of the original development kit, so
that a box converted to COCO keeps its numbers.
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Iterable
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Final

import defusedxml.ElementTree as SafeTree
from defusedxml import DefusedXmlException

from lucid_data.formats.parsed import Parsed, ReadOptions, read_sizes, reuse_names
from lucid_data.images import IMAGE_SUFFIXES
from lucid_data.records_builder import RecordsBuilder
from lucid_data.source import Source
from lucid_data.tasks import TaskNeeds

if TYPE_CHECKING:
    from xml.etree.ElementTree import Element

_CORNERS: Final = ("xmin", "ymin", "xmax", "ymax")


@dataclass(frozen=True)
class VocObject:
    """One object of an XML file; ``swapped``: a minimum stood above its maximum; ``padded``: spaces around the name."""

    name: str
    box: tuple[float, float, float, float]
    difficult: bool
    swapped: bool
    padded: bool


@dataclass(frozen=True)
class VocFile:
    """One XML file; ``size`` is (height, width), zeros when absent."""

    path: Path
    file_name: str
    size: tuple[int, int]
    objects: tuple[VocObject, ...] = field(default=())


def read_voc_file(path: Path) -> VocFile:
    """Return the contents of one XML file.

    Raises ValueError with file and reason for XML that does not parse (or tries to define entities) and for an
    object without a name or with missing, non-numeric or non-finite corners.
    """
    try:
        root: Element = SafeTree.fromstring(path.read_bytes())
    except SafeTree.ParseError as error:
        raise ValueError(f"{path}: not well-formed XML ({error})") from error
    except DefusedXmlException as error:
        raise ValueError(f"{path}: refused, the XML defines entities ({type(error).__name__})") from error
    size = root.find("size")
    height, width = (_whole(size, "height"), _whole(size, "width")) if size is not None else (0, 0)
    objects = tuple(_object(node, i, path) for i, node in enumerate(root.iterfind("object"), 1))
    return VocFile(path, (root.findtext("filename") or "").strip(), (height, width), objects)


def read_voc(source: Source, needs: TaskNeeds, options: ReadOptions) -> Parsed:
    """Return the split of a VOC tree in list order; class names are those of the whole tree, sorted.

    Swapped corners are put right and counted. The picture of a label file shares its stem; only without one is
    the file's own <filename> used. Raises FileNotFoundError for a listed name without XML, ValueError as
    ``read_voc_file``.
    """
    if needs.keypoints or needs.rboxes or needs.outlines:
        raise ValueError(f"{source.labels} holds Pascal VOC boxes only; use the detect task")
    like = options.like
    everything = {path.stem: path for path in sorted(source.labels.glob("*.xml"))}
    stems = listed_stems(source.listing) if source.listing else list(everything)
    missing = [stem for stem in stems if stem not in everything]
    if missing:
        raise FileNotFoundError(
            f"{source.listing} lists {missing[0]!r}, but {source.labels / missing[0]}.xml does not exist"
        )
    wanted = set(stems)
    files = {stem: read_voc_file(path) for stem, path in everything.items() if like is None or stem in wanted}
    names = reuse_names([o.name for f in files.values() for o in f.objects], like, str(source.labels))
    label_of = {name: label for label, name in enumerate(names)}
    chosen = [files[stem] for stem in stems]
    folder = source.images[0] if source.images else source.root
    pictures = picture_names(folder, chosen)
    sizes = read_sizes([folder / name for name in pictures], exif=options.exif, bad_image=options.bad_image)
    builder = RecordsBuilder()
    number = 0
    for file, picture, size in zip(chosen, pictures, sizes, strict=True):
        if size is None:
            builder.dropped["unreadable image"] += 1
            continue
        number += 1
        if min(file.size) > 0 and file.size != size:
            builder.dropped["stated size differs from the picture (the picture counts)"] += 1
        builder.image(picture, number, size)
        for item in file.objects:
            builder.dropped.update(Counter({"swapped corners (put right)": 1} if item.swapped else {}))
            builder.instance(item.box, label_of[item.name], difficult=item.difficult)
    return Parsed(builder.build(), folder, names, tuple(range(1, len(names) + 1)))


def _object(node: Element, number: int, path: Path) -> VocObject:
    where = f"{path}, object {number}"
    name = (node.findtext("name") or "").strip()
    if not name:
        raise ValueError(f"{where}: no <name>")
    texts = [node.findtext(f"bndbox/{corner}") for corner in _CORNERS]
    try:
        x1, y1, x2, y2 = (float(text or "") for text in texts)
    except ValueError:
        raise ValueError(
            f"{where} ({name}): bndbox needs the numbers {', '.join(_CORNERS)}, got {texts}"
        ) from None
    if not all(map(math.isfinite, (x1, y1, x2, y2))):
        raise ValueError(f"{where} ({name}): bndbox holds a number that is not finite, {texts}")
    difficult = (node.findtext("difficult") or "0").strip() not in ("0", "")
    box = (min(x1, x2), min(y1, y2), max(x1, x2), max(y1, y2))
    padded = name != node.findtext("name")
    return VocObject(name, box, difficult, swapped=x1 > x2 or y1 > y2, padded=padded)


def _whole(node: Element, tag: str) -> int:
    text = (node.findtext(tag) or "0").strip()
    try:
        return int(float(text))
    except ValueError:
        return 0


def listed_stems(listing: Path) -> list[str]:
    """Return the names of a split list, in order."""
    lines = listing.read_text(encoding="utf-8-sig").splitlines()
    return [line.split()[0] for line in lines if line.strip()]


def picture_names(folder: Path, files: Iterable[VocFile]) -> list[str]:
    """Return each file's picture in ``folder``: the one of its stem, else the one it names."""
    by_stem = {p.stem: p.name for p in sorted(folder.iterdir()) if p.suffix.lower() in IMAGE_SUFFIXES}
    return [by_stem.get(file.path.stem) or file.file_name or f"{file.path.stem}.jpg" for file in files]
