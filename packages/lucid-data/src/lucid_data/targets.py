"""One image's labels: every modality side by side, checked once, moved together.

Legend: N instances, Q crowd regions, K keypoints, P points of a ring.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import torch
from torch import Tensor

Outline = tuple[Tensor, ...]


@dataclass(frozen=True, eq=False)
class Targets:
    """The labels of one image, in pixels of the canvas they are stated on.

    Attributes:
        boxes: (N, 4) float32, x1 y1 x2 y2.
        labels: (N,) int64 class indices.
        polygons: () when the image has no outlines, else N entries, each a tuple of rings (P, 2) float32; an
            instance is the union of its rings, and an entry is empty where ``mask_ok`` is false.
        rboxes: (N, 5) float32 cx cy w h theta (radians), or (0, 5).
        difficult: (N,) bool.
        keypoints: (N, K, 3) float32 x y v with v in {0, 1, 2}, or (0, 0, 3).
        crowd: (Q, 4) float32 ignore regions.
        mask_ok: (N,) bool, whether the instance has a usable outline.
        area: (N,) float32 px^2.

    Nothing modifies a ``Targets`` in place. Raises ValueError for a shape and TypeError for a dtype that
    does not fit; the range of an angle is not checked.

    >>> t = Targets.of(torch.tensor([[0.0, 0.0, 4.0, 2.0]]), torch.tensor([1]))
    >>> len(t), t.area.tolist()
    (1, [8.0])
    """

    boxes: Tensor
    labels: Tensor
    polygons: tuple[Outline, ...]
    rboxes: Tensor
    difficult: Tensor
    keypoints: Tensor
    crowd: Tensor
    mask_ok: Tensor
    area: Tensor

    def __post_init__(self) -> None:
        n = len(self.labels) if self.labels.dim() == 1 else -1
        if n < 0:
            raise ValueError(f"Targets.labels must be (N,), got shape {tuple(self.labels.shape)}")
        _require("boxes", self.boxes, torch.float32, ((n, 4),))
        _require("labels", self.labels, torch.int64, ((n,),))
        _require("rboxes", self.rboxes, torch.float32, ((n, 5), (0, 5)))
        _require("difficult", self.difficult, torch.bool, ((n,),))
        _require("crowd", self.crowd, torch.float32, ((len(self.crowd), 4),))
        _require("mask_ok", self.mask_ok, torch.bool, ((n,),))
        _require("area", self.area, torch.float32, ((n,),))
        k = self.keypoints.shape[1] if self.keypoints.dim() == 3 else -1
        _require("keypoints", self.keypoints, torch.float32, ((n, k, 3), (0, 0, 3)))
        if len(self.polygons) not in (0, n):
            raise ValueError(f"Targets.polygons must hold 0 or {n} entries, got {len(self.polygons)}")
        for rings in self.polygons:
            for ring in rings:
                if ring.dtype != torch.float32:
                    raise TypeError(f"Targets.polygons rings must be float32, got {ring.dtype}")
                if ring.dim() != 2 or ring.shape[1] != 2 or len(ring) < 3:
                    raise ValueError(f"Targets.polygons rings must be (P >= 3, 2), got {tuple(ring.shape)}")

    def __len__(self) -> int:
        return self.labels.shape[0]

    @classmethod
    def of(
        cls,
        boxes: Tensor,
        labels: Tensor,
        *,
        polygons: Sequence[Sequence[Tensor]] = (),
        rboxes: Tensor | None = None,
        difficult: Tensor | None = None,
        keypoints: Tensor | None = None,
        crowd: Tensor | None = None,
        mask_ok: Tensor | None = None,
        area: Tensor | None = None,
    ) -> Targets:
        """Return labels with every absent modality filled in: no flags, box areas, outlines as given."""
        outlines = tuple(tuple(rings) for rings in polygons)
        n = len(labels)
        if mask_ok is None:
            mask_ok = torch.tensor([bool(rings) for rings in outlines] or [False] * n, dtype=torch.bool)
        if area is None:
            area = (boxes[:, 2] - boxes[:, 0]) * (boxes[:, 3] - boxes[:, 1])
        return cls(
            boxes=boxes,
            labels=labels,
            polygons=outlines,
            rboxes=torch.zeros(0, 5) if rboxes is None else rboxes,
            difficult=torch.zeros(n, dtype=torch.bool) if difficult is None else difficult,
            keypoints=torch.zeros(0, 0, 3) if keypoints is None else keypoints,
            crowd=torch.zeros(0, 4) if crowd is None else crowd,
            mask_ok=mask_ok,
            area=area,
        )

    @classmethod
    def empty(cls) -> Targets:
        """Return the labels of a background image: zero instances, right shapes and dtypes.

        >>> Targets.empty().boxes.shape
        torch.Size([0, 4])
        """
        return cls.of(torch.zeros(0, 4), torch.zeros(0, dtype=torch.int64))

    @classmethod
    def concat(cls, items: Sequence[Targets]) -> Targets:
        """Return all instances of ``items`` in order; no items give ``empty()``.

        Items without instances are neutral. Outlines may be missing from some items (their entries become
        empty); keypoints and rotated boxes may not: ValueError when only some have them or K differs.

        >>> len(Targets.concat([Targets.empty(), Targets.empty()]))
        0
        """
        crowds = [t.crowd for t in items if t.crowd.shape[0]]
        full = [t for t in items if len(t)]
        if not full:
            empty = cls.empty()
            return empty if not crowds else _replace(empty, crowd=torch.cat(crowds))
        counts = {t.keypoints.shape[1] for t in full}
        if len(counts) > 1:
            raise ValueError(f"Targets.concat: items disagree on the number of keypoints: {sorted(counts)}")
        if len({t.rboxes.shape[0] > 0 for t in full}) > 1:
            raise ValueError("Targets.concat: some items have rotated boxes and others have none")
        polygons: tuple[Outline, ...] = ()
        if any(t.polygons for t in full):
            polygons = tuple(rings for t in full for rings in (t.polygons or ((),) * len(t)))
        if len(full) == 1 and not crowds:
            return full[0]
        first = full[0]
        return _trusted(
            boxes=torch.cat([t.boxes for t in full]),
            labels=torch.cat([t.labels for t in full]),
            polygons=polygons,
            rboxes=torch.cat([t.rboxes for t in full]) if len(first.rboxes) else first.rboxes,
            difficult=torch.cat([t.difficult for t in full]),
            keypoints=torch.cat([t.keypoints for t in full]) if len(first.keypoints) else first.keypoints,
            crowd=torch.cat(crowds) if crowds else first.crowd,
            mask_ok=torch.cat([t.mask_ok for t in full]),
            area=torch.cat([t.area for t in full]),
        )

    def filter(self, keep: Tensor) -> Targets:
        """Return the instances where ``keep`` (N,) bool is true, in order; crowd regions stay.

        >>> Targets.of(torch.rand(2, 4), torch.tensor([0, 1])).filter(torch.tensor([False, True])).labels
        tensor([1])
        """
        if keep.dtype != torch.bool:
            raise TypeError(f"Targets.filter: keep must be bool, got {keep.dtype}")
        if keep.shape != self.labels.shape:
            raise ValueError(
                f"Targets.filter: keep must be {tuple(self.labels.shape)}, got {tuple(keep.shape)}"
            )
        flags = keep.numpy()
        if flags.all():
            return self
        if not flags.any():
            empty = Targets.empty()
            return empty if not len(self.crowd) else _replace(empty, crowd=self.crowd)
        rows = flags.nonzero()[0]

        def kept(values: Tensor) -> Tensor:
            return torch.from_numpy(values.numpy().take(rows, 0)) if values.shape[0] else values

        return _trusted(
            boxes=kept(self.boxes),
            labels=kept(self.labels),
            polygons=tuple(self.polygons[row] for row in rows) if self.polygons else (),
            rboxes=kept(self.rboxes),
            difficult=kept(self.difficult),
            keypoints=kept(self.keypoints),
            crowd=self.crowd,
            mask_ok=kept(self.mask_ok),
            area=kept(self.area),
        )

    def replace(self, **fields: object) -> Targets:
        """Return a copy with the named fields exchanged; checked like any other.

        >>> Targets.empty().replace(crowd=torch.zeros(1, 4)).crowd.shape
        torch.Size([1, 4])
        """
        return _replace(self, **fields)


def derived(targets: Targets, **fields: object) -> Targets:
    """Return ``targets`` with ``fields`` exchanged for others of the same shape and dtype, unchecked.

    For the transforms of this package: a sample makes dozens of label sets, and checking each would cost more
    than moving it.
    """
    return _trusted(**(targets.__dict__ | fields))


def _trusted(**fields: object) -> Targets:
    targets = object.__new__(Targets)
    targets.__dict__.update(fields)
    return targets


def _replace(targets: Targets, **fields: object) -> Targets:
    values = {name: getattr(targets, name) for name in Targets.__dataclass_fields__}
    unknown = sorted(set(fields) - set(values))
    if unknown:
        raise TypeError(f"Targets.replace: unknown fields {unknown}")
    return Targets(**(values | fields))


def _require(name: str, value: Tensor, dtype: torch.dtype, shapes: tuple[tuple[int, ...], ...]) -> None:
    if value.dtype != dtype:
        raise TypeError(f"Targets.{name} must be {dtype}, got {value.dtype}")
    if tuple(value.shape) not in shapes:
        wanted = " or ".join(str(shape) for shape in dict.fromkeys(shapes))
        raise ValueError(f"Targets.{name} must have shape {wanted}, got {tuple(value.shape)}")
