"""Arguments and results keep their nesting through a recording."""

from collections import OrderedDict
from dataclasses import dataclass
from typing import Any, NamedTuple

import pytest
import torch
from torch import Tensor

from lucid_capture import CaptureError, GuardedRegion, Reason, TapeBackend, same_bytes


class Pair(NamedTuple):
    """A named tuple with a field that may be missing."""

    first: Tensor
    second: Tensor | None = None


@dataclass(frozen=True)
class Boxes:
    """A dataclass around tensors."""

    corners: Tensor
    pairs: tuple[Pair, ...]


def native(tree: Any) -> Any:
    pair = Pair(tree["a"] + 1)
    return OrderedDict(
        pair=pair,
        boxes=Boxes(tree["b"][0] * 2, (pair, Pair(tree["b"][1], tree["a"]))),
        rest=[tree["a"], (), None, {"deep": (tree["b"][1] - 1,)}],
    )


def test_results_come_back_in_the_containers_of_the_native_call() -> None:
    region = GuardedRegion("nest", native, backend=TapeBackend(), record_after=0)
    for step in range(3):
        tree = {"a": torch.full((2,), float(step)), "b": [torch.ones(1), torch.zeros(3)]}
        expected, actual = native(tree), region(tree)
        assert type(actual) is OrderedDict
        assert type(actual["pair"]) is Pair
        assert type(actual["boxes"]) is Boxes
        assert same_bytes(expected, actual)
    assert region.counts[Reason.REPLAYED] == 2


def test_another_nesting_is_another_signature() -> None:
    region = GuardedRegion("sum", lambda t: sum(map(torch.sum, t)), backend=TapeBackend(), record_after=0)
    region([torch.ones(2), torch.ones(2)])
    region((torch.ones(2), torch.ones(2)))
    assert region.counts[Reason.SIGNATURE] == 1


def test_an_argument_that_is_no_tensor_and_no_scalar_is_refused_by_name() -> None:
    region = GuardedRegion("f", lambda t: t, backend=TapeBackend())
    with pytest.raises(TypeError, match="got object"):
        region(object())


def test_work_that_returns_a_host_value_is_refused() -> None:
    region = GuardedRegion("f", lambda t: {"n": len(t)}, backend=TapeBackend(), record_after=0)
    with pytest.raises(CaptureError, match="returns a int"):
        region(torch.ones(2))
