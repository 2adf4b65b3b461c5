import struct

import pytest
import torch

from lucid_train import fingerprint


def test_equal_trees_have_equal_digests_whatever_their_key_order():
    a, b = torch.arange(3.0), torch.ones(2, 2)
    assert fingerprint({"x": a, "y": [b, 1, None]}) == fingerprint(
        {"y": [b.clone(), 1, None], "x": a.clone()}
    )


@pytest.mark.parametrize(
    ("one", "other"),
    [
        (torch.zeros(1), -torch.zeros(1)),
        (0.0, -0.0),
        (1, 1.0),
        (True, 1),
        (torch.zeros(2), torch.zeros(1, 2)),
        (torch.zeros(1), torch.zeros(1, dtype=torch.float64)),
        ({"a": 1}, {"b": 1}),
        ([1, 2], [2, 1]),
        ("1", 1),
    ],
)
def test_values_that_differ_in_bits_or_kind_differ(one, other):
    assert fingerprint(one) != fingerprint(other)


def test_nan_payloads_count():
    quiet, other = (
        torch.tensor(struct.unpack("<q", struct.pack("<Q", bits)))
        for bits in (0x7FF8 << 48, (0x7FF8 << 48) + 1)
    )
    assert fingerprint(quiet.view(torch.float64)) != fingerprint(other.view(torch.float64))


def test_memory_layout_does_not_count():
    image = torch.rand(1, 3, 4, 4)
    assert fingerprint(image) == fingerprint(image.to(memory_format=torch.channels_last))


def test_bfloat16_and_bool_tensors_are_covered():
    assert len(fingerprint([torch.ones(3, dtype=torch.bfloat16), torch.tensor([True])])) == 64


def test_something_else_is_refused_by_place():
    with pytest.raises(TypeError, match=r"\.a\[1\] is a object"):
        fingerprint({"a": [0, object()]})
