from collections import namedtuple
from dataclasses import dataclass

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from lucid_capture import signature

BASE = torch.zeros(2, 3)


@pytest.mark.parametrize(
    "other",
    [
        torch.zeros(3, 2),
        torch.zeros(3, 2).T,
        torch.zeros(2, 3, dtype=torch.float64),
        torch.zeros(2, 3, requires_grad=True),
        torch.zeros(2, 3, device="meta"),
        torch.nn.Parameter(torch.zeros(2, 3), requires_grad=False),
    ],
    ids=["shape", "stride", "dtype", "requires_grad", "device", "class"],
)
def test_a_tensor_that_differs_in_one_respect_has_another_signature(other: torch.Tensor) -> None:
    assert signature(other) != signature(BASE)


def test_values_are_no_part_of_it() -> None:
    assert signature(torch.ones(2, 3)) == signature(BASE)
    assert hash(signature(torch.ones(2, 3))) == hash(signature(BASE))


@pytest.mark.parametrize(
    ("a", "b"), [(5, 5.0), (1, True), (0.0, -0.0), (0, False), ("1", 1), (1, 2), (1.0, 1 + 0j)]
)
def test_scalars_are_told_apart_by_type_and_bits(a: object, b: object) -> None:
    assert signature(a) != signature(b)
    assert signature(a) == signature(a)


@given(st.floats(allow_nan=True))
def test_a_float_has_its_own_signature(value: float) -> None:
    assert signature(value) == signature(value)


def test_nesting_counts() -> None:
    assert signature((1, (2, 3))) != signature((1, 2, 3))
    assert signature([1, 2]) != signature((1, 2))
    assert signature({"a": 1}) != signature({"b": 1})
    assert signature((1, None)) != signature((1,))


def test_named_tuples_and_dataclasses_are_walked() -> None:
    pair = namedtuple("pair", "x y")

    @dataclass(frozen=True)
    class Item:
        x: torch.Tensor

    assert signature(pair(BASE, 1)) == signature(pair(torch.ones(2, 3), 1))
    assert signature(Item(BASE)) != signature(Item(torch.zeros(1)))


def test_an_object_that_is_no_scalar_is_refused() -> None:
    with pytest.raises(TypeError, match="object"):
        signature(object())
