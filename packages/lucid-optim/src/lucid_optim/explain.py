"""A table for people: which parameter moves by which rule, is decayed how much, and why."""

from collections.abc import Iterable, Mapping
from typing import Any

from torch import Tensor

_HEADER = ("group", "rule", "tensors", "elements", "decay", "why", "settings")
_LISTED = ("parameter", "rule", "shape", "elements", "decay", "why", "settings")
_RIGHT = ("tensors", "elements")
# entries of a group with a column of their own, or none
_NOT_SETTINGS = ("params", "param_names", "name", "why", "weight_decay")


def explain(groups: Iterable[Mapping[str, Any]], *, each: bool = False) -> str:
    """Return a table of the rule, the decay and the reason of each group's matrices and vectors.

    Takes what `param_groups` returns or an optimizer's ``param_groups``; settings and decay are shown where
    a group has them, ``default`` is what the optimizer is constructed with. ``each`` gives every parameter
    a line of its own, by name where names are known.

    >>> from torch import nn
    >>> from lucid_optim import param_groups
    >>> print(explain(param_groups(nn.Linear(4, 3))))
    group    rule    tensors  elements  decay    why                  settings
    default  matrix        1        12  default  two or more axes
    default  vector        1         3  none     fewer than two axes
    """
    rows: list[tuple[str, ...]] = [_LISTED if each else _HEADER]
    for index, group in enumerate(groups):
        for members in _by_rank(group):
            facts = _facts(group, members[0][1])
            if each:
                rows += [_line(name, _shape(p), [p], facts) for name, p in members]
            else:
                tensors = [p for _, p in members]
                rows.append(_line(str(group.get("name", index)), str(len(tensors)), tensors, facts))
    widths = [max(len(row[column]) for row in rows) for column in range(len(_HEADER) - 1)]
    return "\n".join(_aligned(row, rows[0], widths) for row in rows)


def _by_rank(group: Mapping[str, Any]) -> list[list[tuple[str, Tensor]]]:
    """Return the named matrices, then the named vectors of a group; what is empty is left out."""
    entries = group["params"]
    names = group.get("param_names") or [str(i) for i in range(len(entries))]
    named = [e if isinstance(e, tuple) else (n, e) for n, e in zip(names, entries, strict=True)]
    ranks = ([e for e in named if e[1].dim() >= 2], [e for e in named if e[1].dim() < 2])
    return [members for members in ranks if members]


def _facts(group: Mapping[str, Any], member: Tensor) -> tuple[str, str, str, str]:
    """Return rule, decay, reason and settings of the members of a group that have the rank of ``member``."""
    settings = ", ".join(f"{key}={value}" for key, value in group.items() if key not in _NOT_SETTINGS)
    if member.dim() < 2:
        return "vector", "none", "fewer than two axes", settings
    rule = "sgd" if group.get("w_muon") == 0 else "matrix"
    decay = group.get("weight_decay", "default")
    return rule, "none" if decay == 0 else str(decay), str(group.get("why", "two or more axes")), settings


def _line(
    first: str, second: str, tensors: list[Tensor], facts: tuple[str, str, str, str]
) -> tuple[str, ...]:
    rule, *rest = facts
    return first, rule, second, f"{sum(t.numel() for t in tensors):,}", *rest


def _shape(tensor: Tensor) -> str:
    return "x".join(str(size) for size in tensor.shape) or "scalar"


def _aligned(row: tuple[str, ...], header: tuple[str, ...], widths: list[int]) -> str:
    cells = [
        cell.rjust(width) if title in _RIGHT else cell.ljust(width)
        for cell, title, width in zip(row, header, widths, strict=False)
    ]
    return "  ".join([*cells, row[-1]]).rstrip()
