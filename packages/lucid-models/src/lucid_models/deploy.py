"""Deployed views of a detector: one branch only, and the copy with BatchNorm folded into convolutions."""

import copy
from typing import Literal, cast

import torch
from torch import Tensor, nn

from lucid_models.backbone import Backbone
from lucid_models.blocks import ConvUnit
from lucid_models.detector import Detector, check_images
from lucid_models.heads import Branch, BranchOutput, MaskNet
from lucid_models.neck import Neck

BranchName = Literal["o2o", "o2m"]


class Deployed(nn.Module):
    """Backbone, neck, one head branch and, for masks, the prototypes: what inference needs."""

    def __init__(self, backbone: Backbone, neck: Neck, branch: Branch, masks: MaskNet | None = None) -> None:
        super().__init__()
        self.backbone = backbone
        self.neck = neck
        self.branch = branch
        self.masks = masks

    def forward(self, images: Tensor) -> BranchOutput:
        """Return the branch's dense output for images (B, 3, H, W); refusals as `Detector.forward`."""
        check_images(images)
        levels = self.neck(self.backbone(images))
        output = cast(BranchOutput, self.branch(levels))
        return output if self.masks is None else output._replace(prototypes=self.masks(levels)[0])


def deployed(detector: Detector, branch: BranchName = "o2o") -> Deployed:
    """Return a view of one branch that shares the detector's parameters and modules.

    It holds nothing that training alone reads: not the other branch, no semantic map, no uncertainty.

    >>> from lucid_models import build_detector
    >>> detector = build_detector(num_classes=2)
    >>> deployed(detector).backbone is detector.backbone
    True
    """
    head = detector.head
    chosen: Branch = getattr(head, branch)
    masks = None if head.masks is None else head.masks.deployable()
    return Deployed(detector.backbone, detector.neck, chosen.deployable(), masks)


def fuse(detector: Detector, branch: BranchName = "o2o") -> Deployed:
    """Return an independent evaluation copy of one branch with every BatchNorm folded into its convolution.

    The copy needs no gradients and agrees with the detector's evaluation output to 1e-4 in float32. Folding
    uses the running statistics: weights are scaled by gamma / sqrt(var + eps), the bias is beta less
    gamma mean / sqrt(var + eps).

    >>> from lucid_models import build_detector
    >>> folded = fuse(build_detector(num_classes=2))
    >>> any(isinstance(module, torch.nn.BatchNorm2d) for module in folded.modules())
    False
    """
    folded = copy.deepcopy(deployed(detector, branch)).eval().requires_grad_(False)
    for module in folded.modules():
        if isinstance(module, ConvUnit):
            _fold(module)
    return folded


def _fold(unit: ConvUnit) -> None:
    norm, conv = unit.norm, unit.conv
    if not isinstance(norm, nn.BatchNorm2d) or norm.running_var is None or norm.running_mean is None:
        raise ValueError(f"cannot fold {norm}: it is no BatchNorm2d with running statistics")
    scale = norm.weight / torch.sqrt(norm.running_var + norm.eps)
    conv.weight.copy_(conv.weight * scale[:, None, None, None])
    conv.bias = nn.Parameter(norm.bias - norm.running_mean * scale, requires_grad=False)
    unit.norm = nn.Identity()
    if isinstance(unit.activation, nn.SiLU):
        unit.activation.inplace = True  # no gradients here, so nothing has to be kept
