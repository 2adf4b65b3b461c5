"""The builder that readers fill and that packs what they found into ``Records``."""

from __future__ import annotations

from array import array
from collections import Counter
from collections.abc import Sequence
from typing import Literal

import numpy as np
import numpy.typing as npt
import torch

from lucid_data.records import Ints, Records, Strings
from lucid_geometry import polygons_to_rboxes

RboxFit = Literal["mean", "minarea"]

_NO_KEYPOINTS = np.zeros((0, 0, 3), np.float32)


class RecordsBuilder:
    """Collects labels and packs them; a reader's only way to make ``Records``.

    Labels may arrive in any order of their images; those of one image keep their order.
    """

    def __init__(
        self, *, outlines: bool = False, keypoints: int = 0, rboxes: bool = False, fit: RboxFit = "mean"
    ) -> None:
        self._fit = fit
        self._outlines, self._keypoint_count, self._rboxes = outlines, keypoints, rboxes
        self._names: list[str] = []
        self._ids: list[int | str] = []
        self._sizes, self._owner, self._crowd_owner = array("i"), array("q"), array("q")
        # float32 from the start: rounding an outline's point once or at the end is the same number
        self._boxes, self._area, self._crowd = array("f"), array("f"), array("f")
        self._labels, self._difficult, self._mask_ok = array("q"), array("b"), array("b")
        self._points, self._keypoints, self._quads = array("f"), array("f"), array("d")
        self._ring_starts, self._instance_rings = array("q", [0]), array("q", [0])
        self.dropped: Counter[str] = Counter()

    def image(self, file_name: str, image_id: int | str, size: tuple[int, int]) -> int:
        """Add an image of ``size`` (height, width) and return its number."""
        self._names.append(file_name)
        self._ids.append(image_id)
        self._sizes.extend(size)
        return len(self._names) - 1

    def size(self, image: int) -> tuple[int, int]:
        """Return (height, width) of the image with this number."""
        return self._sizes[2 * image], self._sizes[2 * image + 1]

    @property
    def instances(self) -> int:
        """How many instances were added."""
        return len(self._labels)

    @property
    def outlined(self) -> bool:
        """Whether any instance has an outline."""
        return any(self._mask_ok)

    def instance(
        self,
        box: Sequence[float],
        label: int,
        *,
        image: int | None = None,
        area: float | None = None,
        difficult: bool = False,
        rings: Sequence[Sequence[float]] = (),
        keypoints: Sequence[float] = (),
        quad: Sequence[float] = (),
    ) -> None:
        """Add one instance to ``image`` (its number; None is the latest).

        The box is x1 y1 x2 y2, rings and quad are flat x y lists, keypoints flat x y v.
        """
        self._owner.append(len(self._names) - 1 if image is None else image)
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

    def crowd(self, box: Sequence[float], *, image: int | None = None) -> None:
        """Add one ignore region to ``image`` (its number; None is the latest)."""
        self._crowd_owner.append(len(self._names) - 1 if image is None else image)
        self._crowd.extend(box)

    def build(self) -> Records:
        """Return everything collected, packed in the order of the images."""
        ids: npt.NDArray[np.int64] | npt.NDArray[np.str_]
        if all(isinstance(i, int) for i in self._ids):
            ids = np.array(self._ids, np.int64)
        else:
            ids = np.array([str(i) for i in self._ids])
        k = self._keypoint_count
        rboxes = np.zeros((0, 5), np.float32)
        if self._rboxes and len(self._quads):
            quads = torch.from_numpy(np.array(self._quads, np.float64).reshape(-1, 4, 2))
            rboxes = polygons_to_rboxes(quads, self._fit).numpy().astype(np.float32)
        rows, starts = _by_image(self._owner, len(self._names))
        crowd_rows, crowd_starts = _by_image(self._crowd_owner, len(self._names))
        records = Records(
            file_names=Strings.pack(self._names),
            sizes=np.array(self._sizes, np.int32).reshape(-1, 2),
            image_ids=ids,
            starts=starts,
            crowd_starts=crowd_starts,
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
        return records.arranged(rows, crowd_rows)


def _by_image(owner: array[int], images: int) -> tuple[Ints | None, Ints]:
    """Return the rows in the order of their images (None when they are already) and where each image begins."""
    owners = np.array(owner, np.int64)
    starts = np.concatenate([[0], np.cumsum(np.bincount(owners, minlength=images))])
    return (None if (np.diff(owners) >= 0).all() else np.argsort(owners, kind="stable")), starts
