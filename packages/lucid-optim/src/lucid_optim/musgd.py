"""MuSGD: a momentum optimizer whose matrix updates blend an orthogonalised step with a plain SGD step.

Sources: Jordan et al., "Muon", 2024 (orthogonalised momentum); Liu et al., "Muon is Scalable for LLM
Training", arXiv:2502.16982 (update scale 0.2 sqrt(max(rows, columns))).
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from typing import Any, get_args, overload

import torch
import torch.distributed as dist
from torch import Tensor

from lucid_capture import GuardedRegion, Reason, RecorderBackend
from lucid_optim.buckets import independent, same_kind_buckets
from lucid_optim.newton_schulz import Route
from lucid_optim.presets import PRESETS
from lucid_optim.replay import UpdateCertificate, orthogonalization_region, replayed, updates_region
from lucid_optim.sharding import shared_among
from lucid_optim.updates import NATIVE, Batch, batched_updates, compute_all, scalar_update

# how the work is submitted is no part of the optimizer's state; files that carry these entries still load
_EXECUTION = ("batched", "route", "capture_orthogonalization", "capture_updates")
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
    in float32. ``ns_preset`` names the coefficients of `newton_schulz` (a row of `PRESETS`).

    How the work is submitted is not part of the state:

    * ``batched`` orthogonalises matrices together and sends elementwise work in lists; the result differs
      from the one-at-a-time form (``batched=False``, the reference) by rounding alone.
    * ``route`` is that of `newton_schulz_batch`; None takes the fastest of those that are as accurate as the
      direct one, stack by stack.
    * ``capture_orthogonalization`` replays the two Newton-Schulz functions and ``capture_updates`` the whole
      preparation of each group's updates by ``backend``, with the same bytes; ``regions`` has the counters.
      Copies and pickles carry neither recordings nor the back-end and run natively.
    * ``shard``, a process group whose ranks hold the same gradients, leaves each stack to one rank and
      gathers the results; copies and pickles are not sharded.

    Raises ValueError naming the setting for a negative or NaN ``lr``, ``weight_decay``, ``w_muon`` or
    ``w_sgd``, a ``momentum`` outside [0, 1), ``ns_steps`` < 1, an unknown ``ns_preset`` or ``route``, a
    capture without ``backend``, and ``capture_updates`` with ``shard``; TypeError for a parameter that is
    not real floating point.

    >>> layer = torch.nn.Linear(4, 2)
    >>> optimizer = MuSGD(layer.parameters(), lr=0.01)
    >>> layer(torch.ones(1, 4)).sum().backward()
    >>> optimizer.step()
    """

    def __init__(
        self,
        params: Iterable[Any],
        lr: float | Tensor,
        momentum: float = 0.95,
        weight_decay: float = 5e-4,
        w_muon: float = 0.5,
        w_sgd: float = 0.5,
        ns_steps: int = 5,
        capture_orthogonalization: bool = False,
        capture_updates: bool = False,
        *,
        ns_preset: str = "quintic",
        batched: bool = True,
        route: Route | None = None,
        backend: RecorderBackend | None = None,
        shard: dist.ProcessGroup | None = None,
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
        if (capture_orthogonalization or capture_updates) and backend is None:
            raise ValueError("capturing needs a back-end that records: pass backend=, of lucid_capture")
        if capture_updates and shard is not None:
            raise ValueError("capture_updates records no collectives: leave out capture_updates or shard")
        self.batched = batched
        self.route = route
        self.capture_orthogonalization = capture_orthogonalization
        self.capture_updates = capture_updates
        self._attach(backend, shard)
        super().__init__(params, defaults)

    @property
    def regions(self) -> tuple[GuardedRegion, ...]:
        """The guarded regions of the captures, for `lucid_capture.ReplayReport` or a `RegionGroup`."""
        own = () if self._orthogonalization is None else (self._orthogonalization,)
        return (*own, *self._group_regions)

    def add_param_group(self, param_group: dict[str, Any]) -> None:
        """Add a group of parameters; entries it lacks take the constructor's values."""
        _check_settings(self.defaults | param_group)
        super().add_param_group(param_group)
        for parameter in self.param_groups[-1]["params"]:
            if not parameter.is_floating_point():
                self.param_groups.pop()
                raise TypeError(f"MuSGD updates real floating-point parameters, got {parameter.dtype}")
        if self._orthogonalization is not None:
            matrices = sum(p.dim() >= 2 for group in self.param_groups for p in group["params"])
            self._orthogonalization.capacity = max(1, matrices)
        if self.capture_updates and self._backend is not None:
            self._group_regions.append(self._region(len(self.param_groups) - 1, self._backend))

    @overload
    def step(self, closure: None = None) -> None: ...

    @overload
    def step(self, closure: Callable[[], float]) -> float: ...

    @torch.no_grad()
    def step(self, closure: Callable[[], float] | None = None) -> float | None:
        """Update every parameter that has a gradient; return the value of ``closure``, or None without one.

        The closure is called once, first, with gradients enabled. A learning rate that is a 0-d tensor is
        not read by the host, so a whole step can be recorded; it rounds once more than a number does.
        """
        value = None
        if closure is not None:
            with torch.enable_grad():
                value = closure()
        for group in self.param_groups:
            lr = group["lr"]
            for parameters, updates in self._updates(group):
                if isinstance(lr, Tensor):
                    torch._foreach_sub_(parameters, torch._foreach_mul(updates, lr))
                else:
                    torch._foreach_add_(parameters, updates, alpha=-lr)
        return value

    def load_state_dict(self, state_dict: dict[str, Any]) -> None:
        """Load the state of `state_dict`; how this object executes does not change, recordings are dropped.

        Settings the saved groups lack keep this object's values.
        """
        saved_groups = state_dict["param_groups"]
        groups = [{k: v for k, v in group.items() if k not in _EXECUTION} for group in saved_groups]
        # the base class refuses another number of groups
        for own, group in zip(self.param_groups, groups, strict=False):
            # the base class adds defaults of its own, which groups may lack
            for name in self.defaults.keys() & own.keys():
                group.setdefault(name, own[name])
        super().load_state_dict({**state_dict, "param_groups": groups})
        saved = (state_dict["state"].get(index) for group in groups for index in group["params"])
        live = (parameter for group in self.param_groups for parameter in group["params"])
        for parameter, entry in zip(live, saved, strict=True):
            # the base class casts buffers to the parameter's dtype, which would round a float32 buffer
            if entry is not None and _working_dtype(parameter) != parameter.dtype:
                buffer = entry[_BUFFER].to(parameter.device, _working_dtype(parameter), copy=True)
                self.state[parameter][_BUFFER] = buffer
        for region in self.regions:
            region.drop()

    def __getstate__(self) -> dict[str, Any]:
        return {**super().__getstate__(), **{name: getattr(self, name) for name in _EXECUTION}}

    def __setstate__(self, state: dict[str, Any]) -> None:
        super().__setstate__(state)
        if "_backend" not in self.__dict__:
            self._attach(None, None)

    def _attach(self, backend: RecorderBackend | None, shard: dist.ProcessGroup | None) -> None:
        """Take the parts that belong to this object alone, not to its copies."""
        self._backend = backend
        self._group_regions: list[GuardedRegion] = []
        self._orthogonalization: GuardedRegion | None = None
        if self.capture_orthogonalization and backend is not None:
            self._orthogonalization = orthogonalization_region(backend)
        region = self._orthogonalization
        self._run = NATIVE if region is None else replayed(region)
        self._share = compute_all if shard is None else shared_among(shard)

    def _updates(self, group: dict[str, Any]) -> Iterator[Batch]:
        """Yield batches of parameters with their updates; each is written before the next is made."""
        parameters = [p for p in group["params"] if p.grad is not None]
        if any(p.grad.is_sparse for p in parameters):
            raise ValueError("MuSGD needs dense gradients; build embeddings with sparse=False")
        grads = [p.grad.to(_working_dtype(p)) for p in parameters]
        buffers = [self._buffer(p) for p in parameters]
        together = self.batched and _alike(grads, buffers) and independent([*parameters, *grads, *buffers])
        region = self._usable_region(group, parameters, together)
        if region is not None:
            yield from _by_kind(parameters, region(grads))
        elif together:
            yield from self._batches(group, parameters, grads, buffers)
        else:
            for parameter, grad, buffer in zip(parameters, grads, buffers, strict=True):
                yield [parameter], [scalar_update(group, parameter, grad, buffer, self._run.scalar)]

    def _batches(
        self, group: Mapping[str, Any], parameters: list[Tensor], grads: list[Tensor], buffers: list[Tensor]
    ) -> Iterator[Batch]:
        return batched_updates(
            group, parameters, grads, buffers, route=self.route, run=self._run.batched, share=self._share
        )

    def _buffer(self, parameter: Tensor) -> Tensor:
        state = self.state[parameter]
        if _BUFFER not in state:
            state[_BUFFER] = torch.zeros_like(parameter, dtype=_working_dtype(parameter))
        buffer: Tensor = state[_BUFFER]
        return buffer

    def _region(self, index: int, backend: RecorderBackend) -> GuardedRegion:
        """Return the region that prepares the updates of group ``index``."""

        def read() -> tuple[Sequence[Tensor], Sequence[Tensor], Mapping[str, Any], Route | None]:
            group = self.param_groups[index]
            return group["params"], [self._buffer(p) for p in group["params"]], group, self.route

        def prepare(grads: list[Tensor]) -> list[Tensor]:
            parameters, buffers, group, _ = read()
            made = self._batches(group, list(parameters), grads, list(buffers))
            update_of = {id(p): u for batch in made for p, u in zip(*batch, strict=True)}
            return [update_of[id(p)] for p in parameters]

        return updates_region(f"updates {index}", prepare, UpdateCertificate(read), backend)

    def _usable_region(
        self, group: dict[str, Any], parameters: list[Tensor], together: bool
    ) -> GuardedRegion | None:
        """Return the region of a group when it may prepare this step's updates at all."""
        # a subclass that rewrites the updates might write parameters while they are recorded
        if not self._group_regions or type(self)._updates is not MuSGD._updates:
            return None
        # groups written into the list by hand have no region
        pairs = zip(self.param_groups, self._group_regions, strict=False)
        region = next((r for g, r in pairs if g is group), None)
        if region is None:
            return None
        if not together:
            region.counts[Reason.ALIASED] += 1
            return None
        whole = len(parameters) == len(group["params"])
        if not whole or any(p.dtype != torch.float32 for p in parameters):
            region.counts[Reason.DECLINED] += 1
            return None
        return region


def _by_kind(parameters: list[Tensor], updates: list[Tensor]) -> Iterator[Batch]:
    for bucket in same_kind_buckets(parameters):
        yield [parameters[i] for i in bucket], [updates[i] for i in bucket]


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
