"""The tensors of modules, optimizers and mappings by name, and a copy of them that can be put back in place."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any

import torch
from torch import Tensor, nn

from lucid_capture._random import RandomState

Holder = Any  # a module, an optimizer, or a mapping of tensors


def named_tensors(holder: Holder) -> dict[str, Tensor]:
    """Return a holder's tensors by name.

    A module gives parameters, their gradients (``weight.grad``) and buffers; an optimizer (whatever has
    ``param_groups`` and ``state``) its tensors of state per parameter and of options per group; a mapping
    its tensors. Raises TypeError for anything else.

    >>> sorted(named_tensors(nn.Linear(2, 1)))
    ['bias', 'weight']
    """
    if isinstance(holder, nn.Module):
        parameters = dict(holder.named_parameters())
        gradients = {f"{n}.grad": p.grad for n, p in parameters.items() if p.grad is not None}
        return {**parameters, **gradients, **dict(holder.named_buffers())}
    if is_optimizer(holder):
        return {name: value for _, _, name, value in _slots(holder) if isinstance(value, Tensor)}
    if isinstance(holder, Mapping):
        return {name: value for name, value in holder.items() if isinstance(value, Tensor)}
    raise TypeError(f"a snapshot takes modules, optimizers and mappings, got {type(holder).__name__}")


def is_optimizer(holder: Holder) -> bool:
    """Return whether the object looks like a torch optimizer."""
    return hasattr(holder, "param_groups") and hasattr(holder, "state")


def host_numbers(optimizer: Any) -> dict[str, Any]:
    """Return the host numbers that an optimizer keeps in its state and its groups, by name."""
    kinds = (bool, int, float, complex, str)
    return {name: value for _, _, name, value in _slots(optimizer) if isinstance(value, kinds)}


class Snapshot:
    """A copy of the state of ``holders`` and of the random generators, to be put back in place.

    >>> weights = {"w": torch.ones(1)}
    >>> before = Snapshot({"ema": weights})
    >>> _ = weights["w"].fill_(7.0)
    >>> before.restore()
    >>> weights["w"]
    tensor([1.])
    """

    def __init__(self, holders: Mapping[str, Holder], generators: Sequence[torch.Generator] = ()) -> None:
        self._undo: list[Callable[[], None]] = []
        for holder in holders.values():
            self._undo += _undo_structure(holder)
            for tensor in named_tensors(holder).values():
                self._undo.append(_undo_tensor(tensor))
        self._random = RandomState(generators)

    @torch.no_grad()
    def restore(self) -> None:
        """Put every value back where it was; what has come since is removed."""
        for undo in self._undo:
            undo()
        self._random.restore()


def _slots(optimizer: Any) -> Iterator[tuple[Any, Any, str, Any]]:
    """Yield (container, key, name, value) for everything an optimizer keeps per parameter and per group."""
    position = 0
    for number, group in enumerate(optimizer.param_groups):
        for key, value in group.items():
            if key != "params":
                yield group, key, f"group[{number}].{key}", value
        for parameter in group["params"]:
            kept = optimizer.state.get(parameter)
            for key, value in (kept or {}).items():
                yield kept, key, f"state[{position}].{key}", value
            position += 1


def _undo_structure(holder: Holder) -> list[Callable[[], None]]:
    """Return what makes the holder refer to the objects it refers to now, and to nothing more."""
    if isinstance(holder, nn.Module):
        return [_undo_gradient(p, p.grad) for p in holder.parameters()]
    if is_optimizer(holder):
        parameters = [p for group in holder.param_groups for p in group["params"]]
        kept = {p: dict(holder.state[p]) for p in parameters if p in holder.state}
        options = [dict(group) for group in holder.param_groups]

        def undo() -> None:
            for parameter in parameters:
                if parameter in kept:
                    holder.state[parameter].clear()
                    holder.state[parameter].update(kept[parameter])
                else:
                    holder.state.pop(parameter, None)
            for group, saved in zip(holder.param_groups, options, strict=True):
                group.update(saved)

        return [undo]
    return []


def _undo_gradient(parameter: Tensor, gradient: Tensor | None) -> Callable[[], None]:
    def undo() -> None:
        parameter.grad = gradient

    return undo


def _undo_tensor(tensor: Tensor) -> Callable[[], None]:
    value = tensor.detach().clone()

    def undo() -> None:
        tensor.detach().copy_(value)

    return undo
