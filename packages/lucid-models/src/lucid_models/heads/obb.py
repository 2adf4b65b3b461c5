"""What an oriented branch predicts beside boxes and classes: one raw angle per anchor point.

Source: Jocher et al., arXiv:2606.03748, equation 13 (the angle is the raw output); width inferred from the
published sizes.
"""

from torch import nn

from lucid_models.backbone import Levels
from lucid_models.heads.dense import dense
from lucid_models.heads.records import BranchOutput
from lucid_models.heads.stems import angle_width, plain_stem


class AngleStems(nn.Module):
    """One angle stem per level."""

    def __init__(self, widths: tuple[int, int, int]) -> None:
        super().__init__()
        self.angle = nn.ModuleList(plain_stem(c, angle_width(widths[0]), 1) for c in widths)

    def forward(self, output: BranchOutput, levels: Levels) -> BranchOutput:
        """Return ``output`` with its angles (B, A, 1)."""
        return output._replace(angle=dense(self.angle, levels))

    def deployable(self) -> "AngleStems":
        """Return the module itself: all of it is deployed."""
        return self
