"""Products of stacks of symmetric matrices, whole or of only the blocks on and below the diagonal.

B blocks a side leave (B + 1) / (2 B) of the arithmetic of a product. Where one block is enough, a matrix is
the plain tensor and its products are single calls.
"""

from dataclasses import dataclass

import torch
from torch import Tensor


@dataclass(frozen=True)
class Blocks:
    """A stack (N, s, s) of symmetric matrices as rows of blocks up to the diagonal."""

    lower: list[list[Tensor]]

    def at(self, i: int, j: int) -> Tensor:
        """Return block (i, j); those above the diagonal are transposed views."""
        return self.lower[i][j] if j <= i else self.lower[j][i].mT


Symmetric = Tensor | Blocks
# a stack (N, s, L), whole or as blocks (N, s_i, L) of its rows
Rows = Tensor | list[Tensor]


def gram(y: Rows) -> Symmetric:
    """Return ``y @ y.T``.

    >>> gram([torch.ones(1, 1, 3), torch.ones(1, 1, 3)]).at(0, 1)
    tensor([[[3.]]])
    """
    if isinstance(y, Tensor):
        return torch.bmm(y, y.mT)
    return Blocks([[torch.bmm(row, other.mT) for other in y[: i + 1]] for i, row in enumerate(y)])


def add_identity_(x: Symmetric, factor: float) -> None:
    """Add ``factor`` to the diagonal in place."""
    for block in [x] if isinstance(x, Tensor) else [row[-1] for row in x.lower]:
        block.diagonal(dim1=1, dim2=2).add_(factor)


def product(x: Symmetric, y: Symmetric) -> Symmetric:
    """Return ``x @ y`` of matrices that commute, as polynomials in one matrix do, so that it is symmetric."""
    if isinstance(x, Tensor) or isinstance(y, Tensor):
        return torch.bmm(_whole(x), _whole(y))
    size = range(len(x.lower))
    return Blocks([[_sum([(x.at(i, m), y.at(m, j)) for m in size]) for j in range(i + 1)] for i in size])


def quadratic(x: Symmetric, linear: float, square: float) -> Symmetric:
    """Return ``linear * x + square * x @ x``, the scaled sum as part of the products."""
    if isinstance(x, Tensor):
        return torch.baddbmm(x, x, x, beta=linear, alpha=square)
    size = range(len(x.lower))
    return Blocks(
        [
            [
                _sum([(x.at(i, m), x.at(m, j)) for m in size], base, linear, square)
                for j, base in enumerate(row)
            ]
            for i, row in enumerate(x.lower)
        ]
    )


def multiply(x: Symmetric, y: Rows, own: float = 0.0) -> Rows:
    """Return ``own * y + x @ y``, in blocks as ``y`` is."""
    if isinstance(x, Tensor) or isinstance(y, Tensor):
        return _sum([(_whole(x), _whole(y))], _whole(y) if own else None, own)
    return [
        _sum([(x.at(i, m), y[m]) for m in range(len(y))], y[i] if own else None, own) for i in range(len(y))
    ]


def _whole(x: Symmetric | Rows) -> Tensor:
    assert isinstance(x, Tensor), "whole matrices and blocks do not mix"
    return x


def _sum(
    pairs: list[tuple[Tensor, Tensor]], base: Tensor | None = None, beta: float = 1.0, alpha: float = 1.0
) -> Tensor:
    """Return ``beta * base + alpha * sum(a @ b)`` in fresh memory; without a base ``alpha`` is 1."""
    (a, b), *rest = pairs
    total = torch.bmm(a, b) if base is None else torch.baddbmm(base, a, b, beta=beta, alpha=alpha)
    for a, b in rest:
        total.baddbmm_(a, b, alpha=alpha)
    return total
