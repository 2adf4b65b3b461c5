"""The colour of a batch in one pass over its pixels, for Triton (the extra ``triton``).

``jitter_batch`` defines what is computed, and every step here rounds as its step does: no product is contracted with a
sum, quotients are correctly rounded, and the three multiply-adds are taken in float64, where the product is exact.
Pixels are read wherever their channels lie and written plane by plane.
"""

from __future__ import annotations

from typing import Any

import torch
import triton
import triton.language as tl
from torch import Tensor

_BLOCK = 1024


@triton.jit  # type: ignore[untyped-decorator]
def _jitter(
    source: Any,
    out: Any,
    gains: Any,
    pixels: Any,
    width: Any,
    by_image: Any,
    by_channel: Any,
    by_row: Any,
    by_column: Any,
    BLOCK: tl.constexpr,
) -> None:
    image = tl.program_id(1).to(tl.int64)
    at = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    inside = at < pixels
    pixel = source + image * by_image + (at // width) * by_row + (at % width) * by_column
    red_code = tl.load(pixel, inside, 0)
    green_code = tl.load(pixel + by_channel, inside, 0)
    blue_code = tl.load(pixel + 2 * by_channel, inside, 0)
    h = tl.load(gains + 3 * image)
    s = tl.load(gains + 3 * image + 1)
    v = tl.load(gains + 3 * image + 2)
    hue = (6.0 * h).to(tl.float32)
    saturation = (1.0 + s).to(tl.float32)
    brightness = (1.0 + v).to(tl.float32)

    red, green, blue = red_code.to(tl.float32), green_code.to(tl.float32), blue_code.to(tl.float32)
    top = tl.maximum(tl.maximum(red, green), blue)
    chroma = top - tl.minimum(tl.minimum(red, green), blue)
    turn = tl.math.div_rn(top + red - green - blue, tl.maximum(chroma, 1.0)) + 1.0
    turn = tl.where(blue < green, -turn, turn) + hue
    # the nearest whole number, halves to even: beyond 2^23 a float32 has no fraction
    sixth = turn * 0.16666667163372039794921875
    turn = turn - 6.0 * ((sixth + 12582912.0) - 12582912.0)
    value = tl.minimum(top * brightness, 255.0)
    depth = tl.minimum(tl.math.div_rn(chroma * saturation, tl.maximum(top, 1.0)), 1.0) * value
    value = value + 0.5
    base = (value + depth).to(tl.float64)
    deep = depth.to(tl.float64)
    red_base = (value - 2.0 * depth).to(tl.float64)
    new_red = (red_base + deep * _weight(turn)).to(tl.float32)
    new_green = (base - deep * _weight(turn + 1.0)).to(tl.float32)
    new_blue = (base - deep * _weight(turn - 1.0)).to(tl.float32)

    still = (h == 0.0) & (s == 0.0) & (v == 0.0)
    place = out + image * 3 * pixels + at
    tl.store(place, tl.where(still, red_code, _code(new_red)), inside)
    tl.store(place + pixels, tl.where(still, green_code, _code(new_green)), inside)
    tl.store(place + 2 * pixels, tl.where(still, blue_code, _code(new_blue)), inside)


@triton.jit  # type: ignore[untyped-decorator]
def _weight(turn: Any) -> Any:
    return tl.minimum(tl.maximum(tl.abs(turn), 1.0), 2.0).to(tl.float64)


@triton.jit  # type: ignore[untyped-decorator]
def _code(value: Any) -> Any:
    return value.to(tl.int32).to(tl.uint8)


def jitter_pixels(images: Tensor, gains: Tensor) -> Tensor:
    """Return what ``jitter_batch`` returns for ``images`` (B, 3, H, W) uint8 in any strides, in one kernel."""
    count, _, height, width = images.shape
    out = torch.empty(images.shape, dtype=torch.uint8, device=images.device)
    if not out.numel():
        return out
    grid = (triton.cdiv(height * width, _BLOCK), count)
    exact = gains.to(images.device).contiguous()
    by_image, by_channel, by_row, by_column = images.stride()
    _jitter[grid](
        images,
        out,
        exact,
        height * width,
        width,
        by_image,
        by_channel,
        by_row,
        by_column,
        BLOCK=_BLOCK,
        enable_fp_fusion=False,
    )
    return out
