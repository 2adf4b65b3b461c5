"""The processes of one run: which of them this is, and how they agree.

Ranks and sizes are read from the variables that ``torchrun`` sets; :mod:`lucid_train.launch` sets the same ones.
What processes agree on are small host values, so agreements go by gloo, whatever carries gradients.
"""

import logging
import os
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any, TypeVar

import torch
import torch.distributed as dist
from torch import Tensor

from lucid_data import available_cpus

T = TypeVar("T")


def launched() -> bool:
    """Return whether a launcher started this process as one of several."""
    return int(os.environ.get("WORLD_SIZE", "1")) > 1 and "RANK" in os.environ and "LOCAL_RANK" in os.environ


def rank() -> int:
    """Return this process's number in the run, 0 for a run of one."""
    return int(os.environ["RANK"]) if launched() else 0


def world_size() -> int:
    """Return how many processes train together, 1 outside a fit."""
    return dist.get_world_size() if dist.is_available() and dist.is_initialized() else 1


def is_main_process() -> bool:
    """Return whether this process writes, prints and draws for its run: rank 0, or the only one.

    Example:
        >>> is_main_process()
        True
    """
    return rank() == 0


@contextmanager
def joined(device: str, store: Any = None) -> Iterator[None]:
    """Have this process be in the group of its run while the context lasts.

    Args:
        device: ``cpu`` or ``cuda``; chooses what carries gradients.
        store: where the processes meet; None takes the address that the launcher named.
    """
    if device == "cuda":
        torch.cuda.set_device(int(os.environ["LOCAL_RANK"]))
    dist.init_process_group(
        "cpu:gloo,cuda:nccl" if device == "cuda" else "gloo",
        store=store,
        rank=rank(),
        world_size=int(os.environ["WORLD_SIZE"]),
    )
    log = logging.getLogger("lucid")
    level = log.level
    if rank() > 0:
        log.setLevel(logging.ERROR)  # messages are rank 0's
    try:
        yield
    finally:
        log.setLevel(level)
        dist.destroy_process_group()


def from_first(value: T) -> T:
    """Return rank 0's value in every process."""
    if world_size() == 1:
        return value
    box = [value]
    dist.broadcast_object_list(box, src=0)
    return box[0]


def gathered(value: T) -> list[T]:
    """Return every process's value, in rank order, in every process."""
    if world_size() == 1:
        return [value]
    values: list[Any] = [None] * world_size()
    dist.all_gather_object(values, value)
    return values


def at_first(value: T) -> list[T] | None:
    """Return every process's value, in rank order, in rank 0; None elsewhere."""
    if world_size() == 1:
        return [value]
    values: list[Any] | None = [None] * world_size() if rank() == 0 else None
    dist.gather_object(value, values)
    return values


def summed(values: Tensor) -> Tensor:
    """Return the sum over processes of a host tensor; the same bits in each of them."""
    if world_size() > 1:
        values = values.clone()
        dist.all_reduce(values)
    return values


def any_of(flag: bool) -> bool:
    """Return whether the flag is set in any process."""
    return flag if world_size() == 1 else bool(summed(torch.tensor(int(flag))))


def loader_workers(wanted: int | None) -> int | None:
    """Return the loader processes of this process: those asked for, else None alone and a fair share among several."""
    if wanted is not None or world_size() == 1:
        return wanted
    here = int(os.environ.get("LOCAL_WORLD_SIZE", world_size()))
    return max(1, available_cpus() // (2 * here))
