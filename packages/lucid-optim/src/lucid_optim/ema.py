"""An exponential moving average of a module's weights and floating-point buffers."""

from __future__ import annotations

import math
from collections.abc import Mapping
from operator import is_not
from typing import Any

import torch
from torch import Tensor, nn

from lucid_optim.buckets import same_kind_buckets


class ModelEMA:
    """The moving average of every floating-point parameter and buffer of a module, by name.

    The n-th update blends with ``d = decay * (1 - exp(-n / tau))``: ``shadow = d * shadow + (1 - d) *
    live``, so early averages follow the live weights closely. Integer buffers are not averaged.
    ``update_every`` blends on every k-th call of `update`. Raises ValueError for ``decay`` outside [0, 1),
    ``tau`` <= 0 or ``update_every`` < 1.

    >>> layer = nn.Linear(2, 1, bias=False)
    >>> ema = ModelEMA(layer, decay=0.5)
    >>> ema.update(layer)
    >>> sorted(ema.shadow), ema.num_updates
    (['weight'], 1)
    """

    def __init__(
        self, module: nn.Module, decay: float = 0.9999, tau: float = 2000.0, update_every: int = 1
    ) -> None:
        if not 0 <= decay < 1:
            raise ValueError(f"decay must lie in [0, 1), got {decay}")
        if not tau > 0:
            raise ValueError(f"tau must be greater than 0, got {tau}")
        if update_every < 1:
            raise ValueError(f"update_every must be at least 1, got {update_every}")
        self.decay = decay
        self.tau = tau
        self.update_every = update_every
        self.num_updates = 0
        self.steps_seen = 0
        self.shadow: dict[str, Tensor] = {name: t.detach().clone() for name, t in _averaged(module).items()}
        self._live: list[Tensor] | None = None
        self._seen: tuple[Tensor, ...] = ()
        self._order: tuple[Tensor, ...] = ()

    def __getstate__(self) -> dict[str, Any]:
        # the module's own tensors are no part of its average
        return {**self.__dict__, "_seen": (), "_order": ()}

    @torch.no_grad()
    def update(self, module: nn.Module) -> None:
        """Count one optimizer step of ``module`` and blend its tensors into the shadow when it is time.

        The shadow follows the module to its device. Raises ValueError when the module's names differ from the
        shadow's, RuntimeError between `swap_in` and `swap_out`.
        """
        if self._live is not None:
            raise RuntimeError("the module holds the averaged weights; call swap_out before the next update")
        self.steps_seen += 1
        if self.steps_seen % self.update_every:
            return
        self.num_updates += 1
        weight = 1.0 - self.decay * (1.0 - math.exp(-self.num_updates / self.tau))
        live = self._matched(module)
        shadow = list(self.shadow.values())
        # a module moved to another dtype than its average's is blended as the average is kept
        live = [t if t.dtype == s.dtype else t.to(s.dtype) for t, s in zip(live, shadow, strict=True)]
        for bucket in same_kind_buckets(shadow):
            torch._foreach_lerp_([shadow[i] for i in bucket], [live[i] for i in bucket], weight)

    @torch.no_grad()
    def swap_in(self, module: nn.Module) -> None:
        """Put the averaged values into ``module`` in place, keeping its own aside; addresses do not change.

        Raises RuntimeError when they are in already.
        """
        if self._live is not None:
            raise RuntimeError("the averaged weights are swapped in already; call swap_out first")
        live = self._matched(module)
        self._live = [t.clone() for t in live]
        torch._foreach_copy_(live, list(self.shadow.values()))

    @torch.no_grad()
    def swap_out(self, module: nn.Module) -> None:
        """Put the module's own values back in place; does nothing when the averaged ones are not in."""
        if self._live is None:
            return
        torch._foreach_copy_(self._matched(module), self._live)
        self._live = None

    def weights(self, module: nn.Module) -> dict[str, Tensor]:
        """Return the state dict of ``module`` with averaged values where there are any, cloned.

        >>> layer = nn.BatchNorm2d(3)
        >>> ModelEMA(layer).weights(layer)["num_batches_tracked"]
        tensor(0)
        """
        # by identity, so that every name of a shared parameter gets the average
        names = {id(tensor): name for name, tensor in _averaged(module).items()}
        state = module.state_dict(keep_vars=True)
        return {k: self.shadow.get(names.get(id(v), k), v).detach().clone() for k, v in state.items()}

    def state_dict(self) -> dict[str, Any]:
        """Return the shadow (cloned) and the two counters; loads with ``weights_only=True``."""
        shadow = {name: t.clone() for name, t in self.shadow.items()}
        return {"shadow": shadow, "num_updates": self.num_updates, "steps_seen": self.steps_seen}

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        """Restore what `state_dict` returned; ``batches_seen`` is read where ``steps_seen`` is missing.

        Raises ValueError when names or shapes differ from the shadow's.
        """
        shadow: Mapping[str, Tensor] = state["shadow"]
        _same_names(shadow, self.shadow, "the saved average")
        for name, saved in shadow.items():
            if saved.shape != self.shadow[name].shape:
                raise ValueError(
                    f"the saved average of {name!r} has shape {tuple(saved.shape)}, "
                    f"the module's tensor has {tuple(self.shadow[name].shape)}"
                )
        self.shadow = {name: torch.empty_like(own).copy_(shadow[name]) for name, own in self.shadow.items()}
        self.num_updates = int(state["num_updates"])
        self.steps_seen = int(state["steps_seen"] if "steps_seen" in state else state["batches_seen"])

    def _matched(self, module: nn.Module) -> list[Tensor]:
        """Return the module's tensors in the shadow's order, after moving the shadow to their devices."""
        tensors = _tensors(module)
        # names are walked only when a tensor was added, removed or replaced: on a host that costs as much as a blend
        if len(tensors) != len(self._seen) or any(map(is_not, tensors, self._seen)):
            live = _averaged(module)
            if live.keys() != self.shadow.keys():
                _same_names(live, self.shadow, "the module")
            self._seen, self._order = tensors, tuple(live[name] for name in self.shadow)
        for (name, shadow), tensor in zip(self.shadow.items(), self._order, strict=True):
            if shadow.device != tensor.device:
                self.shadow[name] = shadow.to(tensor.device)
        return list(self._order)


def _tensors(module: nn.Module) -> tuple[Tensor, ...]:
    """Return every parameter and buffer below a module, in one order, with those it meets twice."""
    found: list[Tensor] = []
    left = [module]
    while left:
        one = left.pop()
        found += [t for t in (*one._parameters.values(), *one._buffers.values()) if t is not None]
        left += [child for child in one._modules.values() if child is not None]
    return tuple(found)


def _averaged(module: nn.Module) -> dict[str, Tensor]:
    named = (*module.named_parameters(), *module.named_buffers())
    return {name: tensor for name, tensor in named if tensor.is_floating_point()}


def _same_names(found: Mapping[str, Any], expected: Mapping[str, Any], what: str) -> None:
    missing, extra = sorted(expected.keys() - found.keys()), sorted(found.keys() - expected.keys())
    if missing or extra:
        raise ValueError(
            f"{what} does not match the average: missing {missing[:3]}, not averaged {extra[:3]}"
        )
