"""The packed annotation store: a few flat arrays for a whole split.

Legend: n images, M instances, Q crowd regions, R rings, P ring points, K keypoints. Nothing is an object per
instance, so loader workers share the pages and a million images cost memory once.
"""

from __future__ import annotations

import itertools
import weakref
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, fields, replace
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
import torch

from lucid_data.targets import Targets

Floats = npt.NDArray[np.float32]
Ints = npt.NDArray[np.int64]
Flags = npt.NDArray[np.bool_]


@dataclass(frozen=True, eq=False)
class Strings:
    """A list of texts as one UTF-8 byte array and offsets.

    >>> names = Strings.pack(["a.jpg", "bb.jpg"])
    >>> len(names), names[1]
    (2, 'bb.jpg')
    """

    data: npt.NDArray[np.uint8]
    starts: Ints

    @classmethod
    def pack(cls, texts: Sequence[str]) -> Strings:
        """Return ``texts`` packed."""
        encoded = [text.encode("utf-8", "surrogateescape") for text in texts]
        starts = np.zeros(len(encoded) + 1, np.int64)
        np.cumsum([len(item) for item in encoded], out=starts[1:])
        return cls(np.frombuffer(b"".join(encoded), np.uint8), starts)

    def __len__(self) -> int:
        return len(self.starts) - 1

    def __getitem__(self, index: int) -> str:
        if not -len(self) <= index < len(self):
            raise IndexError(f"text {index} of {len(self)}")
        index %= len(self)
        return bytes(self.data[self.starts[index] : self.starts[index + 1]]).decode(
            "utf-8", "surrogateescape"
        )


@dataclass(frozen=True, eq=False)
class Records:
    """All labels of one split. Boxes are as the source states them, neither clamped nor filtered.

    Attributes:
        file_names: n picture paths, relative to the image folder (or absolute).
        sizes: (n, 2) int32 height and width; zeros where no header has been read yet.
        image_ids: (n,) int64, or a text array when the source's ids are texts.
        starts, crowd_starts: (n + 1,) where each image's instances and crowd regions begin.
        boxes, labels, difficult, area, mask_ok: (M, 4) float32, (M,) int64, bool, float32, bool.
        crowd: (Q, 4) float32.
        points, ring_starts, instance_rings: (P, 2) float32, (R + 1,), (M + 1,) outlines; all images or none.
        keypoints: (M, K, 3) float32, or (0, 0, 3).
        rboxes: (M, 5) float32, or (0, 5).
        dropped: what the reader left out, by reason.
    """

    file_names: Strings
    sizes: npt.NDArray[np.int32]
    image_ids: npt.NDArray[np.int64] | npt.NDArray[np.str_]
    starts: Ints
    crowd_starts: Ints
    boxes: Floats
    labels: Ints
    difficult: Flags
    area: Floats
    mask_ok: Flags
    crowd: Floats
    points: Floats
    ring_starts: Ints
    instance_rings: Ints
    keypoints: Floats
    rboxes: Floats
    dropped: dict[str, int]

    def __len__(self) -> int:
        return len(self.sizes)

    def __reduce__(self) -> tuple[Any, ...]:
        known = _TRAVELS.get(self)
        if known is not None:
            return known
        return Records, tuple(getattr(self, field.name) for field in fields(self))

    def clamped(self, size: tuple[int, int], rows: slice) -> Floats:
        """Return the (m, 4) boxes of ``rows`` cut to an image of ``size`` (height, width)."""
        height, width = size
        limit = np.array([width, height, width, height], np.float32)
        return np.clip(self.boxes[rows], np.float32(0), limit)

    def targets(self, index: int, size: tuple[int, int], min_side: float) -> Targets:
        """Return the labels of image ``index``, clamped to ``size``, boxes under ``min_side`` px left out."""
        rows = slice(int(self.starts[index]), int(self.starts[index + 1]))
        boxes = self.boxes[rows] if len(self.rboxes) else self.clamped(size, rows)
        sides = boxes[:, 2:] - boxes[:, :2]
        keep = (sides >= min_side).all(1)
        crowd = self.crowd[int(self.crowd_starts[index]) : int(self.crowd_starts[index + 1])]
        full = Targets(
            boxes=torch.from_numpy(boxes.copy()),
            labels=torch.from_numpy(self.labels[rows].copy()),
            polygons=self._outlines(rows),
            rboxes=torch.from_numpy(self.rboxes[rows].copy() if len(self.rboxes) else self.rboxes.copy()),
            difficult=torch.from_numpy(self.difficult[rows].copy()),
            keypoints=torch.from_numpy(
                self.keypoints[rows].copy() if len(self.keypoints) else self.keypoints.copy()
            ),
            crowd=torch.from_numpy(crowd.copy()),
            mask_ok=torch.from_numpy(self.mask_ok[rows].copy()),
            area=torch.from_numpy(self.area[rows].copy()),
        )
        return full if keep.all() else full.filter(torch.from_numpy(keep))

    def subset(self, indices: Iterable[int]) -> Records:
        """Return the records of these images, in the order given."""
        chosen = np.asarray(list(indices), np.int64)
        if chosen.size and not (chosen.min() >= 0 and chosen.max() < len(self)):
            raise IndexError(f"image {chosen.max()} of {len(self)}")
        rows, starts = _gather(self.starts, chosen)
        crowd_rows, crowd_starts = _gather(self.crowd_starts, chosen)
        return replace(
            self._rows(rows),
            file_names=Strings.pack([self.file_names[i] for i in chosen.tolist()]),
            sizes=self.sizes[chosen],
            image_ids=self.image_ids[chosen],
            starts=starts,
            crowd_starts=crowd_starts,
            crowd=self.crowd[crowd_rows],
        )

    def without_difficult(self) -> Records:
        """Return the records without flagged instances, which are counted as dropped."""
        rows = np.flatnonzero(~self.difficult)
        flagged = len(self.difficult) - len(rows)
        return replace(
            self._rows(rows),
            starts=np.searchsorted(rows, self.starts),
            dropped=self.dropped | ({"difficult instance": flagged} if flagged else {}),
        )

    def arranged(self, rows: Ints | None, crowd_rows: Ints | None) -> Records:
        """Return the records with instances and crowd regions in the order given (None: as they are)."""
        out = self if rows is None else self._rows(rows)
        return out if crowd_rows is None else replace(out, crowd=self.crowd[crowd_rows])

    def _rows(self, rows: Ints) -> Records:
        """Return the records with these instances only; where images begin is left to the caller."""
        points, ring_starts, instance_rings = self.points, self.ring_starts, self.instance_rings
        if instance_rings.size:
            rings, instance_rings = _gather(instance_rings, rows)
            vertices, ring_starts = _gather(ring_starts, rings)
            points = points[vertices]
        return replace(
            self,
            boxes=self.boxes[rows],
            labels=self.labels[rows],
            difficult=self.difficult[rows],
            area=self.area[rows],
            mask_ok=self.mask_ok[rows],
            points=points,
            ring_starts=ring_starts,
            instance_rings=instance_rings,
            keypoints=self.keypoints[rows] if len(self.keypoints) else self.keypoints,
            rboxes=self.rboxes[rows] if len(self.rboxes) else self.rboxes,
        )

    def _outlines(self, rows: slice) -> tuple[tuple[torch.Tensor, ...], ...]:
        if not len(self.instance_rings):
            return ()
        bounds = self.instance_rings[rows.start : rows.stop + 1].tolist()
        ends = self.ring_starts
        return tuple(
            tuple(torch.from_numpy(self.points[ends[r] : ends[r + 1]].copy()) for r in range(first, last))
            for first, last in itertools.pairwise(bounds)
        )


# the very objects: a subset of one is an object of its own and travels by value
_TRAVELS: weakref.WeakKeyDictionary[Records, tuple[Any, ...]] = weakref.WeakKeyDictionary()


def travels_as(records: Records, load: Callable[[Path], Records], place: Path) -> None:
    """Let ``records`` be pickled as ``load(place)`` instead of by value."""
    _TRAVELS[records] = (load, (place,))


def _gather(starts: Ints, chosen: Ints) -> tuple[Ints, Ints]:
    """Return the elements that belong to the ``chosen`` groups of ``starts``, and the new starts."""
    counts = (starts[1:] - starts[:-1])[chosen]
    ends = np.concatenate([[0], np.cumsum(counts)])
    elements = np.arange(ends[-1]) + np.repeat(starts[:-1][chosen] - ends[:-1], counts)
    return elements, ends
