"""Hue, saturation and value jitter in the closed form, plane by plane.

H' = (H + h) mod 1, S' = clamp(S (1 + s)), V' = clamp(V (1 + v)) on the hexcone model (Smith, SIGGRAPH 1978), back
to RGB by f = V' - V' S' w with one weight w in [0, 1] per channel. With t = 6 H' - 3 in [-3, 3] the weights are
2 - |t| for red, |t + 1| - 1 for green and |t - 1| - 1 for blue, clamped. Of the unshifted hue,
|t| = 1 + (V + R - G - B) / C and its sign is that of B - G, where C is max - min: no branch on which channel is
largest.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import cache

import numpy as np
import torch
from torch import Tensor

from lucid_data.policy import AugmentPolicy
from lucid_data.randomness import Stream

# strips keep the float planes in cache; shorter ones pay more per call than they save
_STRIP = 65536


@dataclass(frozen=True)
class ColorParams:
    """Hue shift in turns; relative gains of saturation and value."""

    hue: float = 0.0
    saturation: float = 0.0
    value: float = 0.0


def sample_color(stream: Stream, policy: AugmentPolicy) -> ColorParams:
    """Return gains drawn in the order hue, saturation, value; a zero range draws nothing."""
    h, s, v = policy.hue, policy.saturation, policy.value
    return ColorParams(stream.uniform(-h, h), stream.uniform(-s, s), stream.uniform(-v, v))


def jitter_color(image: Tensor, params: ColorParams, *, fused: bool = False) -> Tensor:
    """Return ``image`` (3, H, W) uint8 RGB with its colours moved, within one code of the float64 closed form.

    The result is contiguous. ``fused`` takes one compiled pass over the pixels, with the same bytes; it needs the extra
    ``numba``, and raises ImportError without it.

    >>> pixel = torch.tensor([51, 102, 153], dtype=torch.uint8).view(3, 1, 1)
    >>> jitter_color(pixel, ColorParams(0.01, 0.5, -0.2)).flatten()
    tensor([  0,  54, 122], dtype=torch.uint8)
    """
    image = image.contiguous()
    if params == ColorParams():
        return image
    if fused:
        return picture_kernel()(image, params.hue, params.saturation, params.value)
    flat = image.view(3, -1)
    out = torch.empty_like(flat)
    for start in range(0, flat.shape[1], _STRIP):
        _strip(flat[:, start : start + _STRIP], out[:, start : start + _STRIP], params)
    return out.view(image.shape)


def picture_kernel() -> Callable[[Tensor, float, float, float], Tensor]:
    """Return the compiled pass: of a contiguous image, hue, saturation and value.

    Raises ImportError, with its cause, where Numba cannot be used.
    """
    try:
        from lucid_data.kernels.numba_hsv import jitter_picture
    except Exception as error:  # a Numba that does not fit the NumPy beside it fails in many ways
        raise ImportError(
            f"fused colour needs Numba on a CPU ({error}); install lucid-data with its extra 'numba' or leave it out"
        ) from error
    return jitter_picture


def multiply_add(start: Tensor, factor: Tensor, other: Tensor, *, out: Tensor | None = None) -> Tensor:
    """Return start + factor * other in float32, rounded once on every processor and device.

    >>> tiny = torch.tensor([2.0**-13])
    >>> multiply_add(torch.tensor([-1.0]), 1 + tiny, 1 - tiny).item() == -(2.0**-26)
    True
    """
    if start.device.type == "cpu" and _rounds_once():
        return torch.addcmul(start, factor, other, out=out)
    exact = torch.addcmul(start.double(), factor.double(), other.double())
    return exact.float() if out is None else out.copy_(exact)


@cache
def _rounds_once() -> bool:
    """Return whether torch's own multiply-add is one instruction on this processor, from its vectors to their ends."""
    tiny = torch.full((67,), 2.0**-13)
    return bool((torch.addcmul(torch.full((67,), -1.0), 1 + tiny, 1 - tiny) == -(2.0**-26)).all())


def _strip(source: Tensor, out: Tensor, params: ColorParams) -> None:
    # no torch.where and no comparison: on a CPU they cost twenty arithmetic passes
    red, green, blue = source[0].float(), source[1].float(), source[2].float()
    top = torch.maximum(red, green)
    chroma = torch.minimum(red, green)
    top = torch.maximum(top, blue, out=top)
    chroma = torch.sub(top, torch.minimum(chroma, blue, out=chroma), out=chroma)
    turn = torch.add(top, red, out=red).sub_(green).sub_(blue)
    turn.div_(torch.clamp(chroma, min=1.0)).add_(1.0)  # codes are whole: a chroma that is not 0 is at least 1
    turn.copysign_(blue.sub_(green)).add_(6.0 * params.hue)
    turn.sub_(torch.mul(turn, 1.0 / 6.0, out=green).round_(), alpha=6.0)
    value = torch.mul(top, 1.0 + params.value, out=blue).clamp_(max=255.0)
    # P = V' S' = V' min(1, (1 + s) C / V)
    depth = chroma.mul_(1.0 + params.saturation).div_(top.clamp_(min=1.0)).clamp_(max=1.0).mul_(value)
    value.add_(0.5)  # conversion to uint8 truncates
    red_base = torch.sub(value, depth, alpha=2.0, out=top)
    base = value.add_(depth)
    weight = torch.abs(turn, out=green).clamp_(1.0, 2.0)
    _store(out[0], multiply_add(red_base, depth, weight, out=red_base))
    depth.neg_()
    weight = torch.add(turn, 1.0, out=green).abs_().clamp_(1.0, 2.0)
    _store(out[1], multiply_add(base, depth, weight, out=weight))
    weight = turn.sub_(1.0).abs_().clamp_(1.0, 2.0)
    _store(out[2], multiply_add(base, depth, weight, out=weight))


def _store(row: Tensor, codes: Tensor) -> None:
    # NumPy's float to uint8 conversion is three times as fast as torch's
    np.copyto(row.numpy(), codes.numpy(), casting="unsafe")
