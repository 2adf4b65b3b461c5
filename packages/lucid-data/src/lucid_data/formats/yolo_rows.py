"""The rows of one YOLO label file, checked and turned into pixels."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Literal

from lucid_data.formats.parsed import RowError
from lucid_data.records_builder import RecordsBuilder

# exporters round: this far outside [0, 1] is clamped, anything further is an error
TOLERANCE = 1e-3


@dataclass(frozen=True)
class RowKind:
    """Which row a file must hold; ``points`` and ``numbers`` describe pose rows (K, and 2 or 3 per point)."""

    name: Literal["detect", "segment", "pose", "obb"]
    points: int = 0
    numbers: int = 0

    def fits(self, fields: int) -> bool:
        """Tell whether a row of ``fields`` columns can be read; a detect file may hold outline rows."""
        outline = fields >= 7 and fields % 2 == 1
        match self.name:
            case "detect":
                return fields == 5 or outline
            case "segment":
                return outline
            case "obb":
                return fields == 9
            case "pose":
                return fields == 5 + self.numbers * self.points

    @property
    def form(self) -> str:
        """The row as a person writes it."""
        match self.name:
            case "detect":
                return "class cx cy w h"
            case "segment":
                return "class x1 y1 ... xn yn with at least three points"
            case "obb":
                return "class x1 y1 x2 y2 x3 y3 x4 y4"
            case "pose":
                return f"class cx cy w h and {self.points} points of {self.numbers} numbers"


@dataclass(frozen=True)
class Row:
    """One checked row: class index and the numbers after it, coordinates within [0, 1]."""

    label: int
    values: tuple[float, ...]


def parse_row(line: str, kind: RowKind, classes: int, where: str) -> Row:
    """Return the row of one line; RowError (a ValueError) starting with ``where`` says what is wrong.

    >>> parse_row("1 0.5 0.5 0.5 0.25", RowKind("detect"), 2, "a.txt:1")
    Row(label=1, values=(0.5, 0.5, 0.5, 0.25))
    """
    fields = line.split()
    form = f"a {kind.name} row is: {kind.form}"
    try:
        numbers = [float(field) for field in fields]
    except ValueError:
        bad = next(field for field in fields if not _is_number(field))
        raise RowError(where, "not-a-number", f"{bad!r} is not a number", form) from None
    if not kind.fits(len(fields)):
        raise RowError(where, "columns", f"{len(fields)} columns", form)
    if not all(map(math.isfinite, numbers)):
        raise RowError(where, "not-finite", f"a number is not finite: {line.strip()!r}", "correct the row")
    label, values = numbers[0], numbers[1:]
    if label != int(label) or not 0 <= label < classes:
        reason = f"class {fields[0]} is not one of 0..{classes - 1}"
        raise RowError(where, "class", reason, "correct it, or add the name to the dataset file")
    for at in _coordinate_positions(kind, len(values)):
        if not -TOLERANCE <= values[at] <= 1 + TOLERANCE:
            reason = f"coordinate {fields[at + 1]} is outside 0..1"
            pixels = "pixels: divide by the picture's size" if values[at] > 2 else "correct the row"
            raise RowError(where, "range", reason, pixels)
        values[at] = min(max(values[at], 0.0), 1.0)
    return Row(int(label), tuple(values))


def read_rows(path: Path, kind: RowKind, classes: int, size: tuple[int, int], builder: RecordsBuilder) -> int:
    """Add every row of ``path`` to ``builder`` in pixels of ``size`` (height, width); return how many repeated.

    Blank lines are skipped. Raises RowError with file and 1-based line, ValueError for a file that is not text.
    """
    seen: set[Row] = set()
    repeated = 0
    for number, line in enumerate(read_text(path).splitlines(), 1):
        if not line.strip():
            continue
        row = parse_row(line, kind, classes, f"{path}:{number}")
        if row in seen:
            repeated += 1
            continue
        seen.add(row)
        _add(row, kind, size, builder)
    return repeated


def read_text(path: Path) -> str:
    """Return the UTF-8 text of ``path``, a byte-order mark allowed; ValueError names a file that is none."""
    try:
        return path.read_text(encoding="utf-8-sig")
    except UnicodeDecodeError as error:
        raise ValueError(f"{path} is not UTF-8 text ({error}); export it again") from error


def _add(row: Row, kind: RowKind, size: tuple[int, int], builder: RecordsBuilder) -> None:
    height, width = size
    if kind.name == "pose" or (kind.name == "detect" and len(row.values) == 4):
        cx, cy, w, h = row.values[:4]
        box = ((cx - w / 2) * width, (cy - h / 2) * height, (cx + w / 2) * width, (cy + h / 2) * height)
        builder.instance(box, row.label, keypoints=_points(row.values[4:], kind, size))
        return
    ring = _scaled(row.values, size)
    box = (min(ring[::2]), min(ring[1::2]), max(ring[::2]), max(ring[1::2]))
    if kind.name == "obb":
        builder.instance(box, row.label, quad=ring)
    else:
        builder.instance(box, row.label, rings=[ring])


def _points(values: Sequence[float], kind: RowKind, size: tuple[int, int]) -> list[float]:
    height, width = size
    flat: list[float] = []
    for at in range(0, len(values), kind.numbers or 1):
        x, y = values[at : at + 2]
        v = values[at + 2] if kind.numbers == 3 else (2.0 if (x, y) != (0.0, 0.0) else 0.0)
        flat += (x * width, y * height, v) if v > 0 else (0.0, 0.0, 0.0)
    return flat


def _scaled(values: Sequence[float], size: tuple[int, int]) -> list[float]:
    height, width = size
    return [v * (height if i % 2 else width) for i, v in enumerate(values)]


def _coordinate_positions(kind: RowKind, count: int) -> list[int]:
    if kind.name == "pose" and kind.numbers == 3:
        return [i for i in range(count) if i < 4 or (i - 4) % 3 != 2]
    return list(range(count))


def _is_number(field: str) -> bool:
    try:
        float(field)
    except ValueError:
        return False
    return True
