"""What a reader hands to the catalogue, and the header pass every reader shares."""

from __future__ import annotations

from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path
from typing import Literal

from lucid_data.images import image_size
from lucid_data.records import Records
from lucid_data.records_builder import RboxFit

BadImage = Literal["raise", "skip"]


@dataclass(frozen=True, eq=False)
class Parsed:
    """One split as a reader understood it.

    Attributes:
        records: the packed labels.
        images: the folder the file names are relative to.
        class_names: in label order.
        category_ids: the source's ids in label order.
        keypoint_names: names of the points, () when unknown or not asked for.
        keypoint_flip_pairs: (left, right) index pairs, () when no point has a side.
    """

    records: Records
    images: Path
    class_names: tuple[str, ...]
    category_ids: tuple[int, ...]
    keypoint_names: tuple[str, ...] = ()
    keypoint_flip_pairs: tuple[tuple[int, int], ...] = ()


class RowError(ValueError):
    """A row of text that cannot be read: where, a stable ``code``, the ``reason`` and the ``remedy``."""

    def __init__(self, where: str, code: str, reason: str, remedy: str) -> None:
        super().__init__(f"{where}: {reason}; {remedy}")
        self.code, self.reason, self.remedy = code, reason, remedy


@dataclass(frozen=True)
class Classes:
    """A label space to reuse: names and ids in label order."""

    names: tuple[str, ...]
    ids: tuple[int, ...]


@dataclass(frozen=True)
class ReadOptions:
    """How to read, beyond what the task needs; each format uses what concerns it.

    Attributes:
        exif: turn pictures upright by their tag.
        bad_image: what an unreadable picture header does.
        like: a label space to reuse.
        strict_labels: a picture without a label file is an error (YOLO, DOTA).
        dota_version: which DOTA class list, or None to choose by the names found.
        min_visible: COCO annotations whose ``visible_fraction`` is less are left out; tiles have it.
        keypoint_offset: added to labelled COCO keypoints, which are pixel indices.
        rbox_fit: how oriented boxes are fitted to quadrilaterals.
    """

    exif: bool = False
    bad_image: BadImage = "raise"
    like: Classes | None = None
    strict_labels: bool = False
    dota_version: str | None = None
    keypoint_offset: float = 0.5
    min_visible: float = 0.0
    rbox_fit: RboxFit = "mean"


def read_sizes(paths: Sequence[Path], *, exif: bool, bad_image: BadImage) -> list[tuple[int, int] | None]:
    """Return (height, width) of every picture from its header, in order.

    An unreadable one raises its OSError, or becomes None with ``bad_image="skip"``.
    """

    def one(path: Path) -> tuple[int, int] | None:
        try:
            return image_size(path, exif)
        except OSError as error:
            if bad_image == "raise":
                raise unreadable(error) from error
            return None

    with ThreadPoolExecutor(8) as pool:
        return list(pool.map(one, paths))


def unreadable(error: OSError) -> OSError:
    """Return the error of a picture that cannot be read, with what to do about it."""
    return OSError(f"{error}; replace the file or take it out (`lucid data check` lists all such files)")


def reuse_names(found: Sequence[str], like: Classes | None, where: str) -> tuple[str, ...]:
    """Return the names in label order: sorted, or those of ``like``, which must hold every name found."""
    if like is None:
        return tuple(sorted(set(found)))
    extra = sorted(set(found) - set(like.names))
    if extra:
        raise ValueError(f"{where} has classes that the other split lacks: {', '.join(extra)}")
    return like.names
