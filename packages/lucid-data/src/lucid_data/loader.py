"""Loaders: batches in an order that depends on (seed, epoch) alone, from any number of workers.

Workers hold no state: the sampler in the parent sends (epoch, index) pairs, so workers live through all epochs,
a resumed run continues with the very samples it would have had, and 0, 1 or many workers give equal bytes.
"""

from __future__ import annotations

import os
from collections.abc import Iterator
from typing import Any

import torch
from torch.utils.data import DataLoader, Dataset, Sampler

from lucid_data.batch import Batch, collate
from lucid_data.pipeline import EvalPipeline, Sample, TrainPipeline
from lucid_data.randomness import epoch_order
from lucid_data.workers import PREFETCH, checked_workers

Address = tuple[int, int]
EvalLoader = DataLoader[Any]


class EpochBatches(Sampler[list[Address]]):
    """Yields the batches of one epoch as lists of (epoch, index).

    The permutation of (seed, epoch) is dealt to the ranks in turn, padded by wrapping so that every rank has the
    same number of batches. A last batch of a single sample is left out when there are others.

    >>> batches = EpochBatches(5, 2, seed=0)
    >>> [len(batch) for batch in batches]
    [2, 2]
    """

    def __init__(self, n: int, batch_size: int, seed: int, rank: int = 0, world_size: int = 1) -> None:
        if n < 1 or batch_size < 1:
            raise ValueError(f"need at least one picture and one per batch, got {n} and {batch_size}")
        if not 0 <= rank < world_size:
            raise ValueError(f"rank must be in 0..{world_size - 1}, got {rank}")
        self._n, self._batch_size, self._seed = n, batch_size, seed
        self._rank, self._world_size = rank, world_size
        self.epoch = 0
        self.first_batch = 0

    def __len__(self) -> int:
        mine = -(-self._n // self._world_size)
        whole, rest = divmod(mine, self._batch_size)
        return whole + (rest > 1 or (rest == 1 and whole == 0))

    def __iter__(self) -> Iterator[list[Address]]:
        epoch, first = self.epoch, self.first_batch
        order = epoch_order(self._n, self._seed, epoch)
        mine = -(-self._n // self._world_size)
        take = torch.arange(self._rank, mine * self._world_size, self._world_size) % self._n
        indices = order[take.numpy()].tolist()
        for at in range(first, len(self)):
            part = indices[at * self._batch_size : (at + 1) * self._batch_size]
            yield [(epoch, index) for index in part]


class _TrainSamples(Dataset[Sample]):
    def __init__(self, pipeline: TrainPipeline) -> None:
        self._pipeline = pipeline

    def __getitem__(self, address: Address) -> Sample:
        return self._pipeline(*address)


class _EvalSamples(Dataset[Sample]):
    def __init__(self, pipeline: EvalPipeline) -> None:
        self._pipeline = pipeline

    def __len__(self) -> int:
        return len(self._pipeline)

    def __getitem__(self, index: int) -> Sample:
        return self._pipeline(index)


class TrainLoader:
    """Iterates one epoch of ``Batch``es at a time; made by ``train_loader``.

    ``set_epoch`` chooses the epoch of the next iteration; left alone, epochs follow one another. ``state_dict``
    states the epoch and how many of its batches were handed out; a loader that loads it goes on from there.

    With ``epoch_prefetch`` the workers begin the next epoch when the last batch of one has been fetched, before it is
    handed out. Its order depends on the epoch alone, so an early start that is not used, because another epoch is
    chosen or the run ends, loses nothing. An early start that fails surfaces when that epoch is asked for.
    """

    def __init__(self, loader: DataLoader[Any], batches: EpochBatches, epoch_prefetch: bool = False) -> None:
        self._loader, self._batches = loader, batches
        self._prefetch = epoch_prefetch and loader.num_workers > 0
        self._ready: tuple[int, Iterator[Batch]] | None = None
        self._next_epoch = self._next_batch = 0
        self._epoch = self._done = 0

    def __len__(self) -> int:
        return len(self._batches)

    def set_epoch(self, epoch: int) -> None:
        """Choose the epoch of the next iteration; a resume point within that very epoch is kept."""
        if epoch != self._next_epoch:
            self._next_epoch, self._next_batch = epoch, 0

    def __iter__(self) -> Iterator[Batch]:
        self._epoch, self._done = self._next_epoch, self._next_batch
        self._next_batch = 0
        for batch in self._started():
            self._done += 1
            if self._done == len(self):
                self._next_epoch = self._epoch = self._epoch + 1
                self._done = 0
                if self._prefetch:
                    self._start_next()
                    # persistent workers have one iterator, which stands at the next epoch now
                    yield batch
                    return
            yield batch

    def _started(self) -> Iterator[Batch]:
        ready, self._ready = self._ready, None
        if ready is not None and ready[0] == self._epoch and self._done == 0:
            return ready[1]
        self._batches.epoch, self._batches.first_batch = self._epoch, self._done
        return iter(self._loader)

    def _start_next(self) -> None:
        self._batches.epoch, self._batches.first_batch = self._epoch, 0
        try:
            self._ready = (self._epoch, iter(self._loader))
        except (RuntimeError, OSError) as error:
            self._ready = (self._epoch, _failing(error))

    def state_dict(self) -> dict[str, int]:
        """Return ``{"epoch": e, "batch": k}``: the next batch to hand out is batch k of epoch e."""
        return {"epoch": self._epoch, "batch": self._done}

    def load_state_dict(self, state: dict[str, int]) -> None:
        """Go on at the place that ``state_dict`` stated; ValueError for a place that does not exist."""
        epoch, batch = state["epoch"], state["batch"]
        if epoch < 0 or not 0 <= batch < max(1, len(self)):
            raise ValueError(f"no batch {batch} of epoch {epoch}; an epoch has {len(self)} batches")
        self._epoch = self._next_epoch = epoch
        self._done = self._next_batch = batch


def _failing(error: Exception) -> Iterator[Batch]:
    yield from ()
    raise error


def train_loader(
    pipeline: TrainPipeline,
    batch_size: int,
    *,
    workers: int | None = None,
    seed: int | None = None,
    rank: int = 0,
    world_size: int = 1,
    epoch_prefetch: bool = False,
) -> TrainLoader:
    """Return a loader of shuffled training batches.

    Args:
        pipeline: makes the samples.
        batch_size: per rank.
        workers: processes; None chooses, 0 makes samples in this process. The batches are the same.
        seed: of the order; None takes the pipeline's, which keeps mosaic partners near each other.
        rank: this process's number.
        world_size: how many processes share the epoch; each gets equally many batches.
        epoch_prefetch: let workers begin the next epoch while the last batch is still in use and validation runs.
            Queued batches stay in memory meanwhile.

    Raises ValueError for counts out of range.

    >>> from lucid_data import TrainPipeline, open_catalog, policy_for
    >>> pipeline = TrainPipeline(open_catalog("scenes"), 64, policy_for("n"), seed=0)
    >>> [batch.images.shape for batch in train_loader(pipeline, 2, workers=0)]
    [torch.Size([2, 3, 64, 64]), torch.Size([2, 3, 64, 64])]
    """
    order_seed = pipeline.seed if seed is None else seed
    batches = EpochBatches(len(pipeline), batch_size, order_seed, rank, world_size)
    loader = _loader(_TrainSamples(pipeline), workers, batch_size, pipeline.image_size, batch_sampler=batches)
    return TrainLoader(loader, batches, epoch_prefetch)


def eval_loader(pipeline: EvalPipeline, batch_size: int, *, workers: int | None = None) -> EvalLoader:
    """Return a loader of evaluation ``Batch``es, none left out: in index order, or canvas by canvas with ``rect``.

    >>> from lucid_data import EvalPipeline, open_catalog
    >>> len(eval_loader(EvalPipeline(open_catalog("scenes", "val"), 64), 16, workers=0))
    1
    """
    if batch_size < 1:
        raise ValueError(f"batch_size must be at least 1, got {batch_size}")
    if pipeline.rect:
        batches = _by_canvas(pipeline, batch_size)
        return _loader(
            _EvalSamples(pipeline), workers, batch_size, pipeline.image_size, batch_sampler=batches
        )
    return _loader(_EvalSamples(pipeline), workers, batch_size, pipeline.image_size, batch_size=batch_size)


def _by_canvas(pipeline: EvalPipeline, batch_size: int) -> list[list[int]]:
    groups: dict[tuple[int, int], list[int]] = {}
    for index in range(len(pipeline)):
        groups.setdefault(pipeline.canvas(index), []).append(index)
    return [
        group[at : at + batch_size] for group in groups.values() for at in range(0, len(group), batch_size)
    ]


def _loader(
    dataset: Dataset[Sample], workers: int | None, batch_size_hint: int, image_size: int, **how: Any
) -> DataLoader[Any]:
    cuda = torch.cuda.is_available()
    count = checked_workers(workers, batch_size_hint, image_size, gpu=cuda)
    return DataLoader(
        dataset,
        num_workers=count,
        collate_fn=collate,
        pin_memory=cuda,
        prefetch_factor=PREFETCH if count else None,
        persistent_workers=count > 0,
        worker_init_fn=_start_worker,
        # without its own generator a loader draws its base seed from the global one
        generator=torch.Generator(),
        **how,
    )


def _start_worker(worker: int) -> None:
    torch.set_num_threads(1)
    # a signal to the whole process group is the parent's to answer: it may want to save first, and it ends its workers
    if hasattr(os, "setpgid"):
        os.setpgid(0, 0)
