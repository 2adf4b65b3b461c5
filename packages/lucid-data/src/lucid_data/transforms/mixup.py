"""Two samples blended into one (Zhang et al., arXiv 1710.09412)."""

from __future__ import annotations

import torch
from torch import Tensor

from lucid_data.targets import Targets


def mixup_image(first: Tensor, second: Tensor, weight: float) -> Tensor:
    """Return round(weight first + (1 - weight) second) of two (3, S, S) uint8 images of one shape.

    >>> mixup_image(torch.tensor([[[100]]], dtype=torch.uint8), torch.tensor([[[50]]], dtype=torch.uint8), 0.5)
    tensor([[[75]]], dtype=torch.uint8)
    """
    if first.shape != second.shape:
        raise ValueError(
            f"mixup needs images of one shape, got {tuple(first.shape)} and {tuple(second.shape)}"
        )
    return torch.lerp(second.float(), first.float(), weight).round_().to(torch.uint8)


def mixup_targets(first: Targets, second: Targets) -> Targets:
    """Return the instances of both at full weight."""
    return Targets.concat([first, second])
