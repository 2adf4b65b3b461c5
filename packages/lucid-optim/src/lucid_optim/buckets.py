"""Which matrices of a group are orthogonalised together, and which tensors may be batched at all."""

from collections.abc import Sequence
from itertools import pairwise

import torch
from torch import Tensor
from torch.nn import Parameter


def matrix_shape(tensor: Tensor) -> tuple[int, int]:
    """Return the (rows, columns) a tensor of two or more axes has as a matrix: first axis by all the others.

    >>> matrix_shape(torch.zeros(8, 3, 3, 3))
    (8, 27)
    """
    rows = tensor.shape[0]
    return rows, tensor.numel() // rows if rows else 0


def same_shape_buckets(matrices: Sequence[Tensor]) -> list[list[int]]:
    """Return index lists of tensors that agree in shape, dtype and device, ordered by their first member.

    >>> same_shape_buckets([torch.zeros(2, 3), torch.zeros(4, 3), torch.ones(2, 3)])
    [[0, 2], [1]]
    """
    buckets: dict[tuple[torch.Size, torch.dtype, torch.device], list[int]] = {}
    for index, matrix in enumerate(matrices):
        buckets.setdefault((matrix.shape, matrix.dtype, matrix.device), []).append(index)
    return list(buckets.values())


def same_kind_buckets(tensors: Sequence[Tensor]) -> list[list[int]]:
    """Return index lists of tensors that agree in dtype and device, ordered by their first member.

    >>> same_kind_buckets([torch.zeros(2), torch.zeros(4).double(), torch.ones(3)])
    [[0, 2], [1]]
    """
    buckets: dict[tuple[torch.dtype, torch.device], list[int]] = {}
    for index, tensor in enumerate(tensors):
        buckets.setdefault((tensor.dtype, tensor.device), []).append(index)
    return list(buckets.values())


def independent(tensors: Sequence[Tensor]) -> bool:
    """Return whether every tensor is a plain strided one and no two occupy the same bytes.

    Address ranges are compared, not storage objects, so gradients that are disjoint views of one flat
    buffer count as independent and two wrappers of one allocation do not. A tensor subclass is opaque and
    counts as dependent.

    >>> flat = torch.zeros(4)
    >>> independent([flat[:2], flat[2:]]), independent([flat, flat[2:]])
    (True, False)
    """
    if any(type(t) not in (Tensor, Parameter) or t.layout != torch.strided for t in tensors):
        return False
    # ranges on different devices never meet: the device comes first in the sort
    ranges = sorted((str(t.device), t.data_ptr(), _end(t)) for t in tensors if t.numel())
    return all(a[0] != b[0] or a[2] <= b[1] for a, b in pairwise(ranges))


def _end(tensor: Tensor) -> int:
    if tensor.is_contiguous():
        last = tensor.numel()
    else:
        last = 1 + sum(
            (size - 1) * stride for size, stride in zip(tensor.shape, tensor.stride(), strict=True)
        )
    return tensor.data_ptr() + last * tensor.element_size()
