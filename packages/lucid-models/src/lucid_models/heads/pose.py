"""What a pose branch predicts beside boxes and classes: offsets, visibility and uncertainty of each keypoint.

Sources: Jocher et al., arXiv:2606.03748, section 3.4.2; Li et al., "Human Pose Regression with Residual
Log-likelihood Estimation", arXiv:2107.11291; widths inferred from the published sizes.
"""

from torch import Tensor, nn

from lucid_models.backbone import Levels
from lucid_models.heads.dense import dense
from lucid_models.heads.records import BranchOutput
from lucid_models.heads.stems import keypoint_width, trunk


class KeypointStems(nn.Module):
    """Per level a shared trunk, an output of (x, y, visibility) and one of two uncertainties per keypoint.

    Channels are point-major. The uncertainty serves the likelihood in training and is not deployed.
    """

    def __init__(self, trunk: nn.ModuleList, points: nn.ModuleList, sigma: nn.ModuleList | None) -> None:
        super().__init__()
        self.trunk = trunk
        self.points = points
        self.sigma = sigma

    def forward(self, output: BranchOutput, levels: Levels) -> BranchOutput:
        """Return ``output`` with its keypoint fields."""
        p3, p4, p5 = (stem(level) for stem, level in zip(self.trunk, levels, strict=True))
        features = (p3, p4, p5)
        points = _per_point(dense(self.points, features), 3)
        output = output._replace(keypoints=points[..., :2], keypoint_visibility=points[..., 2])
        if self.sigma is None:
            return output
        sigma = _per_point(dense(self.sigma, features), 2)
        return output._replace(keypoint_sigma=sigma)

    def deployable(self) -> "KeypointStems":
        """Return a view on the same parameters without the uncertainty."""
        return KeypointStems(self.trunk, self.points, None)


def keypoint_stems(widths: tuple[int, int, int], num_keypoints: int) -> KeypointStems:
    """Return fresh `KeypointStems` for maps of ``widths``."""
    hidden = keypoint_width(widths[0], num_keypoints)
    return KeypointStems(
        nn.ModuleList(nn.Sequential(*trunk(c, hidden)) for c in widths),
        nn.ModuleList(nn.Conv2d(hidden, 3 * num_keypoints, 1) for _ in widths),
        nn.ModuleList(nn.Conv2d(hidden, 2 * num_keypoints, 1) for _ in widths),
    )


def _per_point(channels: Tensor, each: int) -> Tensor:
    """Return (B, A, K, each) of point-major channels (B, A, K * each)."""
    return channels.view(*channels.shape[:2], -1, each)
