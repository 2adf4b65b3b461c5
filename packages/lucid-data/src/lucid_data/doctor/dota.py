"""Findings about a DOTA tree."""

from __future__ import annotations

import os
from collections import Counter, defaultdict
from pathlib import Path
from typing import Final

import torch

from lucid_data.doctor.boxes import check_box
from lucid_data.doctor.findings import Findings
from lucid_data.doctor.pictures import Progress, examine_pictures
from lucid_data.formats.dota import DotaObject, is_header, list_pictures, parse_line, unknown_class
from lucid_data.formats.dota_classes import DOTA_CLASSES, class_list, label_of, spelled
from lucid_data.formats.parsed import RowError
from lucid_data.source import Source
from lucid_geometry import polygons_to_rboxes, rboxes_to_polygons

Size = tuple[int, int] | None
Line = tuple[Path, int, DotaObject]

# what is common enough to be told once for the whole tree: what is the case, and what to do
_HABITS: Final = {
    "dota-line-ends": ("files with Windows line ends", "nothing to do: they are read"),
    "dota-no-header": ("files that begin without imagesource and gsd", "nothing to do: they are optional"),
    "dota-gsd": ("files that state no ground sampling distance (null)", "nothing to do: it is not used"),
    "dota-background": ("files without an object", "nothing to do if the pictures show none"),
    "dota-no-difficulty": ("lines without a difficulty", "nothing to do: it is taken as 0"),
    "dota-difficulty": (
        "lines with a difficulty other than 0 and 1",
        "nothing to do: it counts as difficult",
    ),
    "dota-counter-clockwise": (
        "quadrilaterals that run counter-clockwise",
        "nothing to do: only the rectangle counts",
    ),
    "dota-not-rectangular": (
        "quadrilaterals that are no rectangles",
        "nothing to do: the mean rectangle is fitted",
    ),
    "dota-square": ("square boxes, whose angle is known up to a quarter turn only", "nothing to do"),
}


def check_dota(
    sources: list[Source], version: str | None, *, decode: bool, progress: Progress, found: Findings
) -> None:
    """Add findings about the pictures and the label files of every split."""
    lines: list[Line] = []
    sizes: dict[Path, Size] = {}
    habits: defaultdict[str, list[str]] = defaultdict(list)
    for source in sources:
        pictures = list_pictures(source.images[0])
        known = examine_pictures(pictures, decode=decode, progress=progress, found=found)
        by_stem = {picture.stem: picture for picture in pictures}
        files = {path.stem: path for path in sorted(source.labels.glob("*.txt"))}
        for stem, path in files.items():
            if stem not in by_stem:
                message = "a label file without a picture"
                remedy = "restore the picture or delete it"
                found.add("dota-orphan-label", "warning", path, "", message, remedy)
            else:
                sizes[path] = known[by_stem[stem]].stored
            lines += _read(path, habits, found)
        bare = sorted(set(by_stem) - set(files))
        if bare:
            message = f"pictures without a label file: {len(bare)}, such as {by_stem[bare[0]].name}"
            found.add(
                "dota-no-label-file",
                "note",
                source.labels,
                "",
                message,
                "nothing to do if they show no object",
            )
    _check_classes(lines, version, found)
    _check_shapes(lines, sizes, habits, found)
    tree = Path(os.path.commonpath([source.labels for source in sources]))
    for code, places in habits.items():
        what, remedy = _HABITS[code]
        message = f"{what}: {len(places)}, such as {', '.join(places[:3])}"
        found.add(code, "note", tree, "", message, remedy)


def _read(path: Path, habits: defaultdict[str, list[str]], found: Findings) -> list[Line]:
    data = path.read_bytes()
    try:
        text = data.decode("utf-8-sig")
    except UnicodeDecodeError as error:
        found.add("dota-not-text", "error", path, "", f"not UTF-8 text: {error}", "export the file again")
        return []
    rows: list[Line] = []
    headers: list[str] = []
    bad = 0
    for number, line in enumerate(text.splitlines(), 1):
        if not line.strip():
            continue
        if is_header(line):
            headers.append(line.replace(" ", "").lower())
            continue
        where = f"line {number}"
        try:
            rows.append((path, number, parse_line(line, where)))
        except RowError as error:
            found.add(f"dota-{error.code}", "error", path, where, error.reason, error.remedy)
            bad += 1
    if b"\r\n" in data:
        habits["dota-line-ends"].append(path.name)
    if not headers and (rows or bad):
        habits["dota-no-header"].append(path.name)
    if "gsd:null" in headers:
        habits["dota-gsd"].append(path.name)
    if not rows and not bad:
        habits["dota-background"].append(path.name)
    return rows


def _check_classes(lines: list[Line], version: str | None, found: Findings) -> None:
    names = class_list({item.name for _, _, item in lines}, version)
    for path, number, item in lines:
        where = f"line {number}"
        if label_of(item.name, names) is None:
            remedy = "correct the name, or say which class list is meant"
            found.add("dota-class", "error", path, where, unknown_class(item.name, names), remedy)
        elif names in DOTA_CLASSES.values() and spelled(item.name) not in DOTA_CLASSES["1.0"]:
            message = unknown_class(item.name, DOTA_CLASSES["1.0"])
            remedy = "nothing to do if later classes are meant; DOTA-v1.0 lacks it"
            found.add("dota-class-version", "warning", path, where, message, remedy)


def _check_shapes(
    lines: list[Line], sizes: dict[Path, Size], habits: defaultdict[str, list[str]], found: Findings
) -> None:
    if not lines:
        return
    quads = torch.tensor([item.quad for _, _, item in lines], dtype=torch.float64).view(-1, 4, 2)
    rboxes = polygons_to_rboxes(quads)
    nearest = (rboxes_to_polygons(rboxes)[:, :, None] - quads[:, None]).norm(dim=-1).amin(1).amax(1)
    slack = (0.1 * rboxes[:, 3]).clamp(min=2.0)
    skewed = (nearest > slack).tolist()
    square = ((rboxes[:, 2] - rboxes[:, 3]).abs() <= 0.01 * rboxes[:, 2]).tolist()
    crossing = _crossing(quads).tolist()
    seen: set[tuple[Path, DotaObject]] = set()
    outside: Counter[Path] = Counter()
    total: Counter[Path] = Counter()
    for at, (path, number, item) in enumerate(lines):
        where, place = f"line {number}", f"{path.name}:{number}"
        if (path, item) in seen:
            message = "another line has the same corners and class"
            found.add("dota-object-repeated", "warning", path, where, message, "delete it; it is left out")
            continue
        seen.add((path, item))
        if not item.stated:
            habits["dota-no-difficulty"].append(place)
        elif item.difficulty not in (0, 1):
            habits["dota-difficulty"].append(place)
        if crossing[at]:
            message = "the quadrilateral crosses itself"
            found.add("dota-self-crossing", "warning", path, where, message, "put its corners in order")
        elif item.area < 0:
            habits["dota-counter-clockwise"].append(place)
        if item.area != 0 and not crossing[at]:
            if skewed[at]:
                habits["dota-not-rectangular"].append(place)
            elif square[at]:
                habits["dota-square"].append(place)
        size = sizes.get(path)
        check_box(item.box, size, "dota", path, where, found)
        if size is not None:
            x1, y1, x2, y2 = item.box
            total[path] += 1
            outside[path] += x1 >= size[1] or y1 >= size[0] or x2 <= 0 or y2 <= 0
    for path, count in outside.items():
        if 2 * count > total[path]:
            height, width = sizes[path] or (0, 0)
            message = f"objects outside the {width} x {height} picture: {count} of {total[path]}"
            remedy = "the labels belong to a picture of another size; restore it or rescale them"
            found.add("dota-does-not-fit", "warning", path, "", message, remedy)


def _crossing(quads: torch.Tensor) -> torch.Tensor:
    """Return (N,) bool: whether two opposite edges of quads (N, 4, 2) cross."""

    def side(a: torch.Tensor, b: torch.Tensor, p: torch.Tensor) -> torch.Tensor:
        d, e = b - a, p - a
        return torch.sign(d[:, 0] * e[:, 1] - d[:, 1] * e[:, 0])

    def cross(a: int, b: int, c: int, d: int) -> torch.Tensor:
        p, q, r, s = (quads[:, i] for i in (a, b, c, d))
        return (side(p, q, r) * side(p, q, s) < 0) & (side(r, s, p) * side(r, s, q) < 0)

    return cross(0, 1, 2, 3) | cross(1, 2, 3, 0)
