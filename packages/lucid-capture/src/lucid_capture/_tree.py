"""Nested arguments and results as a flat list of leaves and a hashable structure."""

from __future__ import annotations

import dataclasses
from collections import OrderedDict
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any


@dataclass(frozen=True)
class Structure:
    """The shape of a nested value: its container type, its keys and its children; a leaf has type None."""

    kind: type[Any] | None
    keys: tuple[Any, ...] = ()
    children: tuple[Structure, ...] = ()


_LEAF = Structure(None)
_NOTHING = Structure(type(None))


def flatten(tree: Any) -> tuple[list[Any], Structure]:
    """Return the leaves of nested containers in order, and their structure.

    Containers are lists, tuples, named tuples, mappings and dataclasses. None is structure, not a leaf.

    >>> flatten({"a": (1, None), "b": [2]})[0]
    [1, 2]
    """
    if tree is None:
        return [], _NOTHING
    entries = _entries(tree)
    if entries is None:
        return [tree], _LEAF
    leaves: list[Any] = []
    children = []
    for _, value in entries:
        below, structure = flatten(value)
        leaves += below
        children.append(structure)
    return leaves, Structure(type(tree), tuple(key for key, _ in entries), tuple(children))


def unflatten(structure: Structure, leaves: list[Any]) -> Any:
    """Return the nested value that `flatten` took apart, with ``leaves`` in place of the old ones."""
    return _build(structure, iter(leaves))


def paths(tree: Any, prefix: str = "") -> Iterator[tuple[str, Any]]:
    """Yield (path, leaf) pairs; a path reads like an index expression: ``['a'][0].weight``.

    >>> list(paths({"a": (1, 2)}))
    [("['a'][0]", 1), ("['a'][1]", 2)]
    """
    entries = _entries(tree)
    if tree is None or entries is None:
        yield prefix, tree
        return
    dotted = dataclasses.is_dataclass(tree) or hasattr(tree, "_fields")
    for key, value in entries:
        yield from paths(value, f"{prefix}.{key}" if dotted else f"{prefix}[{key!r}]")


def _entries(tree: Any) -> list[tuple[Any, Any]] | None:
    if dataclasses.is_dataclass(tree) and not isinstance(tree, type):
        return [(field.name, getattr(tree, field.name)) for field in dataclasses.fields(tree)]
    if isinstance(tree, Mapping):
        return list(tree.items())
    if isinstance(tree, tuple) and hasattr(tree, "_fields"):
        return list(zip(tree._fields, tree, strict=True))
    if isinstance(tree, list | tuple):
        return list(enumerate(tree))
    return None


def _build(structure: Structure, leaves: Iterator[Any]) -> Any:
    kind = structure.kind
    if kind is None:
        return next(leaves)
    if kind is type(None):
        return None
    values = [_build(child, leaves) for child in structure.children]
    if dataclasses.is_dataclass(kind) or hasattr(kind, "_fields"):
        make: Callable[..., Any] = kind
        return make(**dict(zip(structure.keys, values, strict=True)))
    if issubclass(kind, Mapping):
        mapping: Callable[..., Any] = kind if issubclass(kind, OrderedDict) else dict
        return mapping(zip(structure.keys, values, strict=True))
    return kind(values)
