"""What a pose branch predicts beside boxes and classes: offsets, visibility and uncertainty of each keypoint.

Sources: Jocher et al., arXiv:2606.03748, section 3.4.2; Li et al., "Human Pose Regression with Residual
Log-likelihood Estimation", arXiv:2107.11291; widths inferred from the published sizes.
"""

from collections.abc import Iterable
from typing import cast

import torch
from torch import Tensor, nn

from lucid_models.backbone import Levels
from lucid_models.heads.dense import dense
from lucid_models.heads.records import BranchOutput
from lucid_models.heads.stems import keypoint_width, trunk


class KeypointStem(nn.Module):
    """One level: a trunk, an output of (x, y, visibility) per keypoint, and one of two uncertainties each."""

    def __init__(self, trunk: nn.Sequential, points: nn.Conv2d, sigma: nn.Conv2d | None) -> None:
        super().__init__()
        self.trunk = trunk
        self.points = points
        self.sigma = sigma

    def forward(self, level: Tensor) -> Tensor:
        """Return (B, 5K, h, w), point-major offsets and visibility, then uncertainties; (B, 3K, h, w) without."""
        features = self.trunk(level)
        points = cast(Tensor, self.points(features))
        return points if self.sigma is None else torch.cat((points, self.sigma(features)), 1)

    def deployable(self) -> "KeypointStem":
        """Return a view on the same parameters without the uncertainty."""
        return KeypointStem(self.trunk, self.points, None)


class KeypointStems(nn.Module):
    """One keypoint stem per level. The uncertainty serves the likelihood in training and is not deployed."""

    def __init__(self, stems: Iterable[KeypointStem], num_keypoints: int) -> None:
        super().__init__()
        self.stems = nn.ModuleList(stems)
        self.num_keypoints = num_keypoints

    def forward(self, output: BranchOutput, levels: Levels) -> BranchOutput:
        """Return ``output`` with its keypoint fields."""
        channels, count = dense(self.stems, levels), self.num_keypoints
        points = channels[..., : 3 * count].unflatten(-1, (count, 3))  # type: ignore[no-untyped-call]
        output = output._replace(keypoints=points[..., :2], keypoint_visibility=points[..., 2])
        if channels.shape[-1] == 3 * count:
            return output
        sigma = channels[..., 3 * count :].unflatten(-1, (count, 2))  # type: ignore[no-untyped-call]
        return output._replace(keypoint_sigma=sigma)

    def deployable(self) -> "KeypointStems":
        """Return a view on the same parameters without the uncertainty."""
        return KeypointStems(
            [cast(KeypointStem, stem).deployable() for stem in self.stems], self.num_keypoints
        )


def keypoint_stems(widths: tuple[int, int, int], num_keypoints: int) -> KeypointStems:
    """Return fresh `KeypointStems` for maps of ``widths``."""
    hidden = keypoint_width(widths[0], num_keypoints)
    stems = (
        KeypointStem(
            nn.Sequential(*trunk(c, hidden)),
            nn.Conv2d(hidden, 3 * num_keypoints, 1),
            nn.Conv2d(hidden, 2 * num_keypoints, 1),
        )
        for c in widths
    )
    return KeypointStems(stems, num_keypoints)
