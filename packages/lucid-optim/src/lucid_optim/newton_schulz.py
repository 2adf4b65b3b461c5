"""Approximate orthogonalisation of matrices by a quintic Newton-Schulz iteration, alone and in batches.

Source: Jordan et al., "Muon: An optimizer for hidden layers in neural networks", 2024; coefficients of that
write-up.
"""

import torch
from torch import Tensor

# p(x) = a x + b x^3 + c x^5 pushes every singular value in (0, 1] towards 1 and leaves it in about [0.68,
# 1.14]
_A, _B, _C = 3.4445, -4.7750, 2.0315


def newton_schulz(x: Tensor, steps: int = 5, eps: float = 1e-7) -> Tensor:
    """Return ``x`` (A, B) with its singular vectors kept and singular values near 1, in the dtype of ``x``.

    Computed in float32 or wider on the wide orientation. Singular values end in roughly [0.68, 1.14], not
    at 1; the zero matrix stays zero. ``x`` is not modified. Raises ValueError when ``x`` is not 2-D or
    ``steps`` < 1.

    >>> newton_schulz(torch.eye(2) * 50.0).diagonal().round(decimals=1)
    tensor([1.1000, 1.1000])
    """
    if x.dim() != 2:
        raise ValueError(
            f"newton_schulz needs a 2-D matrix, got shape {tuple(x.shape)}; flatten trailing axes first"
        )
    _check_steps(steps)
    y: Tensor = x.to(torch.promote_types(x.dtype, torch.float32))
    tall = y.shape[0] > y.shape[1]
    if tall:
        y = y.T
    y = y / (torch.linalg.vector_norm(y) + eps)
    for _ in range(steps):
        gram = y @ y.T
        y = _A * y + (_B * gram + _C * (gram @ gram)) @ y
    return (y.T if tall else y).to(x.dtype)


def newton_schulz_batch(x: Tensor, steps: int = 5, eps: float = 1e-7) -> Tensor:
    """Return `newton_schulz` of every matrix of a stack ``x`` (N, A, B), each with its own normalisation.

    The scaled additions are part of the batched matrix products, which changes rounding order: agreement
    with the one-matrix form is bounded (a few 1e-6 in float32), not bit for bit. Raises ValueError when
    ``x`` is not 3-D or ``steps`` < 1.

    >>> newton_schulz_batch(torch.eye(2).expand(3, 2, 2)).shape
    torch.Size([3, 2, 2])
    """
    if x.dim() != 3:
        raise ValueError(f"newton_schulz_batch needs a 3-D stack of matrices, got shape {tuple(x.shape)}")
    _check_steps(steps)
    y: Tensor = x.to(torch.promote_types(x.dtype, torch.float32))
    tall = y.shape[1] > y.shape[2]
    if tall:
        y = y.mT
    y = y / (torch.linalg.vector_norm(y, dim=(1, 2), keepdim=True) + eps)
    for _ in range(steps):
        gram = torch.bmm(y, y.mT)
        polynomial = torch.baddbmm(gram, gram, gram, beta=_B, alpha=_C)
        y = torch.baddbmm(y, polynomial, y, beta=_A)
    return (y.mT if tall else y).to(x.dtype)


def _check_steps(steps: int) -> None:
    if steps < 1:
        raise ValueError(f"steps must be at least 1, got {steps}")
