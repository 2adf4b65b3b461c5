"""Approximate orthogonalisation of matrices by a quintic Newton-Schulz iteration, alone and in stacks.

Sources: Jordan et al., "Muon: An optimizer for hidden layers in neural networks", 2024; the other
coefficients name theirs in `PRESETS`.
"""

from contextlib import nullcontext
from typing import Any, Literal

import torch
from torch import Tensor

from lucid_optim import symmetric
from lucid_optim.presets import PRESETS, Quintic

Route = Literal["direct", "staged", "gram"]

# steps that share one Gram matrix; three amplify its rounding by at most 3.4^3, which is what the direct
# form does to the rounding of its own products
_STEPS_PER_GRAM = {"direct": 1, "staged": 3, "gram": None}


def newton_schulz(x: Tensor, steps: int = 5, eps: float = 1e-7, *, preset: str = "quintic") -> Tensor:
    """Return ``x`` (A, B) with its singular vectors kept and singular values near 1, in the dtype of ``x``.

    Computed in float32 or wider, whatever autocast says, on the wide orientation. With the default
    ``preset`` singular values end in roughly [0.68, 1.14], not at 1; the zero matrix stays zero. ``x`` is
    not modified. Raises ValueError when ``x`` is not 2-D, ``steps`` < 1 or ``preset`` is not in `PRESETS`,
    TypeError when ``x`` is not real floating point.

    >>> newton_schulz(torch.eye(2) * 50.0).diagonal().round(decimals=1)
    tensor([1.1000, 1.1000])
    """
    if x.dim() != 2:
        raise ValueError(
            f"newton_schulz needs a 2-D matrix, got shape {tuple(x.shape)}; flatten trailing axes first"
        )
    rows = _rows(steps, preset)
    y: Tensor = x.to(_iteration_dtype(x))
    tall = y.shape[0] > y.shape[1]
    if tall:
        y = y.T
    with _no_autocast(x):
        y = y / (torch.linalg.vector_norm(y) + eps)
        for a, b, c in rows:
            gram = y @ y.T
            y = a * y + (b * gram + c * (gram @ gram)) @ y
    return (y.T if tall else y).to(x.dtype)


def newton_schulz_batch(
    x: Tensor, steps: int = 5, eps: float = 1e-7, *, preset: str = "quintic", route: Route = "direct"
) -> Tensor:
    """Return `newton_schulz` of every matrix of a stack ``x`` (N, A, B), each with its own normalisation.

    The scaled additions are part of the batched matrix products, and of symmetric ones with sides of 256 or
    more a host makes only one triangle of blocks. That changes rounding order: agreement with the
    one-matrix form is bounded, not bit for bit. With s the smaller side
    and r the ratio of the sides, five steps take these multiples of 2 s^3 operations, with errors in the
    spectral norm on any spectrum (float32 / float64, sides up to 256):

    * ``direct``: 10 r + 5, error 5e-5 / 1e-11: every step forms the Gram matrix of its iterate;
    * ``staged``: 4 r + 14, error 5e-5 / 1e-11: three steps share a Gram matrix and are applied at once;
    * ``gram``: 2 r + 17, error 2e-2 / 1e-10: all share the first, whose rounding hides small singular values.

    The errors are those of the default ``preset``. ``polar_express`` starts steeper: 2e-3 / 1e-11 direct and
    staged, 2e-1 / 1e-9 by ``gram``.

    Raises ValueError when ``x`` is not 3-D, ``steps`` < 1, or ``preset`` or ``route`` is unknown, TypeError
    when ``x`` is not real floating point.

    >>> newton_schulz_batch(torch.eye(2).expand(3, 2, 2)).shape
    torch.Size([3, 2, 2])
    """
    if x.dim() != 3:
        raise ValueError(f"newton_schulz_batch needs a 3-D stack of matrices, got shape {tuple(x.shape)}")
    if route not in _STEPS_PER_GRAM:
        raise ValueError(f"route must be one of {sorted(_STEPS_PER_GRAM)}, got {route!r}")
    rows = _rows(steps, preset)
    y: Tensor = x.to(_iteration_dtype(x))
    tall = y.shape[1] > y.shape[2]
    if tall:
        y = y.mT
    stride = _STEPS_PER_GRAM[route] or len(rows)
    with _no_autocast(x):
        y = y / (torch.linalg.vector_norm(y, dim=(1, 2), keepdim=True) + eps)
        count = _blocks(x)
        iterate: symmetric.Rows = list(y.tensor_split(count, dim=1)) if count > 1 else y
        for start in range(0, len(rows), stride):
            iterate = _stage(iterate, rows[start : start + stride])
    y = iterate if isinstance(iterate, Tensor) else torch.cat(iterate, dim=1)
    return (y.mT if tall else y).to(x.dtype)


def _stage(y: symmetric.Rows, rows: list[Quintic]) -> symmetric.Rows:
    """Return the steps of ``rows`` applied to a stack, all by polynomials in its Gram matrix."""
    gram = symmetric.gram(y)
    if len(rows) == 1:
        a, b, c = rows[0]
        return symmetric.multiply(symmetric.quadratic(gram, b, c), y, own=a)
    total: symmetric.Symmetric | None = None
    for index, (a, b, c) in enumerate(rows):
        factor = symmetric.quadratic(gram, b, c)
        symmetric.add_identity_(factor, a)
        total = factor if total is None else symmetric.product(total, factor)
        if index + 1 < len(rows):
            # the iterate is factor @ y, so its Gram matrix is factor @ gram @ factor
            gram = symmetric.product(symmetric.product(factor, gram), factor)
    assert total is not None
    return symmetric.multiply(total, y)


def _blocks(x: Tensor) -> int:
    """Return how many blocks a side symmetric products are made in; one wherever more were not measured."""
    small = min(x.shape[1:])
    return small // 128 if x.device.type == "cpu" and small >= 256 else 1


def _rows(steps: int, preset: str) -> list[Quintic]:
    if steps < 1:
        raise ValueError(f"steps must be at least 1, got {steps}")
    if preset not in PRESETS:
        raise ValueError(f"preset must be one of {sorted(PRESETS)}, got {preset!r}")
    return PRESETS[preset].steps(steps)


def _iteration_dtype(x: Tensor) -> torch.dtype:
    if not x.is_floating_point():
        raise TypeError(f"only real floating-point matrices are orthogonalised, got {x.dtype}")
    dtype: torch.dtype = torch.promote_types(x.dtype, torch.float32)
    return dtype


def _no_autocast(x: Tensor) -> Any:
    """Keep autocast from running the products in half precision; costs nothing where it is off."""
    kind = x.device.type
    return torch.autocast(kind, enabled=False) if torch.is_autocast_enabled(kind) else nullcontext()
