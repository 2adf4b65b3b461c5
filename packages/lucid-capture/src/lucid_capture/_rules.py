"""Which operations no device graph can hold, and how to notice the ones that pass the dispatcher by."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from itertools import pairwise
from typing import Any

import torch
from torch import Tensor
from torch.utils._python_dispatch import TorchDispatchMode

from lucid_capture.backend import CaptureError

# the host waits for a value
HOST_READS = frozenset({"aten::_local_scalar_dense", "aten::allclose", "aten::equal", "aten::is_nonzero"})
# the shape of the result depends on values
DYNAMIC_SHAPES = frozenset(
    {
        "aten::_unique",
        "aten::_unique2",
        "aten::bincount",
        "aten::masked_select",
        "aten::nonzero",
        "aten::nonzero_numpy",
        "aten::unique_consecutive",
        "aten::unique_dim",
        "aten::unique_dim_consecutive",
    }
)
INDEXING = frozenset({"aten::index", "aten::index_put", "aten::index_put_", "aten::_index_put_impl_"})
HOST_METHODS = ("numpy", "tolist", "__array__")


class Operators(TorchDispatchMode):  # type: ignore[no-untyped-call]
    """A dispatch mode that no compiler has to skip: torch would import its compiler to arrange for that."""

    @classmethod
    def _should_skip_dynamo(cls) -> bool:
        return False


def has_dynamic_shape(func: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> bool:
    """Return whether the shape of the operator's result depends on values."""
    name = func._schema.name
    if name == "aten::repeat_interleave":
        return kwargs.get("output_size") is None and not (len(args) > 1 and isinstance(args[1], int))
    return name in DYNAMIC_SHAPES


def has_mask_index(func: Any, args: tuple[Any, ...]) -> bool:
    """Return whether the operator indexes with a boolean tensor."""
    masks = (torch.bool, torch.uint8)
    return func._schema.name in INDEXING and any(t.dtype in masks for t in tensors_in(args[1]))


def moves_between_devices(func: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> bool:
    """Return whether the operator copies a tensor to a device of another kind."""
    target = kwargs.get("device")
    return (
        func._schema.name == "aten::_to_copy"
        and target is not None
        and torch.device(target).type != args[0].device.type
    )


def refuse_illegal(func: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> None:
    """Raise CaptureError for an operator that a device graph cannot hold."""
    name = func._schema.name
    if name in HOST_READS:
        raise CaptureError(f"{name} needs a value on the host")
    if has_dynamic_shape(func, args, kwargs):
        raise CaptureError(f"{name} has a shape that depends on values")
    if has_mask_index(func, args):
        raise CaptureError(f"{name} with a mask has a shape that depends on values; use torch.where")
    if moves_between_devices(func, args, kwargs):
        raise CaptureError(f"a copy from {args[0].device} to {kwargs['device']} cannot be recorded")


@contextmanager
def host_methods(replacement: Callable[[str, Any], Any]) -> Iterator[None]:
    """Route ``tolist``, ``numpy`` and ``__array__`` through ``replacement(name, original)``.

    They read memory without passing the dispatcher; ``original`` is the method they hide.
    """
    own = {name: torch.Tensor.__dict__[name] for name in HOST_METHODS if name in torch.Tensor.__dict__}
    for name in HOST_METHODS:
        setattr(torch.Tensor, name, replacement(name, getattr(torch.Tensor, name)))
    try:
        yield
    finally:
        for name in HOST_METHODS:
            if name in own:
                setattr(torch.Tensor, name, own[name])
            else:
                delattr(torch.Tensor, name)


def refuse_host_method(name: str, original: Any) -> Any:
    """Return a method that raises CaptureError in place of ``original``."""

    def method(*args: Any, **kwargs: Any) -> Any:
        raise CaptureError(f"Tensor.{name} reads values on the host")

    return method


def tensors_in(tree: Any) -> list[Tensor]:
    """Return the tensors among an operator's arguments or results, in order."""
    if isinstance(tree, Tensor):
        return [tree]
    if isinstance(tree, list | tuple):
        return [t for item in tree for t in tensors_in(item)]
    if isinstance(tree, dict):
        return [t for item in tree.values() for t in tensors_in(item)]
    return []


def address(tensor: Tensor) -> int:
    """Return where the tensor's storage begins."""
    return tensor.untyped_storage().data_ptr()


def overlapping(tensors: list[Tensor]) -> bool:
    """Return whether two of the tensors, all distinct objects, share bytes.

    >>> base = torch.zeros(4)
    >>> overlapping([base[:2], base[2:]]), overlapping([base[:3], base[2:]])
    (False, True)
    """
    spans = sorted(_span(t) for t in {id(t): t for t in tensors}.values() if t.numel())
    return any(low < end for (_, end), (low, _) in pairwise(spans))


def _span(tensor: Tensor) -> tuple[int, int]:
    """Return the first byte of a strided tensor and the one after its last."""
    last = sum((n - 1) * s for n, s in zip(tensor.shape, tensor.stride(), strict=True))
    return tensor.data_ptr(), tensor.data_ptr() + (last + 1) * tensor.element_size()
