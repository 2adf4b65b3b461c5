"""The head: two branches of equal shape and separate parameters over the neck's three maps.

The one-to-many branch is supervised densely and leaves the network after training; the one-to-one branch is
deployed and needs no suppression. Source: Wang et al., "YOLOv10", arXiv:2405.14458; widths inferred from the
sizes published in arXiv:2606.03748. The box output is four raw distances, without a distribution.
"""

from typing import cast

from torch import nn

from lucid_models.backbone import Levels
from lucid_models.heads.dense import dense
from lucid_models.heads.obb import AngleStems
from lucid_models.heads.pose import KeypointStems, keypoint_stems
from lucid_models.heads.records import BranchOutput, HeadOutput
from lucid_models.heads.segment import CoefficientStems, mask_net
from lucid_models.heads.stems import box_stem, box_width, class_stem, class_width
from lucid_models.registry import TaskSpec

ExtraStems = CoefficientStems | AngleStems | KeypointStems
"""What a branch predicts beside boxes and classes: modules that complete a `BranchOutput`."""


class Branch(nn.Module):
    """One branch: a box stem and a class stem per level, and what else its task predicts."""

    def __init__(self, box: nn.ModuleList, cls: nn.ModuleList, extra: ExtraStems | None = None) -> None:
        super().__init__()
        self.box = box
        self.cls = cls
        self.extra = extra

    def forward(self, levels: Levels) -> BranchOutput:
        """Return the branch's dense output over all A anchor points."""
        output = BranchOutput(cls=dense(self.cls, levels), box=dense(self.box, levels))
        return output if self.extra is None else cast(BranchOutput, self.extra(output, levels))

    def deployable(self) -> "Branch":
        """Return a view on the same parameters without the outputs that training alone reads."""
        return Branch(self.box, self.cls, None if self.extra is None else self.extra.deployable())


class Head(nn.Module):
    """Both branches, built in the order one-to-one, one-to-many, and the masks they share.

    What only some tasks have is built after what all have, so that one seed gives every task the same boxes
    and classes.
    """

    def __init__(
        self, task: TaskSpec, widths: tuple[int, int, int], num_classes: int, num_keypoints: int | None
    ) -> None:
        super().__init__()
        self.o2o = shared_branch(widths, num_classes)
        self.o2m = shared_branch(widths, num_classes)
        for branch in (self.o2o, self.o2m):
            branch.extra = extra_stems(task, widths, num_keypoints)
        self.masks = mask_net(widths, num_classes) if task.masks else None

    def forward(self, levels: Levels) -> HeadOutput:
        """Return both branches' dense outputs; gradients of both reach the levels."""
        o2m, o2o = self.o2m(levels), self.o2o(levels)
        if self.masks is None:
            return HeadOutput(o2m, o2o)
        prototypes, semantic = self.masks(levels)
        return HeadOutput(o2m._replace(prototypes=prototypes), o2o._replace(prototypes=prototypes), semantic)


def shared_branch(widths: tuple[int, int, int], num_classes: int) -> Branch:
    """Return a branch with the stems that every task has."""
    finest = widths[0]
    return Branch(
        nn.ModuleList(box_stem(c, box_width(finest)) for c in widths),
        nn.ModuleList(class_stem(c, class_width(finest, num_classes), num_classes) for c in widths),
    )


def extra_stems(task: TaskSpec, widths: tuple[int, int, int], num_keypoints: int | None) -> ExtraStems | None:
    """Return the stems of the outputs that the task's row names, or None."""
    if task.masks:
        return CoefficientStems(widths)
    if task.rotated:
        return AngleStems(widths)
    return None if num_keypoints is None else keypoint_stems(widths, num_keypoints)
