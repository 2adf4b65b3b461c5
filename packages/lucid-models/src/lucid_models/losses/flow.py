"""A density over keypoint residuals: six affine coupling layers on the plane.

Sources: Dinh et al., "Density estimation using Real NVP", arXiv:1605.08803, section 4; Li et al., "Human Pose
Regression with Residual Log-likelihood Estimation", arXiv:2107.11291, section 4.
"""

import math
from typing import cast

import torch
from torch import Tensor, nn

LAYERS = 6
HIDDEN = 64


class Coupling(nn.Module):
    """One conditioner: from the coordinate that stays to the log-scale and shift of the one that moves.

    The log-scale is a learned scalar times a hyperbolic tangent: unbounded, six of them would overflow on a
    far residual.
    """

    def __init__(self) -> None:
        super().__init__()
        self.net = nn.Sequential(
            nn.Linear(1, HIDDEN),
            nn.LeakyReLU(0.01),
            nn.Linear(HIDDEN, HIDDEN),
            nn.LeakyReLU(0.01),
            nn.Linear(HIDDEN, 2),
        )
        self.scale = nn.Parameter(torch.ones(()))

    def forward(self, fixed: Tensor) -> tuple[Tensor, Tensor]:
        """Return log-scale and shift, both (...), for the other coordinate ``fixed`` (...)."""
        raw, shift = self.net(fixed[..., None]).unbind(-1)
        return self.scale * torch.tanh(raw), shift


class ResidualFlow(nn.Module):
    """The density of normalised keypoint residuals; layer i moves coordinate i mod 2.

    >>> flow = ResidualFlow()
    >>> sum(p.numel() for p in flow.parameters())
    26514
    """

    def __init__(self) -> None:
        super().__init__()
        self.layers = nn.ModuleList(Coupling() for _ in range(LAYERS))

    def forward(self, x: Tensor) -> Tensor:
        """Return log densities (...) of residuals ``x`` (..., 2)."""
        z, log_det = self.to_noise(x)
        return log_det - z.square().sum(-1) / 2 - math.log(2 * math.pi)

    def to_noise(self, x: Tensor) -> tuple[Tensor, Tensor]:
        """Return the noise (..., 2) that generates ``x`` (..., 2), and log |det dz/dx| (...)."""
        pair = list(x.unbind(-1))
        log_det = torch.zeros_like(pair[0])
        for i in reversed(range(LAYERS)):
            log_scale, shift = cast(tuple[Tensor, Tensor], self.layers[i](pair[1 - i % 2]))
            pair[i % 2] = (pair[i % 2] - shift) * torch.exp(-log_scale)
            log_det = log_det - log_scale
        return torch.stack(pair, -1), log_det

    def generate(self, z: Tensor) -> Tensor:
        """Return the residuals (..., 2) of noise ``z`` (..., 2): the inverse of `to_noise`."""
        pair = list(z.unbind(-1))
        for i in range(LAYERS):
            log_scale, shift = cast(tuple[Tensor, Tensor], self.layers[i](pair[1 - i % 2]))
            pair[i % 2] = pair[i % 2] * torch.exp(log_scale) + shift
        return torch.stack(pair, -1)
