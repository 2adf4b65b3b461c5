"""The colour of a picture in one pass over its pixels on the CPU, for Numba (the extra ``numba``).

``jitter_color`` defines what is computed, and every step here rounds as its step does: no product is contracted with a
sum, and the three multiply-adds are taken in float64, where the product of two float32 numbers is exact. Compiled when
this module is imported, and kept in Numba's cache where there is a place for it.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Final

import numba
import numpy as np
import torch
from torch import Tensor

_f4, _f8 = np.float32, np.float64
_HALF, _ONE, _TWO, _SIX, _MOST = _f4(0.5), _f4(1.0), _f4(2.0), _f4(6.0), _f4(255.0)
_SIXTH = _f4(1.0 / 6.0)
# (3, P) codes, (3, P) out, three gains; pixels whose channels lie side by side would not be vectorised
_SIGNATURE: Final = "void(uint8[:, ::1], uint8[:, ::1], float32, float32, float32)"


def _color_pixels(source: Any, out: Any, hue: Any, saturation: Any, value: Any) -> None:
    reds, greens, blues = source[0], source[1], source[2]
    for at in range(source.shape[1]):
        red, green, blue = _f4(reds[at]), _f4(greens[at]), _f4(blues[at])
        # written out: minimum and maximum of NumPy mind NaN, which keeps the loop from being vectorised
        top = red if red > green else green
        top = top if top > blue else blue
        low = red if red < green else green
        chroma = top - (low if low < blue else blue)
        turn = (top + red - green - blue) / (chroma if chroma > _ONE else _ONE) + _ONE
        turn = (-turn if blue < green else turn) + hue
        turn = turn - _SIX * np.rint(turn * _SIXTH)
        bright = top * value
        bright = bright if bright < _MOST else _MOST
        part = chroma * saturation / (top if top > _ONE else _ONE)
        depth = (part if part < _ONE else _ONE) * bright
        bright = bright + _HALF
        deep, base = _f8(depth), _f8(bright + depth)
        out[0, at] = np.uint8(_f4(_f8(bright - _TWO * depth) + deep * _weight(turn)))
        out[1, at] = np.uint8(_f4(base - deep * _weight(turn + _ONE)))
        out[2, at] = np.uint8(_f4(base - deep * _weight(turn - _ONE)))


@numba.njit
def _weight(turn: Any) -> Any:
    far = np.abs(turn)
    far = far if far > _ONE else _ONE
    return _f8(far if far < _TWO else _TWO)


def _compiled() -> Callable[..., None]:
    try:
        return numba.njit(_SIGNATURE, cache=True, nogil=True)(_color_pixels)
    except Exception:
        # the cache has no place, no room or a damaged file; anything else that is wrong shows without one
        return numba.njit(_SIGNATURE, nogil=True)(_color_pixels)


_run = _compiled()


def jitter_picture(image: Tensor, hue: float, saturation: float, value: float) -> Tensor:
    """Return ``image`` (3, H, W) uint8, contiguous, with its colours moved, as ``jitter_color`` does for these gains.

    ``hue`` in turns, ``saturation`` and ``value`` relative; of three zeros it makes no exception.
    """
    codes = image.view(3, -1)
    out = torch.empty_like(codes)
    _run(codes.numpy(), out.numpy(), _f4(6.0 * hue), _f4(1.0 + saturation), _f4(1.0 + value))
    return out.view(image.shape)
