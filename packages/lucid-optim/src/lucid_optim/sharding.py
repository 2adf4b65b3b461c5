"""Orthogonalisation shared among the ranks of a process group, whole stacks each, results gathered by all.

Every rank must hold the same gradients, as after data-parallel reduction. Stacks are not split, so a result
has the bytes it has without sharding, on any number of ranks of one kind of machine.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence

import torch
import torch.distributed as dist
from torch import Tensor

from lucid_optim.updates import Shaped, Share, compute_all


def assign(stacks: Sequence[Shaped], ranks: int) -> list[int]:
    """Return the rank of each stack: the dearest first, each to the rank with the least so far.

    >>> f32, cpu = torch.float32, torch.device("cpu")
    >>> assign([Shaped((1, 8, 8), f32, cpu), Shaped((3, 8, 8), f32, cpu), Shaped((2, 8, 8), f32, cpu)], 2)
    [1, 0, 1]
    """
    load, owner = [0] * ranks, [0] * len(stacks)
    for index in sorted(range(len(stacks)), key=lambda i: (-_cost(stacks[i]), i)):
        owner[index] = load.index(min(load))
        load[owner[index]] += _cost(stacks[index])
    return owner


def shared_among(group: dist.ProcessGroup) -> Share:
    """Return the way to compute a list of stacks that leaves each to one rank of ``group``."""

    def share(stacks: Sequence[Shaped], compute: Callable[[int], Tensor]) -> Iterator[Tensor]:
        if dist.get_world_size(group) == 1:
            yield from compute_all(stacks, compute)
            return
        owner = assign(stacks, dist.get_world_size(group))
        rank = dist.get_rank(group)
        own = {i: compute(i) for i in range(len(stacks)) if owner[i] == rank}
        found: dict[int, Tensor] = {}
        kinds = {(stack.dtype, stack.device): None for stack in stacks}
        for dtype, device in kinds:
            members = [i for i, s in enumerate(stacks) if (s.dtype, s.device) == (dtype, device)]
            found |= _gathered(stacks, own, owner, members, group)
        yield from (found[i] for i in range(len(stacks)))

    return share


def _gathered(
    stacks: Sequence[Shaped],
    own: dict[int, Tensor],
    owner: list[int],
    members: list[int],
    group: dist.ProcessGroup,
) -> dict[int, Tensor]:
    """Return the results of stacks of one dtype and device from whichever rank has them, in one collective."""
    ranks, rank = dist.get_world_size(group), dist.get_rank(group)
    held = [[i for i in members if owner[i] == r] for r in range(ranks)]
    length = max(sum(_numel(stacks[i]) for i in indices) for indices in held)
    first = stacks[members[0]]
    mine = torch.zeros(length, dtype=first.dtype, device=first.device)
    for i, slot in _slots(stacks, held[rank], mine):
        slot.copy_(own[i])
    everyone = torch.empty(ranks * length, dtype=first.dtype, device=first.device)
    dist.all_gather_into_tensor(everyone, mine, group=group)
    chunks = zip(held, everyone.view(ranks, length).unbind(), strict=True)
    return {i: slot for indices, chunk in chunks for i, slot in _slots(stacks, indices, chunk)}


def _slots(stacks: Sequence[Shaped], indices: list[int], flat: Tensor) -> Iterator[tuple[int, Tensor]]:
    """Yield where the results of ``indices`` lie in a rank's flat buffer."""
    start = 0
    for i in indices:
        yield i, flat[start : start + _numel(stacks[i])].view(stacks[i].shape)
        start += _numel(stacks[i])


def _numel(stack: Shaped) -> int:
    count, rows, columns = stack.shape
    return count * rows * columns


def _cost(stack: Shaped) -> int:
    count, *sides = stack.shape
    small, large = min(sides), max(sides)
    return count * small * small * (2 * large + small)
