"""From one map per level to one row per anchor point."""

from collections.abc import Iterable

import torch
from torch import Tensor, nn

from lucid_models.backbone import Levels


def dense(stems: Iterable[nn.Module], levels: Levels) -> Tensor:
    """Return (B, A, channels): each stem's map of its level, flattened row-major, levels in order."""
    # views in either memory format; the concatenation is the only copy
    flat = [stem(level).flatten(2).transpose(1, 2) for stem, level in zip(stems, levels, strict=True)]
    return torch.cat(flat, 1)
