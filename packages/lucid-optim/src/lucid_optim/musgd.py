"""MuSGD: a momentum optimizer whose matrix updates blend an orthogonalised step with a plain SGD step.

Sources: Jordan et al., "Muon", 2024 (orthogonalised momentum); Liu et al., "Muon is Scalable for LLM
Training", arXiv:2502.16982 (update scale 0.2 sqrt(max(rows, columns))).
"""

from collections.abc import Callable, Iterable, Iterator
from typing import Any, get_args, overload

import torch
from torch import Tensor

from lucid_optim.buckets import independent
from lucid_optim.newton_schulz import Route
from lucid_optim.presets import PRESETS
from lucid_optim.updates import Batch, batched_updates, scalar_update

# how the work is submitted is no part of the optimizer's state; files that carry these entries still load
_EXECUTION_FLAGS = ("capture_orthogonalization", "capture_updates")
_BUFFER = "momentum_buffer"


class MuSGD(torch.optim.Optimizer):
    """Muon and SGD in one optimizer for any network; a tensor's rank alone decides its rule.

    With gradient g and one momentum buffer per parameter, ``m = momentum * m + g`` and ``n = g + momentum *
    m``:

    * fewer than two axes (biases, normalisation): ``W -= lr * n``, never decayed;
    * two or more axes, seen as a matrix A x B (first axis by the rest): ``W -= lr * (w_muon * 0.2 *
      sqrt(max(A, B)) * orthogonal(n) + w_sgd * n + weight_decay * W)``.

    Every setting is a param-group entry and may differ between groups and change between steps. Parameters
    without a gradient are skipped entirely. Half-precision parameters keep a float32 buffer and are updated
    in float32.

    ``ns_preset`` names the coefficients of `newton_schulz` (a row of `PRESETS`).

    How the work is submitted is not part of the state. ``batched`` orthogonalises matrices together and
    sends elementwise work in lists; the result differs from the one-at-a-time form (``batched=False``, the
    reference) by rounding alone. ``route`` is that of `newton_schulz_batch`; None takes the fastest of
    those that are as accurate as the direct one, stack by stack.

    Raises ValueError naming the setting for a negative or NaN ``lr``, ``weight_decay``, ``w_muon`` or
    ``w_sgd``, a ``momentum`` outside [0, 1), ``ns_steps`` < 1, or an unknown ``ns_preset`` or ``route``;
    TypeError for a parameter that is not real floating point.

    >>> layer = torch.nn.Linear(4, 2)
    >>> optimizer = MuSGD(layer.parameters(), lr=0.01)
    >>> layer(torch.ones(1, 4)).sum().backward()
    >>> optimizer.step()
    """

    def __init__(
        self,
        params: Iterable[Any],
        lr: float,
        momentum: float = 0.95,
        weight_decay: float = 5e-4,
        w_muon: float = 0.5,
        w_sgd: float = 0.5,
        ns_steps: int = 5,
        *,
        ns_preset: str = "quintic",
        batched: bool = True,
        route: Route | None = None,
    ) -> None:
        defaults = {
            "lr": lr,
            "momentum": momentum,
            "weight_decay": weight_decay,
            "w_muon": w_muon,
            "w_sgd": w_sgd,
            "ns_steps": ns_steps,
            "ns_preset": ns_preset,
        }
        _check_settings(defaults)
        if route not in (None, *get_args(Route)):
            raise ValueError(f"route must be None or one of {get_args(Route)}, got {route!r}")
        self.batched = batched
        self.route = route
        super().__init__(params, defaults)

    def add_param_group(self, param_group: dict[str, Any]) -> None:
        """Add a group of parameters; entries it lacks take the constructor's values."""
        _check_settings(self.defaults | param_group)
        super().add_param_group(param_group)
        for parameter in self.param_groups[-1]["params"]:
            if not parameter.is_floating_point():
                self.param_groups.pop()
                raise TypeError(f"MuSGD updates real floating-point parameters, got {parameter.dtype}")

    @overload
    def step(self, closure: None = None) -> None: ...

    @overload
    def step(self, closure: Callable[[], float]) -> float: ...

    @torch.no_grad()
    def step(self, closure: Callable[[], float] | None = None) -> float | None:
        """Update every parameter that has a gradient; return the value of ``closure``, or None without one.

        The closure is called once, first, with gradients enabled.
        """
        value = None
        if closure is not None:
            with torch.enable_grad():
                value = closure()
        for group in self.param_groups:
            for parameters, updates in self._updates(group):
                torch._foreach_add_(parameters, updates, alpha=-group["lr"])
        return value

    def load_state_dict(self, state_dict: dict[str, Any]) -> None:
        """Load the state of `state_dict`; how this object executes (``batched``) does not change."""
        groups = [
            {k: v for k, v in g.items() if k not in _EXECUTION_FLAGS} for g in state_dict["param_groups"]
        ]
        super().load_state_dict({**state_dict, "param_groups": groups})
        saved = (state_dict["state"].get(index) for group in groups for index in group["params"])
        live = (parameter for group in self.param_groups for parameter in group["params"])
        for parameter, entry in zip(live, saved, strict=True):
            # the base class casts buffers to the parameter's dtype, which would round a float32 buffer
            if entry is not None and _working_dtype(parameter) != parameter.dtype:
                buffer = entry[_BUFFER].to(parameter.device, _working_dtype(parameter), copy=True)
                self.state[parameter][_BUFFER] = buffer

    def __getstate__(self) -> dict[str, Any]:
        return {**super().__getstate__(), "batched": self.batched, "route": self.route}

    def _updates(self, group: dict[str, Any]) -> Iterator[Batch]:
        """Yield batches of parameters with their updates; each is written before the next is made."""
        parameters = [p for p in group["params"] if p.grad is not None]
        if any(p.grad.is_sparse for p in parameters):
            raise ValueError("MuSGD needs dense gradients; build embeddings with sparse=False")
        grads = [p.grad.to(_working_dtype(p)) for p in parameters]
        buffers = [self._buffer(p) for p in parameters]
        if self.batched and _alike(grads, buffers) and independent([*parameters, *grads, *buffers]):
            yield from batched_updates(group, parameters, grads, buffers, route=self.route)
        else:
            for parameter, grad, buffer in zip(parameters, grads, buffers, strict=True):
                yield [parameter], [scalar_update(group, parameter, grad, buffer)]

    def _buffer(self, parameter: Tensor) -> Tensor:
        state = self.state[parameter]
        if _BUFFER not in state:
            state[_BUFFER] = torch.zeros_like(parameter, dtype=_working_dtype(parameter))
        buffer: Tensor = state[_BUFFER]
        return buffer


def _alike(grads: list[Tensor], buffers: list[Tensor]) -> bool:
    """Return whether restored buffers are what a list operation expects beside the gradients."""
    return all(
        b.shape == g.shape and b.dtype == g.dtype and b.device == g.device
        for g, b in zip(grads, buffers, strict=True)
    )


def _working_dtype(parameter: Tensor) -> torch.dtype:
    dtype: torch.dtype = torch.promote_types(parameter.dtype, torch.float32)
    return dtype


def _check_settings(settings: dict[str, Any]) -> None:
    for name in ("lr", "weight_decay", "w_muon", "w_sgd"):
        # not >=, so that NaN is refused too
        if not settings[name] >= 0:
            raise ValueError(f"{name} must be a non-negative number, got {settings[name]}")
    if not 0 <= settings["momentum"] < 1:
        raise ValueError(f"momentum must lie in [0, 1), got {settings['momentum']}")
    if settings["ns_steps"] < 1:
        raise ValueError(f"ns_steps must be at least 1, got {settings['ns_steps']}")
    if settings["ns_preset"] not in PRESETS:
        raise ValueError(f"ns_preset must be one of {sorted(PRESETS)}, got {settings['ns_preset']!r}")
