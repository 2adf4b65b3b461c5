"""Ragged inputs in a fixed number of rows, with a mask of the real ones."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor

from lucid_capture._tree import flatten, unflatten


@dataclass(frozen=True)
class Padded:
    """Nested tensors (B, rows, ...) that are zero where ``valid`` (B, rows) is false."""

    values: Any
    valid: Tensor

    @property
    def rows(self) -> int:
        """The number of rows, real and padding together."""
        return self.valid.shape[1]


class Capacity:
    """How many rows padded inputs have: a power of two that grows when it must and never shrinks.

    ``rows`` is the size to begin with, for instance the largest count a data set can give, so that nothing
    has to be recorded again. A count above ``limit`` is an overflow: it is counted, nothing is cut, and the
    inputs keep their own number of rows, which `admits` turns away. Raises ValueError for a negative
    ``rows`` or one above ``limit``.

    >>> capacity = Capacity()
    >>> [capacity.fit(count) for count in (3, 5, 2)]
    [4, 8, 8]
    """

    def __init__(self, rows: int = 0, limit: int | None = None) -> None:
        if rows < 0 or (limit is not None and rows > limit):
            raise ValueError(f"rows must lie between 0 and the limit {limit}, got {rows}")
        self.rows = rows
        self.limit = limit
        self.growths = 0
        self.overflows = 0

    def fit(self, count: int) -> int:
        """Return the rows for ``count`` of them, growing to the next power of two when there is no room."""
        if self.limit is not None and count > self.limit:
            self.overflows += 1
            return count
        if count > self.rows:
            grown = 1 << (count - 1).bit_length()
            self.rows = grown if self.limit is None else min(grown, self.limit)
            self.growths += 1
        return self.rows

    def admits(self, targets: Padded) -> bool:
        """Return whether ``targets`` have the rows of this capacity: false for an overflow."""
        return targets.rows == self.rows


def padded(targets: Any, capacity: int | Capacity, valid: Tensor | None = None) -> Padded:
    """Return ``targets`` with as many rows as ``capacity`` says, zeros in the ones that are not real.

    Without ``valid``, targets are a sequence with one nested value per item, whose tensors (n_i, ...) agree
    in n_i; they come out stacked, (B, rows, ...). With ``valid`` (B, N) bool, targets are nested tensors
    (B, N, ...) already, and whatever stands in rows that are not valid is cleared. An int is a fixed
    capacity. Raises ValueError when tensors disagree in their rows, or have more than a fixed capacity.

    >>> boxes = padded([torch.ones(1, 4), torch.ones(3, 4)], Capacity())
    >>> tuple(boxes.values.shape), boxes.valid.sum(1).tolist()
    ((2, 4, 4), [1, 3])
    """
    if valid is None:
        targets, valid = _stacked(targets)
    leaves, structure = flatten(targets)
    for leaf in leaves:
        if leaf.shape[:2] != valid.shape:
            raise ValueError(
                f"targets of shape {tuple(leaf.shape)} do not have the {tuple(valid.shape)} rows of valid"
            )
    rows = _rows(capacity, valid.shape[1])
    wide = [_widened(leaf, valid, rows) for leaf in leaves]
    return Padded(unflatten(structure, wide), _widened(valid, valid, rows))


def _rows(capacity: int | Capacity, count: int) -> int:
    if isinstance(capacity, Capacity):
        return capacity.fit(count)
    if count > capacity:
        raise ValueError(
            f"{count} rows of targets exceed the fixed capacity of {capacity}; pass a Capacity to let it grow"
        )
    return capacity


def _stacked(items: Sequence[Any]) -> tuple[Any, Tensor]:
    """Return per-item targets as (B, N, ...) tensors and which of the rows are real."""
    if not items:
        raise ValueError("targets are an empty batch; padding needs at least one item")
    flat = [flatten(item) for item in items]
    structure = flat[0][1]
    counts = []
    for number, (leaves, found) in enumerate(flat):
        sizes = {leaf.shape[0] for leaf in leaves}
        if found != structure or len(sizes) != 1:
            raise ValueError(
                f"targets of item {number} have row counts {sorted(sizes)} in {len(leaves)} tensors; "
                "every item needs the same tensors, all with one number of rows"
            )
        counts.append(sizes.pop())
    columns = zip(*(leaves for leaves, _ in flat), strict=True)
    dense = [torch.nn.utils.rnn.pad_sequence(list(column), batch_first=True) for column in columns]
    place = torch.arange(max(counts), device=dense[0].device)
    return unflatten(structure, dense), place < torch.tensor(counts, device=place.device)[:, None]


def _widened(tensor: Tensor, valid: Tensor, rows: int) -> Tensor:
    """Return (B, N, ...) as (B, rows, ...), zero wherever no valid row stands."""
    wide = _blank(tensor, rows)
    mask = valid.reshape(*valid.shape, *(1,) * (tensor.dim() - 2))
    wide[:, : tensor.shape[1]] = torch.where(mask, tensor, torch.zeros_like(tensor))
    return wide


def _blank(tensor: Tensor, rows: int) -> Tensor:
    return tensor.new_zeros(tensor.shape[0], rows, *tensor.shape[2:])
