import struct
from collections import OrderedDict

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from lucid_capture import same_bytes


def payload(bits: int) -> torch.Tensor:
    return torch.tensor([bits], dtype=torch.int32).view(torch.float32)


def test_signed_zeros_differ_though_they_compare_equal() -> None:
    result = same_bytes(torch.tensor([1.0, 0.0]), torch.tensor([1.0, -0.0]))
    assert not result
    assert "element 1 of 2" in str(result)


def test_the_same_nan_is_the_same_and_another_payload_is_not() -> None:
    assert same_bytes(payload(0x7FC00001), payload(0x7FC00001))
    assert not same_bytes(payload(0x7FC00001), payload(0x7FC00002))


def test_the_first_path_that_differs_is_named() -> None:
    a = {"model": OrderedDict(w=torch.zeros(2), b=torch.zeros(1)), "groups": [{"lr": 0.1}]}
    b = {"model": OrderedDict(w=torch.zeros(2), b=torch.ones(1)), "groups": [{"lr": 0.2}]}
    assert same_bytes(a, b).path == "['model']['b']"
    b["model"]["b"] = torch.zeros(1)
    assert same_bytes(a, b).path == "['groups'][0]['lr']"


@pytest.mark.parametrize(
    ("a", "b", "word"),
    [
        (torch.zeros(2), torch.zeros(3), "shapes"),
        (torch.zeros(2), torch.zeros(2).double(), "dtypes"),
        (torch.zeros(2), 0.0, "Tensor and float"),
        (1, True, "int and bool"),
        (0.0, -0.0, "-0.0"),
        ([1, 2], [1], "only the first"),
        ([1], [1, 2], "only the second"),
        ({"a": 1}, {"b": 1}, "here"),
        ([1, None], [1, 2], "NoneType and int"),
    ],
)
def test_what_differs_is_said(a: object, b: object, word: str) -> None:
    result = same_bytes(a, b)
    assert not result
    assert word in str(result)


def test_layout_and_gradient_flags_do_not_matter() -> None:
    image = torch.randn(2, 3, 4, 5)
    assert same_bytes(image, image.to(memory_format=torch.channels_last).requires_grad_())


@pytest.mark.parametrize(
    "dtype", [torch.bool, torch.uint8, torch.int64, torch.bfloat16, torch.float16, torch.complex64]
)
def test_every_dtype_compares(dtype: torch.dtype) -> None:
    a = torch.ones(3).to(dtype)
    b = a.clone()
    assert same_bytes(a, b)
    b[2] = 0
    assert "element 2 of 3" in str(same_bytes(a, b))


def test_empty_and_scalar_tensors_compare() -> None:
    assert same_bytes(torch.zeros(0, 4), torch.zeros(0, 4))
    assert same_bytes(torch.tensor(1.0), torch.tensor(1.0))
    assert not same_bytes(torch.tensor(1.0), torch.tensor(2.0))


@given(st.lists(st.floats(width=32), min_size=1, max_size=5), st.integers(0, 4), st.integers(0, 31))
def test_any_single_flipped_bit_is_found(values: list[float], at: int, bit: int) -> None:
    a = torch.tensor(values)
    b = a.clone()
    b.view(torch.int32)[at % len(values)] ^= struct.unpack("<i", struct.pack("<I", 1 << bit))[0]
    assert same_bytes(a, a.clone())
    assert not same_bytes(a, b)


def test_a_column_compares_whatever_its_stride() -> None:
    row = torch.tensor([[1.0, 2.0]])
    assert same_bytes(row.t(), torch.tensor([[1.0], [2.0]]))
    assert same_bytes(torch.arange(10.0)[3::9], torch.tensor([3.0]))
