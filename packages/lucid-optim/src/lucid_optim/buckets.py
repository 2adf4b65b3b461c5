"""Which matrices of a group are orthogonalised together, and which tensors may be batched at all."""

from collections.abc import Hashable, Iterable, Sequence
from dataclasses import dataclass
from functools import lru_cache
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


@dataclass(frozen=True)
class MatrixKind:
    """What decides which matrices share a stack: the full shape, the dtypes, the device."""

    shape: tuple[int, ...]
    parameter_dtype: torch.dtype
    dtype: torch.dtype
    device: torch.device

    @property
    def sides(self) -> tuple[int, int]:
        """The smaller and the larger side of the matrix."""
        rows = self.shape[0]
        columns = 1
        for size in self.shape[1:]:
            columns *= size
        return min(rows, columns), max(rows, columns)


@dataclass(frozen=True)
class Stack:
    """Matrices orthogonalised together, by index.

    ``padded`` is None for matrices of one shape, else the (smaller side, width) of a stack of wide matrices
    with zero columns at the end: those change neither norm nor Gram matrix and stay exactly zero.
    """

    members: tuple[int, ...]
    padded: tuple[int, int] | None = None


@dataclass(frozen=True)
class PaddingLimit:
    """Padding pays up to smaller side ``side``, for stacks of at most ``stretch`` times their elements."""

    side: int
    stretch: float


# on a device launches are dear: up to the bytes of the members' parameters and gradients. On a host only
# matrices whose products are shorter than the calls that make them gain
PADDING = {"cuda": PaddingLimit(256, 2.0), "cpu": PaddingLimit(16, 1.25)}


def stacks(kinds: Sequence[MatrixKind]) -> list[Stack]:
    """Return the stacks of matrices of these kinds, every matrix in one, in the order of their first members.

    Matrices of one shape, dtype and device share a stack. Where `PADDING` allows it, those with one smaller
    side do, tall ones transposed.

    >>> kind = lambda *shape: MatrixKind(shape, torch.float32, torch.float32, torch.device("cpu"))
    >>> stacks([kind(64, 96), kind(8, 40), kind(64, 96), kind(36, 8)])
    [Stack(members=(0, 2), padded=None), Stack(members=(1, 3), padded=(8, 40))]
    """
    return list(_stacks(tuple(kinds)))


@lru_cache(maxsize=64)
def _stacks(kinds: tuple[MatrixKind, ...]) -> tuple[Stack, ...]:
    exact: dict[MatrixKind, list[int]] = {}
    for index, kind in enumerate(kinds):
        exact.setdefault(kind, []).append(index)
    families: dict[Hashable, list[tuple[MatrixKind, list[int]]]] = {}
    found: list[Stack] = []
    for kind, members in exact.items():
        limit = PADDING.get(kind.device.type)
        if limit is None or kind.sides[0] > limit.side:
            found.append(Stack(tuple(members)))
        else:
            family = (kind.sides[0], kind.parameter_dtype, kind.dtype, kind.device)
            families.setdefault(family, []).append((kind, members))
    for family_members in families.values():
        found += _packed(family_members)
    return tuple(sorted(found, key=lambda stack: stack.members[0]))


def _packed(family: list[tuple[MatrixKind, list[int]]]) -> Iterable[Stack]:
    """Yield stacks of one family, narrow matrices first, each grown while its budget of elements holds."""
    runs: list[list[tuple[MatrixKind, list[int]]]] = []
    for entry in sorted(family, key=lambda e: (e[0].sides[1], e[1][0])):
        if runs and _affordable([*runs[-1], entry]):
            runs[-1].append(entry)
        else:
            runs.append([entry])
    for run in runs:
        members = tuple(sorted(i for _, indices in run for i in indices))
        yield Stack(members, run[-1][0].sides if len(run) > 1 else None)


def _affordable(run: list[tuple[MatrixKind, list[int]]]) -> bool:
    kind = run[-1][0]
    limit = PADDING[kind.device.type]
    width = kind.sides[1]
    held = sum(k.sides[1] * len(members) for k, members in run)
    padded = width * sum(len(members) for _, members in run)
    # never more bytes than the members' parameters and gradients have
    bytes_held = held * 2 * kind.parameter_dtype.itemsize
    return padded <= limit.stretch * held and padded * kind.dtype.itemsize <= bytes_held


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
    """Return whether every tensor is a plain strided one and no two occupy the same bytes; never raises.

    Address ranges are compared, not storage objects, so gradients that are disjoint views of one flat
    buffer count as independent and two wrappers of one allocation do not. Tensors that do not say where
    their memory is (subclasses, functional wrappers, sparse ones) are opaque and count as dependent.

    >>> flat = torch.zeros(4)
    >>> independent([flat[:2], flat[2:]]), independent([flat, flat[2:]])
    (True, False)
    """
    if any(type(t) not in (Tensor, Parameter) or t.layout != torch.strided for t in tensors):
        return False
    ranges: dict[torch.device, list[tuple[int, int]]] = {}
    try:
        for tensor in tensors:
            if tensor.numel():
                start = tensor.data_ptr()
                ranges.setdefault(tensor.device, []).append((start, start + _extent(tensor)))
    except RuntimeError:
        # a plain-looking tensor without storage, as inside torch.func transforms
        return False
    for on_device in ranges.values():
        on_device.sort()
        if any(a[1] > b[0] for a, b in pairwise(on_device)):
            return False
    return True


def _extent(tensor: Tensor) -> int:
    """Return the bytes from a tensor's first element to the end of its last."""
    if tensor.is_contiguous():
        return tensor.nbytes
    last = sum((size - 1) * stride for size, stride in zip(tensor.shape, tensor.stride(), strict=True))
    return (last + 1) * tensor.element_size()
