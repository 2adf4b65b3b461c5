"""The detection head: two branches of equal shape and separate parameters over the neck's three maps.

The one-to-many branch is supervised densely and leaves the network after training; the one-to-one branch is
deployed and needs no suppression. Source: Wang et al., "YOLOv10", arXiv:2405.14458; widths inferred from the
sizes published in arXiv:2606.03748. The box output is four raw distances, without a distribution.
"""

from collections.abc import Iterable

import torch
from torch import Tensor, nn

from lucid_models.backbone import Levels
from lucid_models.heads.records import BranchOutput, HeadOutput
from lucid_models.heads.stems import box_stem, box_width, class_stem, class_width


class Branch(nn.Module):
    """One branch: a box stem and a class stem per level."""

    def __init__(self, widths: tuple[int, int, int], num_classes: int) -> None:
        super().__init__()
        finest = widths[0]
        self.box = nn.ModuleList(box_stem(c, box_width(finest)) for c in widths)
        self.cls = nn.ModuleList(class_stem(c, class_width(finest, num_classes), num_classes) for c in widths)

    def forward(self, levels: Levels) -> BranchOutput:
        """Return the branch's dense output over all A anchor points."""
        return BranchOutput(cls=dense(self.cls, levels), box=dense(self.box, levels))


class Head(nn.Module):
    """Both branches, built in the order one-to-one, one-to-many."""

    def __init__(self, widths: tuple[int, int, int], num_classes: int) -> None:
        super().__init__()
        self.o2o = Branch(widths, num_classes)
        self.o2m = Branch(widths, num_classes)

    def forward(self, levels: Levels) -> HeadOutput:
        """Return both branches' dense outputs; gradients of both reach the levels."""
        return HeadOutput(o2m=self.o2m(levels), o2o=self.o2o(levels))


def dense(stems: Iterable[nn.Module], levels: Levels) -> Tensor:
    """Return (B, A, channels): each stem's map of its level, flattened row-major, levels in order."""
    # views in either memory format; the concatenation is the only copy
    flat = [stem(level).flatten(2).transpose(1, 2) for stem, level in zip(stems, levels, strict=True)]
    return torch.cat(flat, 1)
