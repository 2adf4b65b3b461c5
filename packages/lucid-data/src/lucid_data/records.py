"""The packed annotation store: a few flat arrays for a whole split, and the builder that fills them.

Legend: n images, M instances, Q crowd regions, R rings, P ring points, K keypoints. Nothing is an object per
instance, so loader workers share the pages and a million images cost memory once.
"""

from __future__ import annotations

import itertools
from array import array
from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace

import numpy as np
import numpy.typing as npt
import torch

from lucid_data.targets import Targets
from lucid_geometry import polygons_to_rboxes

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


def _gather(starts: Ints, chosen: Ints) -> tuple[Ints, Ints]:
    """Return the elements that belong to the ``chosen`` groups of ``starts``, and the new starts."""
    counts = (starts[1:] - starts[:-1])[chosen]
    ends = np.concatenate([[0], np.cumsum(counts)])
    elements = np.arange(ends[-1]) + np.repeat(starts[:-1][chosen] - ends[:-1], counts)
    return elements, ends


class RecordsBuilder:
    """Collects labels image by image and packs them; a reader's only way to make ``Records``."""

    def __init__(self, *, outlines: bool = False, keypoints: int = 0, rboxes: bool = False) -> None:
        self._outlines, self._keypoint_count, self._rboxes = outlines, keypoints, rboxes
        self._names: list[str] = []
        self._ids: list[int | str] = []
        self._sizes, self._starts, self._crowd_starts = array("i"), array("q"), array("q")
        self._boxes, self._area, self._crowd = array("d"), array("d"), array("d")
        self._labels, self._difficult, self._mask_ok = array("q"), array("b"), array("b")
        self._points, self._keypoints, self._quads = array("d"), array("d"), array("d")
        self._ring_starts, self._instance_rings = array("q", [0]), array("q", [0])
        self.dropped: Counter[str] = Counter()

    def image(self, file_name: str, image_id: int | str, size: tuple[int, int]) -> None:
        """Begin the next image; the instances and crowd regions that follow belong to it."""
        self._names.append(file_name)
        self._ids.append(image_id)
        self._sizes.extend(size)
        self._starts.append(len(self._labels))
        self._crowd_starts.append(len(self._crowd) // 4)

    def instance(
        self,
        box: Sequence[float],
        label: int,
        *,
        area: float | None = None,
        difficult: bool = False,
        rings: Sequence[Sequence[float]] = (),
        keypoints: Sequence[float] = (),
        quad: Sequence[float] = (),
    ) -> None:
        """Add one instance: x1 y1 x2 y2, rings and quad as flat x y lists, keypoints as flat x y v."""
        self._boxes.extend(box)
        self._labels.append(label)
        self._area.append((box[2] - box[0]) * (box[3] - box[1]) if area is None else area)
        self._difficult.append(difficult)
        self._mask_ok.append(bool(rings))
        if self._outlines:
            for ring in rings:
                self._points.extend(ring)
                self._ring_starts.append(len(self._points) // 2)
            self._instance_rings.append(len(self._ring_starts) - 1)
        if self._keypoint_count:
            self._keypoints.extend(keypoints or (0.0,) * (3 * self._keypoint_count))
        if self._rboxes:
            self._quads.extend(quad)

    def crowd(self, box: Sequence[float]) -> None:
        """Add one ignore region to the current image."""
        self._crowd.extend(box)

    def build(self) -> Records:
        """Return everything collected, packed."""
        ids: npt.NDArray[np.int64] | npt.NDArray[np.str_]
        if all(isinstance(i, int) for i in self._ids):
            ids = np.array(self._ids, np.int64)
        else:
            ids = np.array([str(i) for i in self._ids])
        k = self._keypoint_count
        rboxes = np.zeros((0, 5), np.float32)
        if self._rboxes and len(self._quads):
            quads = torch.from_numpy(np.array(self._quads, np.float64).reshape(-1, 4, 2))
            rboxes = polygons_to_rboxes(quads).numpy().astype(np.float32)
        return Records(
            file_names=Strings.pack(self._names),
            sizes=np.array(self._sizes, np.int32).reshape(-1, 2),
            image_ids=ids,
            starts=np.array([*self._starts, len(self._labels)], np.int64),
            crowd_starts=np.array([*self._crowd_starts, len(self._crowd) // 4], np.int64),
            boxes=np.array(self._boxes, np.float32).reshape(-1, 4),
            labels=np.array(self._labels, np.int64),
            difficult=np.array(self._difficult, np.bool_),
            area=np.array(self._area, np.float32),
            mask_ok=np.array(self._mask_ok, np.bool_),
            crowd=np.array(self._crowd, np.float32).reshape(-1, 4),
            points=np.array(self._points, np.float32).reshape(-1, 2),
            ring_starts=np.array(self._ring_starts if self._outlines else [], np.int64),
            instance_rings=np.array(self._instance_rings if self._outlines else [], np.int64),
            keypoints=np.array(self._keypoints, np.float32).reshape(-1, k, 3) if k else _NO_KEYPOINTS,
            rboxes=rboxes,
            dropped=dict(self.dropped),
        )


_NO_KEYPOINTS = np.zeros((0, 0, 3), np.float32)
