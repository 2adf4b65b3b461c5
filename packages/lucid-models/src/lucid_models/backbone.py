"""The backbone: from an image to three feature maps at strides 8, 16 and 32.

Source: Jocher et al., arXiv:2606.03748, Fig. S1; arXiv:2602.14582, Fig. 1.
"""

from torch import Tensor, nn

from lucid_models.blocks import AttentionStage, ChainedStage, ConvUnit, CrossStage, PyramidPooling, plain_unit
from lucid_models.registry import SizeSpec

Levels = tuple[Tensor, Tensor, Tensor]


class Backbone(nn.Module):
    """Eleven stages; ``widths`` holds the channels of the three maps it returns.

    >>> from lucid_models.registry import SIZES
    >>> Backbone(SIZES["n"]).widths
    (128, 128, 256)
    """

    def __init__(self, size: SizeSpec) -> None:
        super().__init__()
        c, repeats = size.channels, size.repeats
        early = CrossStage if size.deep_early_stages else plain_unit
        self.widths = (c(512), c(512), c(1024))
        self.stem = ConvUnit(3, c(64), 3, 2)
        self.down_p2 = ConvUnit(c(64), c(128), 3, 2)
        self.stage_p2 = ChainedStage(c(128), c(256), repeats, 0.25, early)
        self.down_p3 = ConvUnit(c(256), c(256), 3, 2)
        self.stage_p3 = ChainedStage(c(256), c(512), repeats, 0.25, early)
        self.down_p4 = ConvUnit(c(512), c(512), 3, 2)
        self.stage_p4 = ChainedStage(c(512), c(512), repeats, 0.5, CrossStage)
        self.down_p5 = ConvUnit(c(512), c(1024), 3, 2)
        self.stage_p5 = ChainedStage(c(1024), c(1024), repeats, 0.5, CrossStage)
        self.sppf = PyramidPooling(c(1024))
        self.attn_p5 = AttentionStage(c(1024), repeats)

    def forward(self, images: Tensor) -> Levels:
        """Return the maps (B, widths[i], H / s, W / s) for s = 8, 16, 32 of images (B, 3, H, W)."""
        p2 = self.stage_p2(self.down_p2(self.stem(images)))
        p3 = self.stage_p3(self.down_p3(p2))
        p4 = self.stage_p4(self.down_p4(p3))
        p5 = self.attn_p5(self.sppf(self.stage_p5(self.down_p5(p4))))
        return p3, p4, p5
