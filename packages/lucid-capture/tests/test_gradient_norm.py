import copy
import math

import pytest
import torch
from torch import nn

from lucid_capture import GradientNorm, Reason, ReplayWarning, TapeBackend, same_bytes


def parameters(dtype: torch.dtype, seed: int, empty: tuple[int, ...] = ()) -> list[nn.Parameter]:
    generator = torch.Generator().manual_seed(seed)
    made = [nn.Parameter(torch.zeros(shape, dtype=dtype)) for shape in ((3, 2), (4,), (2, 1, 2))]
    for index, p in enumerate(made):
        if index not in empty:
            p.grad = torch.randn(p.shape, generator=generator, dtype=torch.float64).to(dtype)
    return made


@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16, torch.float32, torch.float64])
@pytest.mark.parametrize("norm_type", [2.0, math.inf])
def test_clipping_gives_the_bytes_of_torch_at_every_limit(dtype: torch.dtype, norm_type: float) -> None:
    clipper = GradientNorm(norm_type=norm_type, backend=TapeBackend())
    for step, limit in enumerate((1.0, 0.1, 100.0, 0.5)):
        ours, theirs = parameters(dtype, step), parameters(dtype, step)
        total = clipper.clip_(ours, limit)
        expected = torch.nn.utils.clip_grad_norm_(theirs, limit, norm_type)
        assert same_bytes((total, [p.grad for p in ours]), (expected, [p.grad for p in theirs]))
    assert clipper.region.counts[Reason.REPLAYED] == 2


def test_a_gradient_that_two_parameters_share_is_scaled_as_torch_scales_it() -> None:
    def shared(seed: int) -> list[nn.Parameter]:
        made = parameters(torch.float32, seed)[1:2] * 2
        twin = nn.Parameter(torch.zeros(4))
        twin.grad = made[0].grad
        return [made[0], twin]

    clipper = GradientNorm(backend=TapeBackend())
    for step in range(4):
        ours, theirs = shared(step), shared(step)
        clipper.clip_(ours, 0.1)
        torch.nn.utils.clip_grad_norm_(theirs, 0.1)
        assert same_bytes([p.grad for p in ours], [p.grad for p in theirs])
    assert clipper.region.counts[Reason.REPLAYED] == 2


def test_a_gradient_that_is_an_offset_view_makes_the_call_native() -> None:
    clipper = GradientNorm(backend=TapeBackend())
    p = nn.Parameter(torch.zeros(3))
    p.grad = torch.arange(4.0)[1:]
    clipper.clip_([p], 1.0)
    assert clipper.region.counts == {Reason.DECLINED: 1}


def test_another_set_of_gradients_retires_the_recording_once() -> None:
    clipper = GradientNorm(backend=TapeBackend())
    for step in range(3):
        clipper.clip_(parameters(torch.float32, step), 1.0)
    with pytest.warns(ReplayWarning, match="gradient norm"):
        clipper.clip_(parameters(torch.float32, 3, empty=(0,)), 1.0)
    clipper.clip_(parameters(torch.float32, 4), 1.0)
    assert clipper.region.counts[Reason.RETIRED] == 1


def test_values_that_are_not_finite_are_replayed_as_they_are() -> None:
    clipper = GradientNorm(backend=TapeBackend())
    for step in range(4):
        ours = parameters(torch.float32, step)
        ours[0].grad[0, 0] = math.inf
        theirs = copy.deepcopy(ours)
        for p, q in zip(ours, theirs, strict=True):
            q.grad = p.grad.clone()
        clipper.clip_(ours, 1.0)
        torch.nn.utils.clip_grad_norm_(theirs, 1.0)
        assert same_bytes([p.grad for p in ours], [p.grad for p in theirs])


def test_no_gradients_have_norm_zero() -> None:
    assert GradientNorm(backend=TapeBackend()).clip_([nn.Parameter(torch.zeros(2))], 1.0).item() == 0.0


def test_a_failed_recording_raises_and_publishes_nothing() -> None:
    clipper = GradientNorm(backend=TapeBackend(fail_at="forward"))
    clipper.clip_(parameters(torch.float32, 0), 1.0)
    with pytest.raises(RuntimeError, match="injected"):
        clipper.clip_(parameters(torch.float32, 1), 1.0)
    assert clipper.region.owned_bytes() == 0
