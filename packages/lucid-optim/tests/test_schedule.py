from itertools import pairwise

import pytest
from hypothesis import given
from hypothesis import strategies as st

from lucid_optim import progressive_weight, warmup_linear_decay


@pytest.mark.parametrize(
    ("step", "expected"),
    [(0, 0.1), (9, 1.0), (10, 1.0), (55, 0.505), (100, 0.01), (1000, 0.01)],
)
def test_the_learning_rate_factor_at_its_corners(step: int, expected: float) -> None:
    assert warmup_linear_decay(step, 100, 10, 0.01) == pytest.approx(expected, abs=1e-12)


def test_without_warmup_the_first_step_is_whole() -> None:
    assert warmup_linear_decay(0, 10, 0, 0.5) == 1.0


def test_an_empty_run_is_taken_as_one_step() -> None:
    assert warmup_linear_decay(0, 0, 0, 0.5) == 1.0


@given(st.integers(1, 300), st.integers(0, 50), st.floats(0.0, 1.0))
def test_after_warmup_the_factor_never_rises(total: int, warmup: int, final: float) -> None:
    factors = [warmup_linear_decay(s, total, warmup, final) for s in range(warmup, total + 3)]
    assert all(a >= b for a, b in pairwise(factors))


@pytest.mark.parametrize(
    ("epoch", "expected"),
    [(0, 0.8), (1, 0.785714), (10, 0.657143), (25, 0.442857), (40, 0.228571), (49, 0.1), (60, 0.1)],
)
def test_the_branch_weight_of_fifty_epochs(epoch: int, expected: float) -> None:
    assert progressive_weight(epoch, 50) == pytest.approx(expected, abs=1e-6)


def test_a_single_epoch_gets_the_initial_weight() -> None:
    assert progressive_weight(0, 1) == pytest.approx(0.8)


def test_counts_that_make_no_sense_are_refused() -> None:
    with pytest.raises(ValueError, match="warmup_steps"):
        warmup_linear_decay(0, 10, -1, 0.1)
    with pytest.raises(ValueError, match="epochs"):
        progressive_weight(0, 0)
