"""The neck: a top-down then bottom-up feature pyramid over the backbone's three maps.

Source: Liu et al., "Path Aggregation Network", arXiv:1803.01534; arXiv:2606.03748, Fig. S1 and Table 2 (the
attention in its last stage).
"""

import torch
from torch import nn

from lucid_models.backbone import Levels
from lucid_models.blocks import ChainedStage, ConvUnit, CrossStage, attention_unit
from lucid_models.registry import SizeSpec


class Neck(nn.Module):
    """Six stages; ``widths`` holds the channels of the three maps it returns.

    >>> from lucid_models.registry import SIZES
    >>> Neck(SIZES["n"], (128, 128, 256)).widths
    (64, 128, 256)
    """

    def __init__(self, size: SizeSpec, widths: tuple[int, int, int]) -> None:
        super().__init__()
        p3, p4, p5 = widths
        n3, n4, n5 = self.widths = (size.channels(256), size.channels(512), size.channels(1024))
        self.up = nn.Upsample(scale_factor=2, mode="nearest")
        self.td_p4 = ChainedStage(p5 + p4, n4, size.repeats, 0.5, CrossStage)
        self.td_p3 = ChainedStage(n4 + p3, n3, size.repeats, 0.5, CrossStage)
        self.down_n3 = ConvUnit(n3, n3, 3, 2)
        self.bu_p4 = ChainedStage(n3 + n4, n4, size.repeats, 0.5, CrossStage)
        self.down_n4 = ConvUnit(n4, n4, 3, 2)
        self.bu_p5 = ChainedStage(n4 + p5, n5, 1, 0.5, attention_unit)

    def forward(self, levels: Levels) -> Levels:
        """Return maps (B, widths[i], H / s, W / s) of the backbone's maps at the same strides 8, 16, 32."""
        p3, p4, p5 = levels
        t4 = self.td_p4(torch.cat((self.up(p5), p4), 1))
        n3 = self.td_p3(torch.cat((self.up(t4), p3), 1))
        n4 = self.bu_p4(torch.cat((self.down_n3(n3), t4), 1))
        n5 = self.bu_p5(torch.cat((self.down_n4(n4), p5), 1))
        return n3, n4, n5
