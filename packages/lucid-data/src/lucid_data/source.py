"""What every reader is told: which files one split is made of, and the names that splits go by."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Literal

Layout = Literal["coco", "yolo", "voc", "dota"]

SPLIT_SPELLINGS = {
    "train": ("train", "training"),
    "val": ("val", "valid", "validation"),
    "test": ("test", "testing"),
}
WHOLE = "all"


@dataclass(frozen=True)
class Source:
    """The files of one split.

    Attributes:
        layout: which reader opens it.
        split: the name asked for.
        root: the data set's folder.
        images: folders that may hold the pictures, in order of preference.
        labels: the COCO JSON, the YOLO dataset file, the folder of XML or of DOTA text files.
        listing: the VOC split list, where there is one.
    """

    layout: Layout
    split: str
    root: Path
    images: tuple[Path, ...]
    labels: Path
    listing: Path | None = None

    @property
    def folders(self) -> set[Path]:
        """The folders of pictures and of labels."""
        labels = self.labels if self.labels.is_dir() else self.labels.parent
        return {folder for folder in (labels, *self.images) if folder.is_dir()}


def spellings(split: str) -> tuple[str, ...]:
    """Return the folder spellings tried for ``split``.

    >>> spellings("val")
    ('val', 'valid', 'validation')
    """
    return SPLIT_SPELLINGS.get(split, (split,))
