"""The two read-only tables a detector is chosen from: five sizes and four tasks."""

from collections.abc import Mapping
from dataclasses import dataclass
from types import MappingProxyType
from typing import TypeVar

STRIDES = (8, 16, 32)
"""Canvas pixels per cell of the three feature levels."""


@dataclass(frozen=True)
class SizeSpec:
    """One size: how base widths and repeats scale, and which early stages use the deeper inner unit.

    Source of depth, width and cap: arXiv:2602.14582, Fig. 1.

    >>> SIZES["n"].channels(1024), SIZES["l"].repeats
    (256, 2)
    """

    name: str
    depth: float
    width: float
    max_channels: int
    deep_early_stages: bool

    def channels(self, base: int) -> int:
        """Return the scaled width of a base width."""
        return int(min(base, self.max_channels) * self.width)

    @property
    def repeats(self) -> int:
        """Inner units per CSP stage."""
        return max(1, round(2 * self.depth))


@dataclass(frozen=True)
class TaskSpec:
    """One task: its default canvas side in pixels and number of classes, and what it predicts beside classes.

    ``num_keypoints`` is the count its published sizes are stated for, None without keypoints; ``masks`` and
    ``rotated`` say whether it predicts instance masks, and rotated boxes in place of upright ones.
    """

    name: str
    image_size: int
    num_classes: int
    num_keypoints: int | None = None
    masks: bool = False
    rotated: bool = False


SpecT = TypeVar("SpecT", SizeSpec, TaskSpec)


def _table(*rows: SpecT) -> Mapping[str, SpecT]:
    return MappingProxyType({row.name: row for row in rows})


SIZES: Mapping[str, SizeSpec] = _table(
    SizeSpec("n", 0.50, 0.25, 1024, deep_early_stages=False),
    SizeSpec("s", 0.50, 0.50, 1024, deep_early_stages=False),
    SizeSpec("m", 0.50, 1.00, 512, deep_early_stages=True),
    SizeSpec("l", 1.00, 1.00, 512, deep_early_stages=True),
    SizeSpec("x", 1.00, 1.50, 512, deep_early_stages=True),
)
"""The five sizes by letter; read-only."""

TASKS: Mapping[str, TaskSpec] = _table(
    TaskSpec("detect", 640, 80),
    TaskSpec("segment", 640, 80, masks=True),
    TaskSpec("pose", 640, 1, num_keypoints=17),
    TaskSpec("obb", 1024, 15, rotated=True),
)
"""The tasks `build_detector` can build, by name; read-only."""

Row = TypeVar("Row")


def look_up(table: Mapping[str, Row], kind: str, name: str) -> Row:
    """Return ``table[name]``; ValueError that lists the known names otherwise.

    >>> look_up(SIZES, "size", "q")
    Traceback (most recent call last):
    ValueError: unknown size 'q'; choose one of n, s, m, l, x
    """
    if name not in table:
        raise ValueError(f"unknown {kind} {name!r}; choose one of {', '.join(table)}")
    return table[name]
