"""Mirrors in the edge frame: x' = W - x, so pixels and labels move together exactly."""

from __future__ import annotations

from collections.abc import Sequence

import torch
from torch import Tensor

from lucid_data.targets import Targets
from lucid_data.transforms.moving import move_targets
from lucid_geometry import Affine


def flip_horizontal(
    image: Tensor, targets: Targets, pairs: Sequence[tuple[int, int]] = ()
) -> tuple[Tensor, Targets]:
    """Return image (3, H, W) and labels mirrored left to right; ``pairs`` of keypoints change places.

    Raises ValueError for a pair that names a keypoint which does not exist.

    >>> t = Targets.of(torch.tensor([[0.0, 0.0, 3.0, 2.0]]), torch.tensor([0]))
    >>> flip_horizontal(torch.zeros(3, 2, 10, dtype=torch.uint8), t)[1].boxes.tolist()
    [[7.0, 0.0, 10.0, 2.0]]
    """
    moved = move_targets(targets, Affine.from_rows([[-1.0, 0.0, float(image.shape[2])], [0.0, 1.0, 0.0]]))
    if pairs and len(moved.keypoints):
        moved = moved.replace(keypoints=_swap(moved.keypoints, pairs))
    return image.flip(2), moved


def flip_vertical(image: Tensor, targets: Targets) -> tuple[Tensor, Targets]:
    """Return image (3, H, W) and labels mirrored top to bottom."""
    moved = move_targets(targets, Affine.from_rows([[1.0, 0.0, 0.0], [0.0, -1.0, float(image.shape[1])]]))
    return image.flip(1), moved


def _swap(keypoints: Tensor, pairs: Sequence[tuple[int, int]]) -> Tensor:
    count = keypoints.shape[1]
    order = list(range(count))
    for left, right in pairs:
        if not (0 <= left < count and 0 <= right < count):
            raise ValueError(f"flip pair ({left}, {right}) is outside the {count} keypoints")
        order[left], order[right] = order[right], order[left]
    return keypoints[:, torch.tensor(order)]
