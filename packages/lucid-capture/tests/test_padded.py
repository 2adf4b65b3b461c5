from typing import Any

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from torch import Tensor

from lucid_capture import Capacity, GuardedRegion, Padded, Reason, TapeBackend, padded, same_bytes


def ragged(counts: list[int]) -> list[dict[str, Tensor]]:
    return [{"boxes": torch.rand(n, 4) + 1, "labels": torch.arange(n) + 1} for n in counts]


@given(counts=st.lists(st.integers(0, 9), min_size=1, max_size=5), rows=st.integers(9, 12))
def test_every_row_is_its_own_or_zero(counts: list[int], rows: int) -> None:
    items = ragged(counts)
    result = padded(items, rows)
    assert result.valid.shape == (len(counts), rows)
    for number, (item, count) in enumerate(zip(items, counts, strict=True)):
        assert result.valid[number].tolist() == [row < count for row in range(rows)]
        for key, value in item.items():
            assert torch.equal(result.values[key][number, :count], value)
            assert not result.values[key][number, count:].any()


@given(counts=st.lists(st.integers(0, 40), min_size=1, max_size=12))
def test_capacity_is_the_least_power_of_two_that_held_everything_so_far(counts: list[int]) -> None:
    capacity = Capacity()
    largest = 0
    for count in counts:
        largest = max(largest, count)
        rows = capacity.fit(count)
        assert rows >= largest
        assert largest == 0 or (rows < 2 * largest and rows & (rows - 1) == 0)


def test_a_batch_with_a_mask_is_widened_and_what_is_not_valid_is_cleared() -> None:
    boxes, valid = torch.ones(2, 3, 4), torch.tensor([[True, False, True], [False, False, False]])
    result = padded((boxes, boxes[..., 0].long()), 5, valid)
    assert result.values[0].sum((1, 2)).tolist() == [8.0, 0.0]
    assert result.values[1].tolist() == [[1, 0, 1, 0, 0], [0, 0, 0, 0, 0]]
    assert result.valid.tolist() == [[True, False, True, False, False], [False] * 5]


def test_a_fixed_capacity_never_cuts() -> None:
    with pytest.raises(ValueError, match="5 rows of targets exceed the fixed capacity of 4"):
        padded(ragged([5]), 4)


def test_an_overflow_is_counted_kept_whole_and_turned_away() -> None:
    capacity = Capacity(rows=4, limit=4)
    inside, outside = padded(ragged([3, 1]), capacity), padded(ragged([6, 1]), capacity)
    assert (capacity.overflows, capacity.rows, outside.rows) == (1, 4, 6)
    assert outside.valid.sum().item() == 7
    assert (capacity.admits(inside), capacity.admits(outside)) == (True, False)


def test_a_size_to_begin_with_avoids_growth() -> None:
    capacity = Capacity(rows=64)
    for count in (3, 40, 64):
        padded(ragged([count]), capacity)
    assert (capacity.rows, capacity.growths) == (64, 0)


@pytest.mark.parametrize(("rows", "limit"), [(-1, None), (9, 8)])
def test_an_impossible_capacity_is_refused(rows: int, limit: int | None) -> None:
    with pytest.raises(ValueError, match="rows must lie"):
        Capacity(rows, limit)


@pytest.mark.parametrize(
    ("targets", "message"),
    [
        ([], "empty batch"),
        ([{"a": torch.ones(2), "b": torch.ones(3)}], r"item 0 have row counts \[2, 3\]"),
        ([{"a": torch.ones(2)}, {"b": torch.ones(2)}], "item 1"),
    ],
)
def test_targets_that_do_not_fit_together_are_refused(targets: Any, message: str) -> None:
    with pytest.raises(ValueError, match=message):
        padded(targets, 8)


def loss(targets: Padded) -> Tensor:
    """A mean over real rows: what padding must not move."""
    weight = targets.valid[..., None]
    return torch.where(weight, targets.values["boxes"] ** 2, 0.0).sum() / targets.valid.sum().clamp(min=1)


def test_growth_replaces_the_recording_and_shrinking_keeps_it() -> None:
    capacity, backend = Capacity(), TapeBackend()
    region = GuardedRegion("loss", loss, backend=backend, record_after=0, growth=True)
    held = []
    for counts in ([2, 3], [1, 0], [5, 2], [0, 0], [3, 3], [8, 1]):
        items = ragged(counts)
        assert same_bytes(region(padded(items, capacity)), loss(padded(items, capacity)))
        held.append(region.owned_bytes())
    assert (backend.stats.records, region.counts[Reason.REPLAYED]) == (2, 4)
    assert held[1] == held[0]
    # twice the rows, and not both sizes at once
    assert held[0] < held[2] < 3 * held[0]


def test_an_overflow_runs_natively() -> None:
    capacity = Capacity(limit=4)
    region = GuardedRegion(
        "loss", loss, backend=TapeBackend(), record_after=0, growth=True, admit=capacity.admits
    )
    for counts in ([4], [9], [2]):
        items = ragged(counts)
        assert same_bytes(region(padded(items, capacity)), loss(padded(items, capacity)))
    assert region.counts == {Reason.RECORDED: 1, Reason.DECLINED: 1, Reason.REPLAYED: 1}
