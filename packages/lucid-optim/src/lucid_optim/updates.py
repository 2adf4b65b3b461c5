"""What a step subtracts from parameters, one at a time (the definition) and in stacks (within rounding)."""

import math
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor

from lucid_optim.buckets import MatrixKind, Stack, matrix_shape, same_kind_buckets, stacks
from lucid_optim.newton_schulz import Route, newton_schulz, newton_schulz_batch

Settings = Mapping[str, Any]
# parameters written together, and the update each is to lose `lr` times
Batch = tuple[list[Tensor], list[Tensor]]
# orthogonalises one matrix (steps, preset); a stack of them (steps, preset, route)
Scalar = Callable[[Tensor, int, str], Tensor]
Batched = Callable[[Tensor, int, str, Route], Tensor]
# gives the results of `compute` for a list of stacks, whose shapes and dtypes it is told, in order
Share = Callable[[Sequence["Shaped"], Callable[[int], Tensor]], Iterator[Tensor]]


@dataclass(frozen=True)
class Shaped:
    """The shape, dtype and device of a stack that may be computed elsewhere."""

    shape: tuple[int, int, int]
    dtype: torch.dtype
    device: torch.device


def orthogonalize(x: Tensor, steps: int, preset: str) -> Tensor:
    """Return `newton_schulz` of one matrix."""
    return newton_schulz(x, steps, preset=preset)


def orthogonalize_batch(x: Tensor, steps: int, preset: str, route: Route) -> Tensor:
    """Return `newton_schulz_batch` of a stack."""
    return newton_schulz_batch(x, steps, preset=preset, route=route)


@dataclass(frozen=True)
class Orthogonalizers:
    """The two pure functions an update calls, so that recordings of them can take their place."""

    scalar: Scalar
    batched: Batched


NATIVE = Orthogonalizers(orthogonalize, orthogonalize_batch)


def compute_all(stacks: Sequence[Shaped], compute: Callable[[int], Tensor]) -> Iterator[Tensor]:
    """Yield the result of every stack, each computed when it is asked for."""
    yield from map(compute, range(len(stacks)))


def scalar_update(
    settings: Settings, parameter: Tensor, grad: Tensor, buffer: Tensor, run: Scalar = orthogonalize
) -> Tensor:
    """Return the update of one parameter and advance its buffer: the definition every other form is held to."""
    momentum, decay, w_muon, w_sgd = (settings[k] for k in ("momentum", "weight_decay", "w_muon", "w_sgd"))
    buffer.mul_(momentum).add_(grad)
    ahead = grad.add(buffer, alpha=momentum)
    if ahead.dim() < 2 or not ahead.numel():
        return ahead
    if w_muon == 0:
        update: Tensor = ahead * w_sgd
    else:
        rows, columns = matrix_shape(ahead)
        update = run(ahead.reshape(rows, columns), settings["ns_steps"], settings["ns_preset"])
        # two factors, not their product: the order of rounding is part of the definition
        update = update.mul_(_scale(rows, columns)).mul_(w_muon).reshape(ahead.shape)
        update = update.add_(ahead, alpha=w_sgd)
    if decay != 0:
        update = update.add_(parameter, alpha=decay)
    return update


def batched_updates(
    settings: Settings,
    parameters: list[Tensor],
    grads: list[Tensor],
    buffers: list[Tensor],
    *,
    route: Route | None = None,
    run: Batched = orthogonalize_batch,
    share: Share = compute_all,
) -> Iterator[Batch]:
    """Yield the same updates for a whole group: one momentum pass, then one batch per stack of matrices.

    ``route`` None takes the one that suits each stack (`suitable_route`). The tensors must not overlap.
    """
    w_muon, w_sgd, decay = (settings[k] for k in ("w_muon", "w_sgd", "weight_decay"))
    ahead = look_ahead(grads, buffers, settings["momentum"])
    matrices = [i for i, n in enumerate(ahead) if n.dim() >= 2 and n.numel()]
    chosen = set(matrices)
    vectors = [i for i in range(len(ahead)) if i not in chosen]
    for kind in same_kind_buckets([parameters[i] for i in vectors]):
        members = [vectors[i] for i in kind]
        yield [parameters[i] for i in members], [ahead[i] for i in members]
    plan = stacks([_kind(parameters[i], ahead[i]) for i in matrices])
    steps_of = [[ahead[matrices[i]] for i in stack.members] for stack in plan]

    def orthogonal(index: int) -> Tensor:
        source = stacked(steps_of[index], plan[index])
        chosen_route = suitable_route(source) if route is None else route
        return run(source, settings["ns_steps"], settings["ns_preset"], chosen_route)

    if w_muon == 0:
        results: Iterator[Tensor | None] = iter([None] * len(plan))
    else:
        results = share([_shaped(steps, s) for steps, s in zip(steps_of, plan, strict=True)], orthogonal)
    for stack, steps, result in zip(plan, steps_of, results, strict=True):
        weights = [parameters[matrices[i]] for i in stack.members]
        if result is None:
            updates = list(torch._foreach_mul(steps, w_sgd))
        else:
            updates = unstacked(result, weights, steps, stack, w_muon)
            _foreach_add_(updates, steps, w_sgd)
        if decay != 0:
            _foreach_add_(updates, weights, decay)
        yield weights, updates


def look_ahead(grads: list[Tensor], buffers: list[Tensor], momentum: float) -> list[Tensor]:
    """Advance the buffers in place and return the look-ahead vectors, byte-equal to one at a time.

    A device gets three calls for all tensors of a kind; a host three per tensor, which finds it in its cache.
    """
    ahead: list[Tensor] = [*grads]
    for bucket in same_kind_buckets(grads):
        advance = look_ahead_one_by_one if grads[bucket[0]].device.type == "cpu" else look_ahead_in_lists
        made = advance([grads[i] for i in bucket], [buffers[i] for i in bucket], momentum)
        for i, n in zip(bucket, made, strict=True):
            ahead[i] = n
    return ahead


def look_ahead_one_by_one(grads: list[Tensor], buffers: list[Tensor], momentum: float) -> list[Tensor]:
    """Advance buffers of one kind, one after the other."""
    return [g.add(m.mul_(momentum).add_(g), alpha=momentum) for g, m in zip(grads, buffers, strict=True)]


def look_ahead_in_lists(grads: list[Tensor], buffers: list[Tensor], momentum: float) -> list[Tensor]:
    """Advance buffers of one kind in three calls, with the same bytes."""
    torch._foreach_mul_(buffers, momentum)
    torch._foreach_add_(buffers, grads)
    return list(torch._foreach_add(grads, buffers, alpha=momentum))


def suitable_route(stack: Tensor) -> Route:
    """Return the route of least time among those as accurate as the direct one.

    On a host that is the least arithmetic, with a margin for smaller products; on a device, where it was not
    measured, the fewest launches.

    >>> suitable_route(torch.zeros(1, 8, 64)), suitable_route(torch.zeros(1, 8, 8))
    ('staged', 'direct')
    """
    small, large = sorted(stack.shape[1:])
    wide = large >= (1.5 if small >= 256 else 2) * small
    return "staged" if stack.device.type == "cpu" and wide else "direct"


def stacked(steps: list[Tensor], stack: Stack) -> Tensor:
    """Return the matrices of a stack as one tensor (N, A, B); transposed and padded where the stack says so."""
    if stack.padded is None:
        rows, columns = matrix_shape(steps[0])
        if len(steps) == 1:
            return steps[0].reshape(1, rows, columns)
        return torch.stack(steps).reshape(-1, rows, columns)
    small, width = stack.padded
    source = steps[0].new_zeros(len(steps), small, width)
    for slot, matrix in zip(source, (_wide(step) for step in steps), strict=True):
        slot[:, : matrix.shape[1]].copy_(matrix)
    return source


def unstacked(
    result: Tensor, weights: list[Tensor], steps: list[Tensor], stack: Stack, w_muon: float
) -> list[Tensor]:
    """Return the scaled orthogonal parts of a stack, each in the shape and layout of its weight."""
    if stack.padded is None:
        rows, columns = matrix_shape(steps[0])
        # tall stacks come back as transposed views: one copy here, not one strided pass per addition
        result = result.mul_(_scale(rows, columns) * w_muon).contiguous()
        parts = list(result.reshape(-1, *steps[0].shape).unbind())
    else:
        parts = []
        for step, slot in zip(steps, result, strict=True):
            rows, columns = matrix_shape(step)
            part = slot[:, : max(rows, columns)] * (_scale(rows, columns) * w_muon)
            parts.append((part.mT if rows > columns else part).reshape(step.shape))
    if all(part.stride() == weight.stride() for part, weight in zip(parts, weights, strict=True)):
        return parts
    # list operations are fast only where layouts agree, and channels-last kernels do not agree with matrices
    aligned = [torch.empty_like(w, dtype=p.dtype) for w, p in zip(weights, parts, strict=True)]
    torch._foreach_copy_(aligned, parts)
    return aligned


def _wide(step: Tensor) -> Tensor:
    rows, columns = matrix_shape(step)
    matrix = step.reshape(rows, columns)
    return matrix.mT if rows > columns else matrix


def _shaped(steps: list[Tensor], stack: Stack) -> Shaped:
    sides = matrix_shape(steps[0]) if stack.padded is None else stack.padded
    return Shaped((len(steps), *sides), steps[0].dtype, steps[0].device)


def _kind(parameter: Tensor, ahead: Tensor) -> MatrixKind:
    return MatrixKind(tuple(ahead.shape), parameter.dtype, ahead.dtype, ahead.device)


def _foreach_add_(targets: list[Tensor], sources: list[Tensor], alpha: float) -> None:
    torch._foreach_add_(targets, sources, alpha=alpha)


def _scale(rows: int, columns: int) -> float:
    return 0.2 * math.sqrt(max(rows, columns))
