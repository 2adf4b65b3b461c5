"""MuSGD: a momentum optimizer whose matrix updates blend an orthogonalised step with a plain SGD step.

Sources: Jordan et al., "Muon", 2024 (orthogonalised momentum); Liu et al., "Muon is Scalable for LLM
Training", arXiv:2502.16982 (update scale 0.2 sqrt(max(rows, columns))).
"""

import math
from collections.abc import Callable, Iterable, Iterator
from typing import Any, overload

import torch
from torch import Tensor

from lucid_optim.buckets import independent, matrix_shape, same_kind_buckets, same_shape_buckets
from lucid_optim.newton_schulz import newton_schulz, newton_schulz_batch

# how the work is submitted is no part of the optimizer's state; files that carry these entries still load
_EXECUTION_FLAGS = ("capture_orthogonalization", "capture_updates")
_BUFFER = "momentum_buffer"
# parameters written together, and the update each is to lose `lr` times
_Batch = tuple[list[Tensor], list[Tensor]]


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

    ``batched`` orthogonalises matrices of one shape together and sends elementwise work in lists; the
    result differs from the one-at-a-time form (``batched=False``, the reference) by rounding alone. It is
    not part of the state.

    Raises ValueError naming the setting for a negative or NaN ``lr``, ``weight_decay``, ``w_muon`` or
    ``w_sgd``, a ``momentum`` outside [0, 1), or ``ns_steps`` < 1; TypeError for a parameter that is not
    real floating point.

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
        batched: bool = True,
    ) -> None:
        defaults = {
            "lr": lr,
            "momentum": momentum,
            "weight_decay": weight_decay,
            "w_muon": w_muon,
            "w_sgd": w_sgd,
            "ns_steps": ns_steps,
        }
        _check_settings(defaults)
        self.batched = batched
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
                _foreach_add_(parameters, updates, -group["lr"])
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
        return {**super().__getstate__(), "batched": self.batched}

    def _updates(self, group: dict[str, Any]) -> Iterator[_Batch]:
        """Yield batches of parameters with their updates; each is written before the next is made."""
        parameters = [p for p in group["params"] if p.grad is not None]
        if any(p.grad.is_sparse for p in parameters):
            raise ValueError("MuSGD needs dense gradients; build embeddings with sparse=False")
        grads = [p.grad.to(_working_dtype(p)) for p in parameters]
        buffers = [self._buffer(p) for p in parameters]
        if self.batched and independent([*parameters, *grads, *buffers]):
            yield from _batched_updates(group, parameters, grads, buffers)
        else:
            for parameter, grad, buffer in zip(parameters, grads, buffers, strict=True):
                yield [parameter], [_scalar_update(group, parameter, grad, buffer)]

    def _buffer(self, parameter: Tensor) -> Tensor:
        state = self.state[parameter]
        if _BUFFER not in state:
            state[_BUFFER] = torch.zeros_like(parameter, dtype=_working_dtype(parameter))
        buffer: Tensor = state[_BUFFER]
        return buffer


def _scalar_update(group: dict[str, Any], parameter: Tensor, grad: Tensor, buffer: Tensor) -> Tensor:
    """Return the update of one parameter, the definition that the batched form is held to."""
    momentum, decay, w_muon, w_sgd = (group[k] for k in ("momentum", "weight_decay", "w_muon", "w_sgd"))
    buffer.mul_(momentum).add_(grad)
    ahead = grad.add(buffer, alpha=momentum)
    if ahead.dim() < 2 or not ahead.numel():
        return ahead
    if w_muon == 0:
        update: Tensor = ahead * w_sgd
    else:
        rows, columns = matrix_shape(ahead)
        update = newton_schulz(ahead.reshape(rows, columns), group["ns_steps"])
        update = update.mul_(_scale(rows, columns)).mul_(w_muon).reshape(ahead.shape)
        update = update.add_(ahead, alpha=w_sgd)
    if decay != 0:
        update = update.add_(parameter, alpha=decay)
    return update


def _batched_updates(
    group: dict[str, Any], parameters: list[Tensor], grads: list[Tensor], buffers: list[Tensor]
) -> Iterator[_Batch]:
    """Yield the same updates for a whole group: one momentum pass, then one batch per matrix shape."""
    momentum, decay, w_muon, w_sgd = (group[k] for k in ("momentum", "weight_decay", "w_muon", "w_sgd"))
    ahead = _look_ahead(grads, buffers, momentum)
    matrices = [i for i, n in enumerate(ahead) if n.dim() >= 2 and n.numel()]
    chosen = set(matrices)
    vectors = [i for i in range(len(ahead)) if i not in chosen]
    for kind in same_kind_buckets([parameters[i] for i in vectors]):
        members = [vectors[i] for i in kind]
        yield [parameters[i] for i in members], [ahead[i] for i in members]
    for bucket in same_shape_buckets([ahead[i] for i in matrices]):
        members = [matrices[i] for i in bucket]
        weights, steps = [parameters[i] for i in members], [ahead[i] for i in members]
        if w_muon == 0:
            updates = list(torch._foreach_mul(steps, w_sgd))
        else:
            updates = _orthogonal(steps, group["ns_steps"], w_muon)
            _foreach_add_(updates, steps, w_sgd)
        if decay != 0:
            _foreach_add_(updates, weights, decay)
        yield weights, updates


def _look_ahead(grads: list[Tensor], buffers: list[Tensor], momentum: float) -> list[Tensor]:
    """Advance the buffers in place and return the look-ahead vectors, byte-equal to one at a time."""
    ahead: list[Tensor] = [*grads]
    for bucket in same_kind_buckets(grads):
        some_grads, some_buffers = [grads[i] for i in bucket], [buffers[i] for i in bucket]
        torch._foreach_mul_(some_buffers, momentum)
        torch._foreach_add_(some_buffers, some_grads)
        for i, n in zip(bucket, torch._foreach_add(some_grads, some_buffers, alpha=momentum), strict=True):
            ahead[i] = n
    return ahead


def _orthogonal(steps: list[Tensor], ns_steps: int, w_muon: float) -> list[Tensor]:
    """Return the scaled orthogonal parts of same-shaped tensors, each in its tensor's shape."""
    rows, columns = matrix_shape(steps[0])
    if len(steps) == 1:
        stack = newton_schulz(steps[0].reshape(rows, columns), ns_steps).unsqueeze(0)
    else:
        stack = newton_schulz_batch(torch.stack(steps).reshape(-1, rows, columns), ns_steps)
    # tall stacks come back as transposed views: one copy here, not one strided pass per addition
    stack = stack.mul_(_scale(rows, columns)).mul_(w_muon).contiguous()
    updates = list(stack.reshape(-1, *steps[0].shape).unbind())
    if all(update.stride() == step.stride() for update, step in zip(updates, steps, strict=True)):
        return updates
    # list operations are fast only where layouts agree, and channels-last kernels do not agree with matrices
    aligned = [torch.empty_like(step) for step in steps]
    torch._foreach_copy_(aligned, updates)
    return aligned


def _foreach_add_(targets: list[Tensor], sources: list[Tensor], alpha: float) -> None:
    torch._foreach_add_(targets, sources, alpha=alpha)


def _scale(rows: int, columns: int) -> float:
    return 0.2 * math.sqrt(max(rows, columns))


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
