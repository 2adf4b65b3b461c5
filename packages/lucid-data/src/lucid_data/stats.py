"""What one split holds, counted without reading a picture."""

from __future__ import annotations

from dataclasses import dataclass, field

import numpy as np

from lucid_data.catalog import Catalog

_BAR = 40


@dataclass(frozen=True)
class Stats:
    """What one split holds; ``str()`` of it is a table with bars.

    Attributes:
        images, background: pictures, and those without instances.
        instances: kept ones; ``per_class`` by name.
        small, medium, large: by box area, split at 32^2 and 96^2 px.
        difficult, crowd: flagged instances and ignore regions.
        dropped: what the reader left out or put right, by reason.
        box_sides: instances by the square root of their box area, in octaves: ``{"16-32": 7, ...}`` px.
        image_sizes: pictures by ``"width x height"``, the commonest first.
        no_area, outside, repeated: boxes without area, wholly outside their picture, and stated more than once.
        no_outline: instances without an outline, None when outlines were not read.
    """

    images: int
    background: int
    instances: int
    per_class: dict[str, int]
    small: int
    medium: int
    large: int
    difficult: int
    crowd: int
    dropped: dict[str, int]
    box_sides: dict[str, int] = field(default_factory=dict)
    image_sizes: dict[str, int] = field(default_factory=dict)
    no_area: int = 0
    outside: int = 0
    repeated: int = 0
    no_outline: int | None = None

    def __str__(self) -> str:
        lines = [f"{self.images} pictures ({self.background} without objects), {self.instances} objects"]
        lines.append(f"small {self.small}, medium {self.medium}, large {self.large}")
        lines.append(f"difficult {self.difficult}, ignore regions {self.crowd}")
        odd = {"without area": self.no_area, "outside": self.outside, "repeated": self.repeated}
        lines += [f"{name} {count}" for name, count in odd.items() if count]
        if self.no_outline is not None:
            lines.append(f"without outline {self.no_outline}")
        lines += ["", "classes", *_bars(self.per_class)]
        lines += ["", "box sides, px", *_bars(self.box_sides)]
        lines += ["", "pictures", *_bars(self.image_sizes, most=12)]
        if self.dropped:
            lines += ["", "left out or put right", *(f"  {n} {reason}" for reason, n in self.dropped.items())]
        return "\n".join(lines)


def _bars(counts: dict[str, int], most: int | None = None) -> list[str]:
    shown = dict(list(counts.items())[:most])
    width = max(map(len, shown), default=0)
    longest = max([1, *shown.values()])
    lines = [f"  {name:>{width}} {n:>8} {'#' * round(_BAR * n / longest)}" for name, n in shown.items()]
    if more := len(counts) - len(shown):
        lines.append(f"  and {more} more with {sum(counts.values()) - sum(shown.values())} together")
    return lines


def stats(catalog: Catalog) -> Stats:
    """Return the counts of an open split; no picture is read.

    >>> from lucid_data import open_catalog
    >>> counts = stats(open_catalog("scenes"))
    >>> counts.images, counts.instances == sum(counts.per_class.values())
    (4, True)
    """
    records = catalog.records
    keep = ~catalog.too_small()
    image = np.repeat(np.arange(len(records)), np.diff(records.starts))
    owner = image[keep]
    boxes = records.boxes[keep]
    area = (boxes[:, 2] - boxes[:, 0]) * (boxes[:, 3] - boxes[:, 1])
    per_class = np.bincount(records.labels[keep], minlength=catalog.num_classes).tolist()
    size = records.sizes[image][:, [1, 0]]
    whole = records.boxes
    sides = whole[:, 2:] - whole[:, :2]
    rows = np.column_stack([image, records.labels, whole.astype(np.float64)])
    return Stats(
        images=len(records),
        background=len(records) - len(np.unique(owner)),
        instances=int(keep.sum()),
        per_class=dict(zip(catalog.class_names, per_class, strict=True)),
        small=int((area < 32**2).sum()),
        medium=int(((area >= 32**2) & (area < 96**2)).sum()),
        large=int((area >= 96**2).sum()),
        difficult=int(records.difficult[keep].sum()),
        crowd=len(records.crowd),
        dropped=catalog.dropped,
        box_sides=_octaves(np.sqrt(np.maximum(area, 1e-9))),
        image_sizes=_image_sizes(catalog),
        no_area=int((sides <= 0).any(1).sum()),
        outside=int(((whole[:, :2] >= size) | (whole[:, 2:] <= 0)).any(1).sum()),
        repeated=len(rows) - len(np.unique(rows, axis=0)),
        no_outline=int((~records.mask_ok[keep]).sum()) if len(records.instance_rings) else None,
    )


def _octaves(sides: np.ndarray[tuple[int], np.dtype[np.floating]]) -> dict[str, int]:
    if not len(sides):
        return {}
    octave = np.floor(np.log2(sides)).astype(np.int64).clip(min=0)
    counts = np.bincount(octave)
    first = int(octave.min())
    return {f"{2**k if k else 0}-{2 ** (k + 1)}": int(counts[k]) for k in range(first, len(counts))}


def _image_sizes(catalog: Catalog) -> dict[str, int]:
    sizes, counts = np.unique(catalog.sizes, axis=0, return_counts=True)
    order = np.argsort(-counts, kind="stable")
    return {f"{w} x {h}": n for (h, w), n in zip(sizes[order].tolist(), counts[order].tolist(), strict=True)}
