from collections.abc import Callable

import pytest
import torch
from torch import Tensor, nn

from lucid_capture import CaptureError, Poison, TapeBackend

Work = Callable[[Tensor], Tensor]


def record(work: Work, *inputs: Tensor, poison: Poison = Poison.NAN):  # type: ignore[no-untyped-def]
    backend = TapeBackend(poison, warmup=0)
    return backend.record(lambda ts: (work(*ts),), inputs, (), differentiable=inputs[0].requires_grad)


def test_inputs_are_fixed_buffers() -> None:
    x = torch.ones(3)
    recording = record(lambda t: t * 2 + 1, x)
    x.fill_(100.0)
    recording.launch_forward()
    assert recording.outputs[0].tolist() == [3.0, 3.0, 3.0]
    recording.inputs[0].fill_(4.0)
    recording.launch_forward()
    assert recording.outputs[0].tolist() == [9.0, 9.0, 9.0]


def test_the_next_launch_overwrites_results() -> None:
    recording = record(lambda t: t * 2, torch.ones(1))
    recording.launch_forward()
    kept = recording.outputs[0]
    recording.inputs[0].fill_(5.0)
    recording.launch_forward()
    assert kept.item() == 10.0


def test_python_control_flow_is_frozen() -> None:
    flag = [True]
    recording = record(lambda t: t + 1 if flag[0] else t - 1, torch.zeros(1))
    flag[0] = False
    recording.launch_forward()
    assert recording.outputs[0].item() == 1.0


def test_random_operators_draw_again_in_the_same_order() -> None:
    recording = record(lambda t: nn.functional.dropout(t, 0.5) + torch.rand(8), torch.ones(8))
    torch.manual_seed(3)
    recording.launch_forward()
    torch.manual_seed(3)
    expected = nn.functional.dropout(torch.ones(8), 0.5) + torch.rand(8)
    assert torch.equal(recording.outputs[0], expected)


def test_views_and_writes_in_place_keep_their_meaning() -> None:
    def work(t: Tensor) -> Tensor:
        y = t.clone().view(2, 3)
        y[0] += 10
        y.T[1].mul_(2)
        return y.reshape(-1)

    recording = record(work, torch.zeros(6))
    value = torch.arange(6.0)
    recording.inputs[0].copy_(value)
    recording.launch_forward()
    assert torch.equal(recording.outputs[0], work(value))


@pytest.mark.parametrize(
    ("poison", "check"),
    [(Poison.NAN, torch.isnan), (Poison.SENTINEL, lambda t: t == torch.finfo(t.dtype).max)],
)
def test_gradient_buffers_are_poisoned_by_the_next_forward(
    poison: Poison, check: Callable[[Tensor], Tensor]
) -> None:
    recording = record(lambda t: t * t, torch.ones(2, requires_grad=True), poison=poison)
    recording.launch_forward()
    recording.output_grads[0].fill_(1.0)
    recording.launch_backward()
    assert recording.input_grads[0].tolist() == [2.0, 2.0]
    recording.launch_forward()
    assert check(recording.input_grads[0]).all()


def test_without_poison_old_gradients_survive_the_forward() -> None:
    recording = record(lambda t: t * t, torch.ones(2, requires_grad=True), poison=Poison.OFF)
    recording.launch_forward()
    recording.output_grads[0].fill_(1.0)
    recording.launch_backward()
    recording.launch_forward()
    assert recording.input_grads[0].tolist() == [2.0, 2.0]


@pytest.mark.parametrize(
    "work",
    [
        lambda t: t * t.sum().item(),
        lambda t: t * float(t[0]),
        lambda t: t[t > 0],
        lambda t: t.nonzero(),
        lambda t: torch.masked_select(t, t > 0),
        lambda t: t.unique(),
        lambda t: t * len(t.tolist()),
        lambda t: t + float(t.detach().numpy()[0]),
        lambda t: t if torch.equal(t, t) else -t,
        lambda t: t if (t > 0).all() else -t,
        lambda t: torch.repeat_interleave(t, torch.ones(4, dtype=torch.long)),
        lambda t: t.index_put((t > 0,), torch.tensor(0.0)),
        lambda t: t.to("meta"),
    ],
)
def test_work_that_needs_values_on_the_host_cannot_be_recorded(work: Work) -> None:
    with pytest.raises(CaptureError):
        record(work, torch.ones(4))


def test_host_reads_work_again_after_a_failed_recording() -> None:
    with pytest.raises(CaptureError):
        record(lambda t: t * len(t.tolist()), torch.ones(2))
    assert torch.ones(2).tolist() == [1.0, 1.0]
    assert "numpy" not in torch.Tensor.__dict__


def test_indexing_with_integers_is_legal() -> None:
    recording = record(lambda t: t[torch.tensor([2, 0])], torch.arange(3.0))
    recording.launch_forward()
    assert recording.outputs[0].tolist() == [2.0, 0.0]


def test_recordings_do_not_nest() -> None:
    backend = TapeBackend()
    with pytest.raises(CaptureError, match="nest"):
        backend.record(
            lambda ts: backend.record(lambda us: us, ts, (), False).outputs,
            [torch.ones(1)],
            (),
            differentiable=False,
        )
    assert not backend.in_capture()
    assert backend.stats.failures == 2  # the inner recording and the outer one


def test_the_weight_cache_of_autocast_is_refused() -> None:
    with torch.autocast("cpu", torch.bfloat16), pytest.raises(CaptureError, match="cache"):
        record(lambda t: t + 1, torch.ones(1))


@pytest.mark.parametrize("stage", ["warmup", "forward", "backward"])
def test_a_failure_can_be_injected_at_each_stage(stage: str) -> None:
    backend = TapeBackend(fail_at=stage)
    with pytest.raises(CaptureError, match=stage):
        backend.record(lambda ts: (ts[0] * 2,), [torch.ones(1, requires_grad=True)], (), differentiable=True)
    assert (backend.stats.failures, backend.stats.records) == (1, 0)


def test_an_unknown_stage_is_refused() -> None:
    with pytest.raises(ValueError, match="warmup"):
        TapeBackend(fail_at="later")


def test_memory_is_accounted_for_and_given_up() -> None:
    recording = record(lambda t: t * 2, torch.ones(100))
    assert recording.owned_bytes() == 800
    recording.reset()
    assert recording.owned_bytes() == 0


def test_tensors_it_cannot_record_are_refused_with_a_reason() -> None:
    backend = TapeBackend()
    assert backend.refusal([torch.ones(1)]) is None
    assert "meta" in str(backend.refusal([torch.ones(1, device="meta")]))
    assert "sparse" in str(backend.refusal([torch.eye(2).to_sparse()]))


@pytest.mark.parametrize(
    ("dtype", "poison", "expected"),
    [
        (torch.int64, Poison.SENTINEL, torch.iinfo(torch.int64).min),
        (torch.int64, Poison.NAN, torch.iinfo(torch.int64).min),
        (torch.int64, Poison.OFF, 3),
        (torch.bool, Poison.SENTINEL, False),
        (torch.bool, Poison.OFF, True),
        (torch.float16, Poison.SENTINEL, torch.finfo(torch.float16).max),
    ],
)
def test_results_of_every_kind_are_poisoned_before_the_next_launch(
    dtype: torch.dtype, poison: Poison, expected: float
) -> None:
    backend = TapeBackend(poison, warmup=0, fail_at="replay")
    recording = backend.record(lambda ts: ((ts[0] + 3).to(dtype),), [torch.zeros(1)], (), False)
    assert recording.outputs[0].item() == torch.tensor(3).to(dtype).item()
    # the failure comes after the poison and before the work
    with pytest.raises(CaptureError, match="replay"):
        recording.launch_forward()
    assert recording.outputs[0].item() == expected


def test_memory_that_something_still_refers_to_survives_a_reset() -> None:
    recording = record(lambda t: t * t, torch.full((2,), 3.0, requires_grad=True))
    recording.launch_forward()
    recording.output_grads[0].fill_(1.0)
    recording.launch_backward()
    stolen = recording.input_grads[0].detach()
    recording.reset()
    assert stolen.tolist() == [6.0, 6.0]


def test_what_a_queued_warm_up_writes_lands_when_it_is_waited_for() -> None:
    counter = torch.zeros(1)

    def work(tensors: list[Tensor]) -> tuple[Tensor]:
        counter.add_(1)
        return (tensors[0] * 2,)

    backend = TapeBackend(warmup=2, queued=True, fail_at="forward")
    with pytest.raises(CaptureError):
        backend.record(work, [torch.ones(1)], (), differentiable=False)
    assert counter.item() == 1.0  # the recorded run's own write
    backend.synchronize()
    assert counter.item() == 1.0  # overwritten by what the warm-up left
    counter.fill_(7.0)
    backend.synchronize()
    assert counter.item() == 7.0


def test_a_launch_from_another_stream_raises() -> None:
    backend = TapeBackend(warmup=0)
    recording = backend.record(lambda ts: (ts[0] + 1,), [torch.ones(1)], (), differentiable=False)
    with backend.on_stream("side"), pytest.raises(CaptureError, match=r"stream 0.*'side'"):
        recording.launch_forward()
    recording.launch_forward()
    assert recording.outputs[0].item() == 2.0


def test_a_generator_of_its_own_goes_on_drawing() -> None:
    own, twin = torch.Generator().manual_seed(4), torch.Generator().manual_seed(4)
    backend = TapeBackend(warmup=0, generators=(own,))
    recording = backend.record(
        lambda ts: (ts[0] + torch.rand(2, generator=own),), [torch.zeros(2)], (), differentiable=False
    )
    torch.rand(2, generator=twin)
    for _ in range(2):
        recording.launch_forward()
        assert torch.equal(recording.outputs[0], torch.rand(2, generator=twin))
