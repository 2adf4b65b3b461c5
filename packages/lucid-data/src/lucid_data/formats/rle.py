"""COCO run lengths: column-major counts, alternating background and object, beginning with background."""

from __future__ import annotations

from typing import Any

import numpy as np
import numpy.typing as npt

from lucid_data.formats.trace import Ring, trace_mask

Ints = npt.NDArray[np.int64]

_LONGEST = 1 << 40


def decode_rle(encoded: object, size: tuple[int, int] | None = None) -> npt.NDArray[np.bool_]:
    """Return the mask (H, W) of a COCO run-length dictionary, counts as a list or compressed.

    ``size`` (height, width) is what it must be stated for. Raises ValueError with the reason for a dictionary
    that is malformed, stated for another size, or whose counts do not cover the picture exactly.

    >>> decode_rle({"size": [4, 5], "counts": "92203"}).sum()
    np.int64(4)
    """
    if not isinstance(encoded, dict):
        raise ValueError(f"a {type(encoded).__name__} is no run-length dictionary")
    stated = encoded.get("size")
    if (
        not isinstance(stated, list | tuple)
        or len(stated) != 2
        or not all(_whole(v) and v > 0 for v in stated)
    ):
        raise ValueError("run lengths without a size")
    height, width = int(stated[0]), int(stated[1])
    if size is not None and (height, width) != size:
        swapped = " (height and width are swapped)" if (width, height) == size else ""
        raise ValueError(f"run lengths for {height} x {width}, the picture is {size[0]} x {size[1]}{swapped}")
    counts = _counts(encoded.get("counts"))
    if len(counts) and counts.min() < 0:
        raise ValueError("a run length is negative")
    if counts.sum() != height * width:
        raise ValueError(f"run lengths cover {counts.sum()} of {height * width} pixels")
    runs = np.repeat(np.arange(len(counts)) % 2 == 1, counts)
    return runs.reshape(width, height).T


def encode_rle(mask: npt.NDArray[np.bool_]) -> dict[str, Any]:
    """Return the uncompressed run-length dictionary of ``mask`` (H, W).

    >>> encode_rle(np.eye(2, dtype=bool))
    {'size': [2, 2], 'counts': [0, 1, 2, 1]}
    """
    flat = np.concatenate([[False], mask.T.reshape(-1)])
    ends = np.concatenate([np.flatnonzero(flat[1:] != flat[:-1]), [mask.size]])
    return {"size": list(mask.shape), "counts": np.diff(ends, prepend=0).tolist()}


def rle_rings(encoded: object, size: tuple[int, int] | None) -> list[Ring]:
    """Return the rings of a run-length mask; ValueError as ``decode_rle``."""
    return trace_mask(decode_rle(encoded, size))


def _counts(counts: object) -> Ints:
    if isinstance(counts, list):
        if not all(_whole(count) for count in counts):
            raise ValueError("run lengths must be whole numbers")
        if any(abs(count) > _LONGEST for count in counts):
            raise ValueError("a run length is longer than any picture")
        return np.array(counts, np.int64)
    if isinstance(counts, str):
        counts = counts.encode("utf-8", "replace")
    if not isinstance(counts, bytes):
        raise ValueError(f"run lengths need 'counts', got {type(counts).__name__}")
    return _uncompressed(np.frombuffer(counts, np.uint8).astype(np.int64) - 48)


def _uncompressed(codes: Ints) -> Ints:
    """Return the counts of 6-bit codes: 5 data bits, low first, and one that says another code follows."""
    if not len(codes):
        return codes
    ends = (codes & 0x20) == 0
    if codes.min() < 0 or codes.max() > 63 or not ends[-1]:
        raise ValueError("compressed run lengths hold a foreign character or end too soon")
    starts = np.concatenate([[0], np.flatnonzero(ends)[:-1] + 1])
    place = np.arange(len(codes)) - np.repeat(starts, np.diff(np.concatenate([starts, [len(codes)]])))
    if place.max() > 6:
        raise ValueError("a compressed run length is longer than any picture")
    values = np.add.reduceat((codes & 0x1F) << (5 * place), starts)
    last = np.flatnonzero(ends)
    values -= np.where(codes[last] & 0x10 != 0, np.int64(1) << (5 * (place[last] + 1)), 0)
    # from the fourth on, the difference to the count two places earlier
    values[1::2], values[2::2] = np.cumsum(values[1::2]), np.cumsum(values[2::2])
    return values


def _whole(value: object) -> bool:
    if isinstance(value, float):
        return value.is_integer()
    return isinstance(value, int) and not isinstance(value, bool)
