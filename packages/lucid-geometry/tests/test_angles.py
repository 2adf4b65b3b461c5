import math
from collections.abc import Callable

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from torch import Tensor

from lucid_geometry import angle_difference, rboxes_to_polygons

angle = st.one_of(
    st.floats(-50, 50, width=32),
    st.sampled_from([k * math.pi / 4 for k in range(-12, 13)]),
    st.sampled_from([math.nextafter(k * math.pi / 2, d) for k in range(-4, 5) for d in (-99.0, 99.0)]),
)
periods = pytest.mark.parametrize("period", [math.pi, math.pi / 2, 2 * math.pi])
dtypes = pytest.mark.parametrize("dtype", [torch.float32, torch.float64])


@periods
@dtypes
@given(a=angle, b=angle)
def test_a_difference_lies_in_its_half_open_range_and_names_the_same_direction(
    period: float, dtype: torch.dtype, a: float, b: float
) -> None:
    first, second = torch.tensor(a, dtype=dtype), torch.tensor(b, dtype=dtype)
    wrapped = angle_difference(first, second, period)
    half = torch.tensor(period / 2, dtype=dtype)
    assert -half <= wrapped < half
    turns = (first.double() - second.double() - wrapped.double()).item() / period
    assert turns == pytest.approx(round(turns), abs=1e-5 if dtype == torch.float32 else 1e-12)


@periods
@dtypes
@given(fraction=st.floats(-1, 1, exclude_max=True))
def test_a_difference_in_range_comes_back_bit_for_bit(
    period: float, dtype: torch.dtype, fraction: float
) -> None:
    value = torch.tensor(fraction * period / 2, dtype=dtype)
    if value < torch.tensor(period / 2, dtype=dtype):
        assert torch.equal(angle_difference(value, torch.zeros((), dtype=dtype), period), value)


@dtypes
def test_ties_go_down(dtype: torch.dtype) -> None:
    half = torch.tensor([math.pi / 2, -math.pi / 2], dtype=dtype)
    assert torch.equal(angle_difference(half, torch.zeros(2, dtype=dtype)), -half.abs())


def test_half_a_turn_is_no_difference_between_boxes(random_rboxes: Callable[..., Tensor]) -> None:
    theta = random_rboxes(100)[:, 4]
    other = theta + math.pi * torch.arange(100, dtype=torch.float64)
    torch.testing.assert_close(angle_difference(theta, other), torch.zeros_like(theta))


def test_a_quarter_turn_is_no_difference_between_squares() -> None:
    theta = torch.tensor([0.1, 0.1 + math.pi / 2, 0.1 - 7 * math.pi / 2], dtype=torch.float64)
    difference = angle_difference(theta, torch.tensor(0.1), math.pi / 2)
    torch.testing.assert_close(difference, torch.zeros(3, dtype=torch.float64), rtol=0, atol=1e-7)
    corners = rboxes_to_polygons(torch.stack([torch.tensor([0.0, 0, 2, 2, t]) for t in theta]))
    assert torch.cdist(corners[1:], corners[:1]).min(-1).values.max() < 1e-3


def test_the_gradient_is_that_of_a_plain_difference() -> None:
    a = torch.tensor([0.3, 2.9, -8.0], dtype=torch.float64, requires_grad=True)
    b = torch.tensor([0.1, -1.0, 4.0], dtype=torch.float64, requires_grad=True)
    assert torch.autograd.gradcheck(angle_difference, (a, b))
    angle_difference(a, b).sum().backward()
    assert torch.equal(a.grad, torch.ones(3, dtype=torch.float64))
    assert torch.equal(b.grad, -torch.ones(3, dtype=torch.float64))


def test_shapes_broadcast_and_half_precision_widens() -> None:
    result = angle_difference(torch.zeros(3, 1, dtype=torch.float16), torch.zeros(4, dtype=torch.float16))
    assert result.shape == (3, 4)
    assert result.dtype == torch.float32
    assert angle_difference(torch.zeros(0), torch.zeros(1)).shape == (0,)


@pytest.mark.parametrize("period", [0.0, -1.0, math.inf, math.nan])
def test_a_period_that_is_none_is_refused(period: float) -> None:
    with pytest.raises(ValueError, match="period"):
        angle_difference(torch.zeros(1), torch.zeros(1), period)
