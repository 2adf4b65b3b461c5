"""Mirrors in the edge frame: x' = W - x, so pixels and labels move together exactly.

``across`` mirrors left to right, ``down`` top to bottom.
"""

from __future__ import annotations

from collections.abc import Sequence

import torch
from torch import Tensor

from lucid_data.targets import Targets
from lucid_data.transforms.moving import move_targets
from lucid_geometry import Affine


def flip_image(image: Tensor, *, across: bool = False, down: bool = False) -> Tensor:
    """Return image (3, H, W) mirrored; the picture itself where nothing is.

    >>> flip_image(torch.arange(3).view(1, 1, 3), across=True).flatten()
    tensor([2, 1, 0])
    """
    # an axis at a time: torch has a fast way for one
    image = image.flip(2) if across else image
    return image.flip(1) if down else image


def flip_targets(
    targets: Targets,
    size: tuple[int, int],
    *,
    across: bool = False,
    down: bool = False,
    pairs: Sequence[tuple[int, int]] = (),
) -> Targets:
    """Return the labels of an image of ``size`` (H, W) mirrored; across, ``pairs`` of keypoints change places.

    Raises ValueError for a pair that names a keypoint which does not exist.

    >>> t = Targets.of(torch.tensor([[0.0, 0.0, 3.0, 2.0]]), torch.tensor([0]))
    >>> flip_targets(t, (2, 10), across=True).boxes.tolist()
    [[7.0, 0.0, 10.0, 2.0]]
    """
    height, width = size
    if across:
        targets = move_targets(targets, Affine.from_rows([[-1.0, 0.0, float(width)], [0.0, 1.0, 0.0]]))
        if pairs and len(targets.keypoints):
            targets = targets.replace(keypoints=_swap(targets.keypoints, pairs))
    if down:
        targets = move_targets(targets, Affine.from_rows([[1.0, 0.0, 0.0], [0.0, -1.0, float(height)]]))
    return targets


def _swap(keypoints: Tensor, pairs: Sequence[tuple[int, int]]) -> Tensor:
    count = keypoints.shape[1]
    order = list(range(count))
    for left, right in pairs:
        if not (0 <= left < count and 0 <= right < count):
            raise ValueError(f"flip pair ({left}, {right}) is outside the {count} keypoints")
        order[left], order[right] = order[right], order[left]
    return keypoints[:, torch.tensor(order)]
