"""Trains on canvases of several sizes, one for each step."""

import math
import random
from dataclasses import replace

import torch
from torch import Tensor
from torch.nn.functional import interpolate

from lucid_data import Batch

STRIDE = 32


def step_size(size: int, spread: float, seed: int, epoch: int, step: int) -> int:
    """Return the canvas side of one step: a multiple of 32 within ``spread`` of ``size``, by its counters alone.

    Example:
        >>> step_size(64, 0.0, 0, 0, 0), step_size(64, 0.5, 0, 0, 0) in (32, 64, 96)
        (64, True)
    """
    return random.Random(f"scale {seed} {epoch} {step}").choice(sizes(size, spread))


def sizes(size: int, spread: float) -> range:
    """Return the sides that are multiples of 32 within ``spread`` of ``size``, a multiple of 32 itself.

    Example:
        >>> list(sizes(320, 0.15))
        [288, 320, 352]
    """
    low = max(STRIDE, STRIDE * math.ceil(round(size * (1 - spread), 6) / STRIDE))
    return range(low, STRIDE * math.floor(round(size * (1 + spread), 6) / STRIDE) + 1, STRIDE)


def resized(batch: Batch, size: int) -> Batch:
    """Return a batch on a canvas of ``size`` pixels: images bilinear with antialiasing, labels scaled with them."""
    before = batch.images.shape[-1]
    if size == before:
        return batch
    factor = size / before
    images = interpolate(
        batch.images.float(), (size, size), mode="bilinear", antialias=size < before, align_corners=False
    )
    scale = torch.tensor([factor] * 4 + [1.0], device=batch.boxes.device)
    keypoints = batch.keypoints
    if keypoints is not None:
        keypoints = torch.cat([keypoints[..., :2] * factor, keypoints[..., 2:]], dim=-1)
    return replace(
        batch,
        images=images.round_().clamp_(0, 255).to(torch.uint8),
        boxes=batch.boxes * factor,
        rboxes=None if batch.rboxes is None else batch.rboxes * scale,
        keypoints=keypoints,
        masks=None if batch.masks is None else _masks(batch.masks, size // 4),
    )


def _masks(masks: Tensor, side: int) -> Tensor:
    if not masks.shape[1]:
        return masks.new_zeros((*masks.shape[:2], side, side))
    return interpolate(masks.float(), (side, side), mode="nearest-exact") > 0.5
