"""What a recording assumes of its arguments, as one hashable value."""

from __future__ import annotations

import struct
from dataclasses import dataclass, replace
from typing import Any

import torch
from torch import Tensor

from lucid_capture._tree import Structure, flatten


@dataclass(frozen=True)
class TensorSignature:
    """Shape, stride, dtype, device and ``requires_grad`` of one tensor, and its exact class."""

    shape: tuple[int, ...]
    stride: tuple[int, ...]
    dtype: torch.dtype
    device: torch.device
    requires_grad: bool
    kind: type[Any]


@dataclass(frozen=True)
class ScalarSignature:
    """The type of a host scalar and its exact bits: 5, 5.0 and True differ, and so do 0.0 and -0.0."""

    kind: type[Any]
    bits: bytes


@dataclass(frozen=True)
class Signature:
    """The signature of nested arguments: their structure and one entry per leaf."""

    structure: Structure
    leaves: tuple[TensorSignature | ScalarSignature, ...]

    def grows_into(self, other: Signature) -> bool:
        """Return whether ``other`` differs only in tensors that are larger somewhere and nowhere smaller.

        >>> signature(torch.zeros(2, 4)).grows_into(signature(torch.zeros(2, 8)))
        True
        """
        same_kind = self.structure == other.structure and self != other
        return same_kind and all(map(_covers, other.leaves, self.leaves))


def signature(tree: Any) -> Signature:
    """Return the hashable signature of nested tensors and host scalars.

    Two values have equal signatures exactly when a recording of one may be replayed with the other: same
    nesting, same tensor layouts, same scalar bits. Raises TypeError for a leaf of any other kind.

    >>> signature([torch.zeros(2), 1]) == signature([torch.ones(2), 1])
    True
    >>> signature([torch.zeros(2), 1]) == signature([torch.ones(2), 1.0])
    False
    """
    leaves, structure = flatten(tree)
    return Signature(structure, tuple(_leaf(leaf) for leaf in leaves))


def scalar_bits(value: Any) -> bytes:
    """Return the exact bits of a host scalar; TypeError when it is not one.

    >>> scalar_bits(0.0) == scalar_bits(-0.0)
    False
    """
    match value:
        case bool() | int() | torch.dtype() | torch.device():
            return str(value).encode()
        case float():
            return struct.pack("<d", value)
        case complex():
            return struct.pack("<dd", value.real, value.imag)
        case str():
            return value.encode()
        case bytes():
            return value
        case _:
            raise TypeError(
                f"a recording takes tensors and host scalars, got {type(value).__name__}; pass its tensors"
            )


def _leaf(leaf: Any) -> TensorSignature | ScalarSignature:
    if isinstance(leaf, Tensor):
        return TensorSignature(
            tuple(leaf.shape), leaf.stride(), leaf.dtype, leaf.device, leaf.requires_grad, type(leaf)
        )
    return ScalarSignature(type(leaf), scalar_bits(leaf))


def _covers(large: TensorSignature | ScalarSignature, small: TensorSignature | ScalarSignature) -> bool:
    if not (isinstance(large, TensorSignature) and isinstance(small, TensorSignature)):
        return large == small
    if len(large.shape) != len(small.shape):
        return False
    like = replace(large, shape=small.shape, stride=small.stride)
    return like == small and all(a >= b for a, b in zip(large.shape, small.shape, strict=True))
