"""Losses of keypoints: likelihood of the residuals, OKS, visibility.

B images, P padded positives, K keypoints. Points that do not count are replaced before any arithmetic, so a
non-finite coordinate of theirs changes neither value nor gradient.
"""

import math
from collections.abc import Sequence
from typing import NamedTuple

import torch
from torch import Tensor
from torch.nn.functional import softplus

from lucid_models.losses.flow import ResidualFlow

COCO_SIGMAS = (
    *(0.026, 0.025, 0.025, 0.035, 0.035),  # nose, eyes, ears
    *(0.079, 0.079, 0.072, 0.072, 0.062, 0.062),  # shoulders, elbows, wrists
    *(0.107, 0.107, 0.087, 0.087, 0.089, 0.089),  # hips, knees, ankles
)
"""Per-point constants of COCO's 17 person keypoints. Source: Lin et al., arXiv:1405.0312, and its evaluation."""
_OTHER_SIGMA = 0.072
_MIN_SIGMA = 1e-6


class KeypointResiduals(NamedTuple):
    """Keypoint residuals in the frame of the assigned box; 0 where ``counted`` is false."""

    x: Tensor
    """(..., K, 2) float, residual over sigma."""
    log_sigma: Tensor
    """(..., K) float, summed over both axes."""
    counted: Tensor
    """(..., K) bool."""


def oks_sigmas(num_keypoints: int, sigmas: Sequence[float] | None = None) -> Tensor:
    """Return (K,) float32 OKS constants: those given, COCO's for 17 points, 0.072 for any other number.

    Raises ValueError when the given ones are not K positive numbers.

    >>> oks_sigmas(2)
    tensor([0.0720, 0.0720])
    """
    if sigmas is None:
        known = num_keypoints == len(COCO_SIGMAS)
        sigmas = COCO_SIGMAS if known else (_OTHER_SIGMA,) * num_keypoints
    if len(sigmas) != num_keypoints:
        raise ValueError(f"{len(sigmas)} sigmas for {num_keypoints} keypoints; give one per keypoint")
    if not all(math.isfinite(sigma) and sigma > 0 for sigma in sigmas):
        raise ValueError(f"sigmas must be positive and finite, got {tuple(sigmas)}")
    return torch.tensor(sigmas, dtype=torch.float32)


def keypoint_residuals(
    points: Tensor, sigma: Tensor, targets: Tensor, boxes: Tensor, counted: Tensor
) -> KeypointResiduals:
    """Return the `KeypointResiduals` of predicted ``points`` (..., K, 2) against ``targets`` (..., K, 2), pixels.

    ``sigma`` (..., K, 2) is the raw uncertainty, ``boxes`` (..., 4) the assigned ground truth whose sides (at
    least 1 px) are the unit: sigma is bounded by 1, so the residual must be of that order. ``counted``
    (..., K) says which points count.

    >>> points, targets = torch.tensor([[5.0, 5.0]]), torch.tensor([[6.0, 3.0]])
    >>> box, counted = torch.tensor([0.0, 0.0, 10.0, 10.0]), torch.tensor([True])
    >>> keypoint_residuals(points, torch.zeros(1, 2), targets, box, counted).x
    tensor([[ 0.2000, -0.4000]])
    """
    count = counted[..., None]
    sides = (boxes[..., 2:] - boxes[..., :2]).clamp(min=1)[..., None, :]
    apart = torch.where(count, targets, 0.0) - torch.where(count, points, 0.0)
    scale = torch.where(count, sigma, 0.0).sigmoid().clamp(min=_MIN_SIGMA)
    return KeypointResiduals(apart / sides / scale, scale.log().sum(-1), counted)


def keypoint_likelihood_loss(
    parts: KeypointResiduals, log_density: Tensor | None, log_sigma_count: int = 1
) -> Tensor:
    """Return the mean over counted points of the negative log-likelihood, 0-d; it may be negative.

    A unit Laplace density of the residual, times the learned one whose ``log_density`` (..., K) is given: RLE;
    without it the plain Laplace likelihood. ``log_sigma_count`` is how often log sigma enters: once in Li et
    al., arXiv:2107.11291, equation 8, twice in Jocher et al., arXiv:2606.03748, equation 11. Without a
    counted point it is exactly 0, attached.

    >>> parts = KeypointResiduals(torch.tensor([[0.2, -0.4]]), torch.tensor([0.25]).log(), torch.tensor([True]))
    >>> keypoint_likelihood_loss(parts, None)
    tensor(0.6000)
    """
    value = parts.x.abs().sum(-1) + 2 * math.log(2) + log_sigma_count * parts.log_sigma
    if log_density is not None:
        value = value - log_density
    return _mean(value, parts.counted)


def densities(flow: ResidualFlow, branches: Sequence[KeypointResiduals], paired: bool) -> list[Tensor]:
    """Return the log density (..., K) of each branch's residuals, in one call of the flow when ``paired``.

    One call halves the launches; sums of weight gradients then run in another order, so they agree to
    rounding and not to the bit.

    >>> parts = KeypointResiduals(torch.zeros(1, 3, 2), torch.zeros(1, 3), torch.ones(1, 3) > 0)
    >>> [density.shape for density in densities(ResidualFlow(), [parts, parts], paired=True)]
    [torch.Size([1, 3]), torch.Size([1, 3])]
    """
    if not paired:
        return [flow(parts.x) for parts in branches]
    joint = flow(torch.cat([parts.x.flatten(0, -2) for parts in branches]))
    split = joint.split([parts.counted.numel() for parts in branches])
    return [density.view_as(parts.counted) for density, parts in zip(split, branches, strict=True)]


def oks_loss(points: Tensor, targets: Tensor, boxes: Tensor, counted: Tensor, sigmas: Tensor) -> Tensor:
    """Return the mean of 1 - OKS over instances with a counted point, 0-d.

    ``points`` and ``targets`` (..., K, 2) pixels, ``boxes`` (..., 4) ground truth whose area (at least 1 px^2)
    sets the scale, ``counted`` (..., K) bool, ``sigmas`` (K,) from `oks_sigmas`. Without such an instance it
    is exactly 0, attached. Raises ValueError when the sigmas are not one per point. Source: the metric of Lin
    et al., arXiv:1405.0312.

    >>> points, box = torch.tensor([[3.0, 0.0], [0.0, 4.0]]), torch.tensor([0.0, 0.0, 10.0, 10.0])
    >>> oks_loss(points, torch.zeros(2, 2), box, torch.tensor([True, True]), torch.tensor([0.1, 0.2]))
    tensor(0.5344)
    """
    if sigmas.shape != points.shape[-2:-1]:
        raise ValueError(f"{len(sigmas)} sigmas for {points.shape[-2]} keypoints; give one per keypoint")
    count = counted[..., None]
    apart = torch.where(count, points, 0.0) - torch.where(count, targets, 0.0)
    area = (boxes[..., 2:] - boxes[..., :2]).clamp(min=0).prod(-1).clamp(min=1)[..., None]
    similarity = torch.exp(-apart.square().sum(-1) / (2 * area * (2 * sigmas).square()))
    per_instance = counted.sum(-1)
    oks = torch.where(counted, similarity, 0.0).sum(-1) / per_instance.clamp(min=1)
    return _mean(1 - oks, per_instance > 0)


def visibility_loss(logits: Tensor, labelled: Tensor, instances: Tensor) -> Tensor:
    """Return the mean cross-entropy of visibility ``logits`` (..., K) over all points of ``instances``, 0-d.

    ``labelled`` (..., K) bool is the target, ``instances`` (...) bool says which rows count: those with a
    labelled point, since an instance without any was not annotated. Without one it is exactly 0, attached.

    >>> visibility_loss(torch.zeros(1, 2), torch.tensor([[True, False]]), torch.tensor([True]))
    tensor(0.6931)
    """
    safe = torch.where(instances[..., None], logits, 0.0)
    value = softplus(torch.where(labelled, -safe, safe))
    return _mean(value, instances[..., None].expand_as(value))


def _mean(values: Tensor, counted: Tensor) -> Tensor:
    return torch.where(counted, values, 0.0).sum() / counted.sum().clamp(min=1)
