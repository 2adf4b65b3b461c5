"""Colour on the training device: the worker's arithmetic for a whole batch, with the gains as tensors.

Workers draw the gains at their usual place and send the picture as it is; colour is pointwise, so it may follow the
flips. The bytes are those of the worker: every step is the same float32 step, and the three multiply-adds round once,
on a device in float64, where the product of two float32 numbers is exact. No tensor is divided by a number: a device
turns that into multiplication by its reciprocal, which is off by one code now and then.
"""

from __future__ import annotations

import os

import torch
from torch import Tensor

from lucid_data.transforms.color import ColorParams, jitter_color, multiply_add


def jitter_batch(images: Tensor, gains: Tensor, *, fused: bool = False) -> Tensor:
    """Return ``images`` (B, 3, H, W) uint8 RGB with hue shift and relative gains of saturation and value applied.

    ``gains``: (B, 3) float64, hue in turns, saturation, value, as ``Batch.color`` carries them; a row of zeros leaves
    its picture untouched. Works on the device of ``images`` and does not wait for it. ``fused`` takes one kernel for
    it, with the same bytes: on a CUDA device (or in Triton's interpreter) with the extra ``triton``, on a CPU with the
    extra ``numba``.

    Raises ValueError for other shapes and for ``fused`` on another device, TypeError for other dtypes, ImportError for
    ``fused`` without the extra.

    >>> pixel = torch.tensor([51, 102, 153], dtype=torch.uint8).view(1, 3, 1, 1)
    >>> jitter_batch(pixel, torch.tensor([[0.01, 0.5, -0.2]], dtype=torch.float64)).flatten()
    tensor([  0,  54, 122], dtype=torch.uint8)
    """
    if images.dim() != 4 or images.shape[1] != 3 or gains.shape != (images.shape[0], 3):
        raise ValueError(
            f"need (B, 3, H, W) images and (B, 3) gains, got {tuple(images.shape)}, {tuple(gains.shape)}"
        )
    if images.dtype != torch.uint8 or gains.dtype != torch.float64:
        raise TypeError(f"need uint8 images and float64 gains, got {images.dtype} and {gains.dtype}")
    if fused:
        return _one_pass(images, gains)
    exact = gains.to(images.device)
    images = images.contiguous()  # workers leave channels side by side: the device takes them apart
    # the sums are float64, as Python's are, and become float32 once
    hue = (6.0 * exact[:, 0]).float().view(-1, 1, 1)
    saturation = (1.0 + exact[:, 1]).float().view(-1, 1, 1)
    brightness = (1.0 + exact[:, 2]).float().view(-1, 1, 1)
    red, green, blue = images.float().unbind(1)
    top = torch.maximum(torch.maximum(red, green), blue)
    chroma = top - torch.minimum(torch.minimum(red, green), blue)
    turn = (top + red - green - blue) / chroma.clamp(min=1.0) + 1.0
    turn = turn.copysign(blue - green) + hue
    turn = turn - 6.0 * (turn * (1.0 / 6.0)).round()
    value = (top * brightness).clamp(max=255.0)
    depth = (chroma * saturation / top.clamp(min=1.0)).clamp(max=1.0) * value
    value = value + 0.5
    base = value + depth
    planes = (
        multiply_add(value - 2.0 * depth, depth, turn.abs().clamp(1.0, 2.0)),
        multiply_add(base, -depth, (turn + 1.0).abs().clamp(1.0, 2.0)),
        multiply_add(base, -depth, (turn - 1.0).abs().clamp(1.0, 2.0)),
    )
    moved = torch.stack(planes, 1).to(torch.uint8)
    untouched = (exact == 0).all(1).view(-1, 1, 1, 1)
    return torch.where(untouched, images, moved)


def _one_pass(images: Tensor, gains: Tensor) -> Tensor:
    """Return ``jitter_batch`` by the kernel of the device."""
    if images.is_cuda or os.environ.get("TRITON_INTERPRET") == "1":
        try:
            from lucid_data.kernels.triton_hsv import jitter_pixels
        except ImportError as error:
            raise ImportError(
                f"fused colour needs Triton on this device ({error}); install lucid-data with its extra 'triton' or "
                "leave it out"
            ) from error
        return jitter_pixels(images, gains)
    if images.device.type != "cpu":
        raise ValueError(f"fused=True needs images on a CUDA device or a CPU; these are on {images.device}")
    moved = torch.empty(images.shape, dtype=torch.uint8)
    for out, image, (hue, saturation, value) in zip(moved, images, gains.tolist(), strict=True):
        out.copy_(jitter_color(image, ColorParams(hue, saturation, value), fused=True))
    return moved
