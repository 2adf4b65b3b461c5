"""What is bound to modules: a full walk as comparable facts, and a cheap stamp that says whether to repeat it."""

from __future__ import annotations

import dataclasses
from collections.abc import Hashable, Iterator, Mapping, Sequence
from itertools import chain
from operator import is_
from typing import Any

import torch
from torch import nn

from lucid_capture.signature import scalar_bits

_HOOK_TABLES = ("_forward_hooks", "_forward_pre_hooks", "_backward_hooks", "_backward_pre_hooks")
_OWN = frozenset(nn.Module().__dict__)  # what every module has; the rest is the subclass's
_SCALARS = (bool, int, float, complex, str, bytes, torch.dtype, torch.device)
_ENUMERATIONS = ("named_parameters", "parameters", "named_buffers", "buffers", "named_modules", "modules")


class Same:
    """An object as a fact: equal to itself alone, and alive as long as the fact is."""

    __slots__ = ("_held",)

    def __init__(self, held: object) -> None:
        self._held = held

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Same) and other._held is self._held

    def __hash__(self) -> int:
        return id(self._held)


class Stamp:
    """The identity of everything bound to modules when it was made; comparing it runs no Python per item."""

    def __init__(self, modules: Sequence[nn.Module]) -> None:
        containers = [c for module in modules for c in _containers(module)]
        self._dicts = [c for c in containers if isinstance(c, dict)]
        self._others = [c for c in containers if not isinstance(c, dict)]
        self._seen_names = self._names()
        self._seen_values = list(self._values())
        self._seen_sizes = self._sizes()
        classes = {type(module) for module in modules}
        self._classes = [(c, c.forward, c.__call__) for c in classes]

    def holds(self) -> bool:
        """Return whether the modules still hold the same objects under the same names, in the same order."""
        return (
            self._sizes() == self._seen_sizes
            and all(map(is_, self._values(), self._seen_values))
            and self._names() == self._seen_names
            and all(c.forward is forward and c.__call__ is call for c, forward, call in self._classes)
        )

    def _sizes(self) -> list[int]:
        return [*map(len, self._dicts), *map(len, self._others)]

    def _values(self) -> Iterator[Any]:
        return chain(chain.from_iterable(map(dict.values, self._dicts)), chain.from_iterable(self._others))

    def _names(self) -> list[Any]:
        return list(chain.from_iterable(self._dicts))


def structure_facts(walk: Sequence[tuple[str, nn.Module]]) -> Hashable:
    """Return names, objects and classes of modules, their forwards, and objects bound to attributes."""
    return tuple(
        (name, Same(module), type(module), type(module).forward, type(module).__call__, _objects(module))
        for name, module in walk
    )


def scalar_facts(walk: Sequence[tuple[str, nn.Module]]) -> Hashable:
    """Return every host scalar reachable from the modules' attributes, by path, type and bits."""
    return tuple((name, *_scalars(module)) for name, module in walk)


def first_difference(before: Any, after: Any) -> str:
    """Return the name of what differs first between two facts, empty where they carry no names.

    A tuple that begins with a string is named by it; one that begins with a tuple of strings names the
    entries of its other parts.

    >>> first_difference((("a", 1), ("b", 2)), (("a", 1), ("b", 3)))
    'b'
    """
    if not (isinstance(before, tuple) and isinstance(after, tuple) and len(before) == len(after)):
        return ""
    names = before[0] if before and _are_names(before[0]) else ()
    for x, y in zip(before, after, strict=True):
        if x == y:
            continue
        if isinstance(x, tuple) and isinstance(y, tuple) and len(x) == len(y) == len(names):
            return next((name for name, a, b in zip(names, x, y, strict=True) if a != b), "")
        own = x[0] if isinstance(x, tuple) and x and isinstance(x[0], str) else ""
        return ".".join(part for part in (own, first_difference(x, y)) if part)
    return ""


def hook_tables(modules: Sequence[nn.Module]) -> list[Mapping[Any, Any]]:
    """Return the live hook tables of the modules; all are empty when there are no hooks."""
    return [getattr(module, table) for module in modules for table in _HOOK_TABLES]


def enumerates_itself(modules: Sequence[nn.Module]) -> bool:
    """Return whether a module overrides how its parameters, buffers or submodules are listed."""
    return any(getattr(type(m), n) is not getattr(nn.Module, n) for m in modules for n in _ENUMERATIONS)


def _objects(module: nn.Module) -> Hashable:
    return tuple((path, Same(value)) for path, value in _leaves(module) if not _is_scalar(value))


def _are_names(value: Any) -> bool:
    return isinstance(value, tuple) and bool(value) and all(isinstance(name, str) for name in value)


def _scalars(module: nn.Module) -> Iterator[tuple[str, type[Any], bytes]]:
    for path, value in _leaves(module):
        if _is_scalar(value):
            yield path, type(value), b"" if value is None else scalar_bits(value)


def _is_scalar(value: Any) -> bool:
    return value is None or type(value) in _SCALARS


def _leaves(module: nn.Module) -> Iterator[tuple[str, Any]]:
    for name, value in module.__dict__.items():
        if name not in _OWN:
            yield from _below(name, value, {id(module)})


def _below(path: str, value: Any, above: set[int]) -> Iterator[tuple[str, Any]]:
    children = None if id(value) in above else _children(value)
    if children is None:
        yield path, value
        return
    yield path, type(value).__name__
    for name, child in children:
        yield from _below(f"{path}.{name}", child, above | {id(value)})


def _children(value: Any) -> Iterator[tuple[Any, Any]] | None:
    if isinstance(value, dict):
        return iter(value.items())
    if isinstance(value, list | tuple):
        return iter(enumerate(value))
    if isinstance(value, set | frozenset):
        return iter(enumerate(sorted(value, key=repr)))
    if dataclasses.is_dataclass(value) and not isinstance(value, type) and hasattr(value, "__dict__"):
        return iter(vars(value).items())
    return None


def _containers(module: nn.Module) -> Iterator[Any]:
    """Yield the mutable containers that decide what the module is bound to."""
    yield module.__dict__
    yield from (module._modules, module._parameters, module._buffers)
    for name, value in module.__dict__.items():
        if name not in _OWN:
            yield from _mutable(value, {id(module)})


def _mutable(value: Any, above: set[int]) -> Iterator[Any]:
    children = None if id(value) in above else _children(value)
    if children is None:
        return
    if isinstance(value, dict | list | set):
        yield value
    elif dataclasses.is_dataclass(value):
        yield vars(value)
    for _, child in children:
        yield from _mutable(child, above | {id(value)})
