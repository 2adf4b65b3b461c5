"""What stands in a COCO annotation, read leniently: ids, numbers and outlines."""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Any

from lucid_data.formats.rle import rle_rings


def id_key(value: object) -> str:
    """Return the text by which ids are compared: 7, 7.0 and "7" are one id.

    >>> {id_key(7), id_key(7.0), id_key("7")}
    {'7'}
    """
    return str(int(value)) if isinstance(value, float) and value.is_integer() else str(value)


def numbers(value: object, count: int, where: str) -> list[float]:
    """Return ``value`` as ``count`` floats (numbers written as text are read); ValueError names ``where``."""
    if not isinstance(value, list | tuple) or len(value) != count:
        raise ValueError(f"{where} must hold {count} numbers, got {value!r}")
    try:
        return [float(item) for item in value]
    except (TypeError, ValueError, OverflowError):
        raise ValueError(f"{where} must hold {count} numbers, got {value!r}") from None


def has_finite_box(annotation: Mapping[str, Any]) -> bool:
    """Tell whether the ``bbox`` of an annotation is four finite numbers."""
    return all(map(math.isfinite, numbers(annotation.get("bbox"), 4, "bbox")))


def finite_number(value: object, where: str) -> float:
    """Return ``value`` as a finite float (a number written as text is read); ValueError names ``where``."""
    (number,) = numbers([value], 1, where)
    if not math.isfinite(number):
        raise ValueError(f"{where} must be finite, got {value!r}")
    return number


def usable_rings(segmentation: object) -> list[list[float]]:
    """Return the polygon rings of a ``segmentation`` that have at least three whole, finite points.

    >>> usable_rings([[], [0, 0, 4, 0, 4, 4], [1, 1, 2]])
    [[0.0, 0.0, 4.0, 0.0, 4.0, 4.0]]
    """
    if not isinstance(segmentation, list):
        return []
    rings = []
    for ring in segmentation:
        if isinstance(ring, list) and len(ring) >= 6 and len(ring) % 2 == 0:
            try:
                values = [float(v) for v in ring]
            except (TypeError, ValueError, OverflowError):
                continue
            if all(map(math.isfinite, values)):
                rings.append(values)
    return rings


def outline_rings(segmentation: object, size: tuple[int, int]) -> list[list[float]]:
    """Return the rings of a polygon list or of a run-length mask, traced; [] when there is no usable one.

    >>> outline_rings({"size": [1, 2], "counts": [0, 2]}, (1, 2))
    [[0.0, 0.0, 2.0, 0.0, 2.0, 1.0, 0.0, 1.0]]
    """
    if not isinstance(segmentation, dict):
        return usable_rings(segmentation)
    try:
        return [ring.reshape(-1).tolist() for ring in rle_rings(segmentation, size)]
    except ValueError:
        return []
