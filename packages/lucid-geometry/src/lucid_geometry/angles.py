"""Differences of angles that name directions of lines, not of arrows."""

import math

import torch
from torch import Tensor

from lucid_geometry._checks import real


def angle_difference(a: Tensor, b: Tensor, period: float = math.pi) -> Tensor:
    """Return ``a - b`` wrapped into [-period / 2, period / 2), in radians.

    Shapes: a ``Real[Tensor, "*#shape"]``, b ``Real[Tensor, "*#shape"]`` -> ``Float[Tensor, "*shape"]``. The
    default period makes a rotated box and the same box turned by half a turn differ by 0; pi / 2 does so for
    the four descriptions of a square. A difference already in range comes back bit for bit, a tie goes down,
    and the gradient is that of ``a - b``. Raises ValueError for a period that is not positive and finite.

    >>> angle_difference(torch.tensor([3.0, 0.5]), torch.tensor([0.0, 0.25]))
    tensor([-0.1416,  0.2500])
    """
    if not (math.isfinite(period) and period > 0):
        raise ValueError(f"period must be positive and finite, got {period}")
    difference = real(a, "a") - real(b, "b")
    half = period / 2
    wrapped = difference - torch.floor((difference + half) / period).detach() * period
    # the remainder may land an ulp outside either end, and both ends are the same direction
    wrapped = torch.where(wrapped >= half, wrapped - period, wrapped).clamp(min=-half)
    return torch.where((difference >= -half) & (difference < half), difference, wrapped)
