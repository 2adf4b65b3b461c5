"""Tools of a replay test: byte comparison, counted calls, counted launches."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, fields
from typing import Any

import torch
from torch import Tensor

from lucid_capture._tree import paths
from lucid_capture.backend import BackendStats, RecorderBackend
from lucid_capture.signature import scalar_bits


@dataclass(frozen=True)
class Comparison:
    """The outcome of a byte comparison: true when equal, else the first path that differs and how."""

    path: str | None = None
    difference: str | None = None

    def __bool__(self) -> bool:
        return self.difference is None

    def __str__(self) -> str:
        return "same bytes" if self else f"{self.path or 'value'}: {self.difference}"


def same_bytes(a: Any, b: Any) -> Comparison:
    """Return whether two nested values hold the same bytes, naming the first path that differs.

    Containers are walked in order: mappings (such as state dicts), sequences, named tuples, dataclasses.
    Tensors must agree in shape, dtype and every bit, so -0.0 differs from 0.0 and one NaN payload from
    another; device, stride and ``requires_grad`` do not matter. Host scalars must agree in type and bits.
    Raises TypeError for other leaves.

    >>> bool(same_bytes({"w": torch.zeros(2)}, {"w": torch.zeros(2)}))
    True
    >>> print(same_bytes({"w": torch.tensor([1.0, 0.0])}, {"w": torch.tensor([1.0, -0.0])}))
    ['w']: element 1 of 2 differs: 0.0 and -0.0
    """
    left, right = list(paths(a)), list(paths(b))
    for (path, x), (other, y) in zip(left, right, strict=False):
        if path != other:
            return Comparison(path, f"the other value has {other or 'a leaf'} here")
        difference = _difference(x, y)
        if difference is not None:
            return Comparison(path, difference)
    if len(left) != len(right):
        longer, which = (left, "first") if len(left) > len(right) else (right, "second")
        return Comparison(longer[min(len(left), len(right))][0], f"only the {which} value has it")
    return Comparison()


class CountedCalls:
    """A callable that counts how often it runs, to prove that a recorded stage no longer does.

    >>> work = CountedCalls(abs)
    >>> work(-2), work.calls
    (2, 1)
    """

    def __init__(self, function: Callable[..., Any]) -> None:
        self.function = function
        self.calls = 0

    def __call__(self, *args: Any) -> Any:
        """Return what the function returns."""
        self.calls += 1
        return self.function(*args)


@contextmanager
def count_launches(backend: RecorderBackend) -> Iterator[BackendStats]:
    """Yield counters that hold, once the block has ended, what ``backend`` did inside it."""
    before = {f.name: getattr(backend.stats, f.name) for f in fields(BackendStats)}
    counted = BackendStats()
    try:
        yield counted
    finally:
        for name, value in before.items():
            setattr(counted, name, getattr(backend.stats, name) - value)


def _difference(x: Any, y: Any) -> str | None:
    if isinstance(x, Tensor) and isinstance(y, Tensor):
        return _tensor_difference(x, y)
    if type(x) is not type(y):
        return f"{type(x).__name__} and {type(y).__name__}"
    if x is None or scalar_bits(x) == scalar_bits(y):
        return None
    return f"{x!r} and {y!r}"


def _tensor_difference(x: Tensor, y: Tensor) -> str | None:
    if x.shape != y.shape:
        return f"shapes {tuple(x.shape)} and {tuple(y.shape)}"
    if x.dtype != y.dtype:
        return f"dtypes {x.dtype} and {y.dtype}"
    first, second = _bytes(x), _bytes(y)
    if torch.equal(first, second):
        return None
    index = int((first != second).any(1).nonzero()[0])
    values = (t.detach().reshape(-1)[index].item() for t in (x, y))
    return f"element {index} of {x.numel()} differs: {' and '.join(map(repr, values))}"


def _bytes(tensor: Tensor) -> Tensor:
    """Return the (elements, element size) bytes of a tensor in logical order, on the host."""
    plain = tensor.detach().resolve_conj().resolve_neg().cpu()
    # a clone, because a tensor of one row or column may count as contiguous with any stride
    flat = plain.clone(memory_format=torch.contiguous_format).reshape(-1)
    return flat.view(torch.uint8).reshape(tensor.numel(), tensor.element_size())
