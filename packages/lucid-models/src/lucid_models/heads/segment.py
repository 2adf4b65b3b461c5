"""What a segment detector predicts beside boxes and classes: mask coefficients, prototypes, a semantic map.

A mask is the sum of 32 prototypes weighted by an anchor point's coefficients. Sources: Bolya et al.,
"YOLACT", arXiv:1904.02689; Jocher et al., arXiv:2606.03748, equations 7 to 9 and section 3.4.1; widths
inferred from the published sizes.
"""

from typing import cast

from torch import Tensor, nn

from lucid_models.backbone import Levels
from lucid_models.blocks import ConvUnit
from lucid_models.heads.dense import dense
from lucid_models.heads.records import BranchOutput
from lucid_models.heads.stems import class_prior_, coefficient_width, plain_stem

NUM_PROTOTYPES = 32
PROTOTYPE_STRIDE = 4
"""Canvas pixels per cell of a prototype."""


class CoefficientStems(nn.Module):
    """One mask coefficient stem per level."""

    def __init__(self, widths: tuple[int, int, int]) -> None:
        super().__init__()
        hidden = coefficient_width(widths[0])
        self.coeff = nn.ModuleList(plain_stem(c, hidden, NUM_PROTOTYPES) for c in widths)

    def forward(self, output: BranchOutput, levels: Levels) -> BranchOutput:
        """Return ``output`` with its coefficients (B, A, 32) in [-1, 1]."""
        return output._replace(coeff=dense(self.coeff, levels).tanh())

    def deployable(self) -> "CoefficientStems":
        """Return the module itself: all of it is deployed."""
        return self


class PrototypeFusion(nn.Module):
    """The finest map plus the coarser ones, projected to its width and enlarged to its size."""

    def __init__(self, widths: tuple[int, int, int]) -> None:
        super().__init__()
        finest = widths[0]
        self.project = nn.ModuleList(ConvUnit(c, finest, 1) for c in widths[1:])
        self.up = nn.ModuleList(nn.Upsample(scale_factor=scale, mode="nearest") for scale in (2, 4))

    def forward(self, levels: Levels) -> Tensor:
        """Return (B, widths[0], H / 8, W / 8)."""
        fused = levels[0]
        for project, up, level in zip(self.project, self.up, levels[1:], strict=True):
            fused = fused + up(project(level))
        return fused


class MaskNet(nn.Module):
    """Prototypes of both branches and, while training, a semantic map of the same fused features."""

    def __init__(
        self, fusion: PrototypeFusion, prototypes: nn.Sequential, semantic: nn.Conv2d | None
    ) -> None:
        super().__init__()
        self.fusion = fusion
        self.prototypes = prototypes
        self.semantic = semantic

    def forward(self, levels: Levels) -> tuple[Tensor, Tensor | None]:
        """Return prototypes (B, 32, H / 4, W / 4) and class logits (B, C, H / 8, W / 8).

        The logits are None in evaluation mode.
        """
        fused = self.fusion(levels)
        semantic = self.semantic(fused) if self.training and self.semantic is not None else None
        return cast(Tensor, self.prototypes(fused)), semantic

    def deployable(self) -> "MaskNet":
        """Return a view on the same parameters without the semantic map."""
        return MaskNet(self.fusion, self.prototypes, None)


def mask_net(widths: tuple[int, int, int], num_classes: int) -> MaskNet:
    """Return a fresh `MaskNet` for maps of ``widths``."""
    c = widths[0]
    return MaskNet(
        PrototypeFusion(widths),
        nn.Sequential(
            ConvUnit(c, c, 3),
            ConvUnit(c, c, 3),
            nn.ConvTranspose2d(c, c, 2, 2),
            ConvUnit(c, c, 3),
            ConvUnit(c, NUM_PROTOTYPES, 1, activation=False),
        ),
        class_prior_(nn.Conv2d(c, num_classes, 1)),
    )
