import copy
import warnings
from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch import Tensor, nn

from lucid_capture import (
    CaptureError,
    CountedCalls,
    GradientNorm,
    GuardedRegion,
    ModuleCertificate,
    Reason,
    ReplayWarning,
    TapeBackend,
    count_launches,
    same_bytes,
)

MakeNet = Callable[[], nn.Module]
MakeRegion = Callable[..., GuardedRegion]


@pytest.mark.parametrize("accumulate", [1, 3])
def test_training_through_replay_gives_the_bytes_of_native_training(
    toy: Any, make_net: MakeNet, make_region: MakeRegion, accumulate: int
) -> None:
    native, replayed = make_net(), make_net()
    region = make_region(replayed)
    expected = toy.train(native, native, 4, accumulate)
    actual = toy.train(region, replayed, 4, accumulate)
    result = same_bytes(expected, actual)
    assert result, str(result)
    assert region.counts[Reason.RECORDED] == 1
    assert region.counts[Reason.REPLAYED] == 4 * accumulate - 1


def test_two_native_trainings_give_the_same_bytes(toy: Any, make_net: MakeNet) -> None:
    a, b = make_net(), make_net()
    assert same_bytes(toy.train(a, a, 3), toy.train(b, b, 3))


def test_each_call_launches_once_forward_and_once_backward_and_python_does_not_run(
    toy: Any, make_net: MakeNet, make_region: MakeRegion
) -> None:
    net, backend = make_net(), TapeBackend()
    region = make_region(net, backend=backend)
    region.native = CountedCalls(net)
    toy.train(region, net, 1)
    calls = region.native.calls
    with count_launches(backend) as launches:
        toy.train(region, net, 3)
    assert region.native.calls == calls
    assert (launches.forward_launches, launches.backward_launches, launches.records) == (3, 3, 0)


def test_earlier_results_keep_their_values(toy: Any, make_net: MakeNet, make_region: MakeRegion) -> None:
    region = make_region(make_net())
    first = region(toy.images(0))
    before = copy.deepcopy({k: v.detach() for k, v in first.items()})
    toy.scalar(first).backward()
    toy.scalar(region(toy.images(1))).backward()
    assert same_bytes(before, {k: v.detach() for k, v in first.items()})


def test_a_gradient_that_is_absent_natively_stays_absent(
    toy: Any, make_net: MakeNet, make_region: MakeRegion
) -> None:
    net = make_net()
    region = make_region(net)
    for _ in range(2):
        net.zero_grad()
        region(toy.images(0))["main"].sum().backward()
        assert net.side.weight.grad is None
        assert net.head.weight.grad is not None


def test_recording_leaves_buffers_and_random_state_as_one_native_call_would(
    toy: Any, make_net: MakeNet, make_region: MakeRegion
) -> None:
    native, replayed = make_net(), make_net()
    draws = []
    for call, net in ((native, native), (make_region(replayed), replayed)):
        torch.manual_seed(5)
        call(toy.images(0))
        draws.append({"next": torch.rand(3), **dict(net.named_buffers())})
    assert same_bytes(*draws)


def test_synchronisation_comes_before_the_buffers_are_put_back(
    toy: Any, make_net: MakeNet, make_region: MakeRegion
) -> None:
    net = make_net()
    backend = TapeBackend(queued=True)
    native = make_net()
    native(toy.images(0))
    make_region(net, backend=backend)(toy.images(0))
    backend.synchronize()
    assert same_bytes(native.state_dict(), net.state_dict())


def test_gradient_reaches_inputs_and_keeps_their_layout() -> None:
    region = GuardedRegion(
        "f", lambda x, y: x * y.exp(), backend=TapeBackend(), differentiable=True, record_after=0
    )
    for step in range(3):
        x = torch.randn(2, 3, 4, 4).to(memory_format=torch.channels_last).requires_grad_()
        y = torch.randn(2, 3, 4, 4) * step
        region(x, y).sum().backward()
        torch.testing.assert_close(x.grad, y.exp())


def test_outputs_without_gradient_stay_without(toy: Any, make_net: MakeNet, make_region: MakeRegion) -> None:
    outputs = make_region(make_net())(toy.images(0))
    assert outputs["main"].requires_grad
    assert not outputs["index"].requires_grad


def test_a_pure_region_is_replayed_with_fresh_memory_each_time() -> None:
    region = GuardedRegion("f", lambda x: (x + 1, [x * 2]), backend=TapeBackend(), record_after=0)
    a = region(torch.zeros(2))
    b = region(torch.ones(2))
    assert a[0].tolist() == [1.0, 1.0]
    assert b[1][0].tolist() == [2.0, 2.0]
    assert region.counts[Reason.REPLAYED] == 1


def test_autocast_is_frozen_into_the_recording_and_its_parameters_are_not(
    toy: Any, make_net: MakeNet, make_region: MakeRegion
) -> None:
    native, replayed = make_net(), make_net()
    region = make_region(replayed)

    def cast(call: Callable[..., Any]) -> Callable[..., Any]:
        def under_autocast(image: Tensor) -> Any:
            with torch.autocast("cpu", torch.bfloat16):
                return call(image)

        return under_autocast

    expected, actual = toy.train(cast(native), native, 3), toy.train(cast(region), replayed, 3)
    result = same_bytes(expected, actual)
    assert result, str(result)
    assert region.counts[Reason.REPLAYED] == 2


def test_regions_that_share_a_back_end_train_together_with_validation_in_between(
    toy: Any, make_net: MakeNet
) -> None:
    def train(replay: bool) -> list[Any]:
        nets = [make_net(), make_net()]
        backend = TapeBackend() if replay else None
        options: dict[str, Any] = {"backend": backend, "differentiable": True}
        calls = [
            GuardedRegion(f"net{i}", net, certificate=ModuleCertificate(net), **options)
            for i, net in enumerate(nets)
        ]
        weigh = GuardedRegion("weigh", lambda a, b: (a * b).tanh(), **options)
        clipper = GradientNorm(backend=backend)
        parameters = [p for net in nets for p in net.parameters()]
        optimizer = torch.optim.SGD(parameters, lr=0.1, momentum=0.9)
        torch.default_generator.manual_seed(0)
        seen: list[Any] = []
        for step in range(6):
            first, second = (call(toy.images(step)) for call in calls)
            loss = weigh(first["main"], second["main"]).mean() + first["side"].mean() + second["side"].mean()
            optimizer.zero_grad()
            loss.backward()
            seen.append((loss.detach(), clipper.clip_(parameters, 0.1)))
            optimizer.step()
            if step == 3:
                for call, net in zip(calls, nets, strict=True):
                    net.eval()
                    with torch.no_grad():
                        seen.append(call(toy.images(50))["main"])
                    net.train()
        if replay:
            assert all(r.counts[Reason.REPLAYED] == 4 for r in (*calls, weigh, clipper.region))
        return [*seen, *(net.state_dict() for net in nets)]

    with warnings.catch_warnings():
        warnings.simplefilter("ignore", ReplayWarning)
        result = same_bytes(train(False), train(True))
    assert result, str(result)


def test_work_that_writes_its_argument_is_refused() -> None:
    region = GuardedRegion("f", lambda a, b: b.add_(a), backend=TapeBackend(), record_after=0)
    with pytest.raises(CaptureError, match="tensor 1 of its arguments"):
        region(torch.ones(1), torch.ones(1))


def test_a_pure_region_around_trainable_modules_keeps_their_gradients() -> None:
    net = nn.Linear(2, 1)
    region = GuardedRegion(
        "net", net, backend=TapeBackend(), certificate=ModuleCertificate(net), record_after=0
    )
    assert region(torch.ones(1, 2)).requires_grad
    with torch.no_grad():
        region(torch.ones(1, 2))
    assert region.counts == {Reason.GRAD_MODE: 1, Reason.RECORDED: 1}


def test_a_backward_pass_outlives_the_recording_it_needs(toy: Any, make_net: MakeNet) -> None:
    native, net = make_net(), make_net()
    region = GuardedRegion(
        "net",
        net,
        backend=TapeBackend(),
        certificate=ModuleCertificate(net),
        differentiable=True,
        record_after=0,
    )
    for call, owner in ((native, native), (region, net)):
        torch.default_generator.manual_seed(0)
        loss = toy.scalar(call(toy.images(0)))
        if call is region:
            region.close()
        loss.backward()
        assert owner.conv.weight.grad is not None
    assert same_bytes([p.grad for p in native.parameters()], [p.grad for p in net.parameters()])


def test_growth_replaces_only_what_it_covers() -> None:
    region = GuardedRegion("f", lambda x: x * 2, backend=TapeBackend(), record_after=0, growth=True)
    for shape in ((2, 4), (4, 4), (2, 4), (3, 8), (5, 4)):
        region(torch.ones(shape))
    assert region.counts == {Reason.RECORDED: 3, Reason.SIGNATURE: 2}


def test_a_recording_has_leaves_of_its_own_and_the_module_keeps_its_parameters(
    toy: Any, make_net: MakeNet, make_region: MakeRegion
) -> None:
    net = make_net()
    parameters = list(net.parameters())
    seen: list[bool] = []
    region = make_region(net)

    def native(image: Tensor) -> Any:
        seen.append(all(a is b for a, b in zip(net.parameters(), parameters, strict=True)))
        return net(image)

    region.native = native
    toy.run(region)
    toy.run(region)
    # finding out what is reached, then a warm-up and the recorded run with leaves of their own
    assert seen == [True, False, False]
    assert all(a is b for a, b in zip(net.parameters(), parameters, strict=True))
    assert region.counts[Reason.REPLAYED] == 1


def test_parameters_are_put_back_when_recording_fails(
    toy: Any, make_net: MakeNet, make_region: MakeRegion
) -> None:
    net = make_net()
    parameters = list(net.parameters())
    with pytest.raises(CaptureError, match="injected"):
        toy.run(make_region(net, backend=TapeBackend(fail_at="backward")))
    assert all(a is b for a, b in zip(net.parameters(), parameters, strict=True))


def test_a_parameter_read_past_its_module_is_refused(make_net: MakeNet) -> None:
    net = nn.Linear(2, 1, bias=False)
    weight = net.weight
    region = GuardedRegion(
        "f",
        lambda x: x @ weight.t(),
        backend=TapeBackend(),
        certificate=ModuleCertificate(net),
        differentiable=True,
        record_after=0,
    )
    with pytest.raises(CaptureError, match="through the module"):
        region(torch.ones(1, 2))


@pytest.mark.parametrize("kind", [nn.LSTM, nn.GRU])
def test_recurrent_layers_replay_to_native_bytes(kind: type[nn.RNNBase]) -> None:
    torch.default_generator.manual_seed(0)
    native = kind(3, 4)
    net = copy.deepcopy(native)
    region = GuardedRegion(
        "rnn",
        net,
        backend=TapeBackend(),
        certificate=ModuleCertificate(net),
        differentiable=True,
        record_after=0,
    )
    for step in range(3):
        x = torch.randn(5, 2, 3, generator=torch.Generator().manual_seed(step))
        for call in (native, region):
            call(x)[0].square().mean().backward()
    assert same_bytes([p.grad for p in native.parameters()], [p.grad for p in net.parameters()])
    assert region.counts[Reason.REPLAYED] == 2
