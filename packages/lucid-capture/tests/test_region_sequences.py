"""Whatever happens to a network between calls, a region stays byte-equal to a native twin."""

import warnings
from collections.abc import Callable
from typing import Any

import pytest
import torch
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from torch import nn

from lucid_capture import GuardedRegion, Reason, ReplayWarning, same_bytes

Call = Callable[..., Any]
Event = Callable[[Any, Call, nn.Module], None]


def full(toy: Any, call: Call, net: nn.Module) -> None:
    toy.run(call, seed=3)


def partial(toy: Any, call: Call, net: nn.Module) -> None:
    toy.run(call, seed=4, batch=1)


def skipped_backward(toy: Any, call: Call, net: nn.Module) -> None:
    call(toy.images(5))


def two_forwards(toy: Any, call: Call, net: nn.Module) -> None:
    first, second = toy.scalar(call(toy.images(6))), toy.scalar(call(toy.images(7)))
    second.backward()
    first.backward()


def part_of_the_outputs(toy: Any, call: Call, net: nn.Module) -> None:
    call(toy.images(8))["main"].sum().backward()


def evaluation(toy: Any, call: Call, net: nn.Module) -> None:
    net.eval()
    with torch.no_grad():
        call(toy.images(9))
    net.train()


def zero_grad(toy: Any, call: Call, net: nn.Module) -> None:
    net.zero_grad()


def update(toy: Any, call: Call, net: nn.Module) -> None:
    torch.optim.SGD(net.parameters(), lr=0.1).step()


def failing_step(toy: Any, call: Call, net: nn.Module) -> None:
    with pytest.raises(RuntimeError):
        call(torch.zeros(2, 5, 8, 8))


def toggle_hook(toy: Any, call: Call, net: nn.Module) -> None:
    handle = net.head.register_forward_hook(lambda module, args, output: output * 2)
    toy.run(call, seed=10)
    handle.remove()


def toggle_freeze(toy: Any, call: Call, net: nn.Module) -> None:
    net.side.weight.requires_grad_(not net.side.weight.requires_grad)


def swap_storage(toy: Any, call: Call, net: nn.Module) -> None:
    net.head.weight.data = net.head.weight.data * 0.5


def half_precision(toy: Any, call: Call, net: nn.Module) -> None:
    with torch.autocast("cpu", torch.bfloat16):
        toy.run(call, seed=11)


HARMLESS = [
    full,
    partial,
    skipped_backward,
    two_forwards,
    part_of_the_outputs,
    evaluation,
    zero_grad,
    update,
    failing_step,
]
BREAKING = [toggle_hook, toggle_freeze, swap_storage, half_precision]


def check(
    toy: Any,
    make_net: Callable[[], nn.Module],
    make_region: Callable[..., GuardedRegion],
    events: list[Event],
) -> GuardedRegion:
    native, replayed = make_net(), make_net()
    region = make_region(replayed)
    for number, event in enumerate(events):
        for call, net in ((native, native), (region, replayed)):
            torch.manual_seed(number)
            with warnings.catch_warnings():
                warnings.simplefilter("ignore", ReplayWarning)
                event(toy, call, net)
        result = same_bytes(toy.state(native), toy.state(replayed))
        assert result, f"after {[e.__name__ for e in events[: number + 1]]}: {result}"
    return region


QUIET = settings(max_examples=15, suppress_health_check=[HealthCheck.function_scoped_fixture])


@given(events=st.lists(st.sampled_from(HARMLESS), min_size=1, max_size=8))
@QUIET
def test_events_that_break_no_contract(
    toy: Any, make_net: Any, make_region: Any, events: list[Event]
) -> None:
    region = check(toy, make_net, make_region, [full, *events, full])
    assert region.retired_by is None
    assert region.counts[Reason.REPLAYED] >= 1


@given(events=st.lists(st.sampled_from(HARMLESS + BREAKING), min_size=1, max_size=8))
@QUIET
def test_events_of_every_kind(toy: Any, make_net: Any, make_region: Any, events: list[Event]) -> None:
    check(toy, make_net, make_region, [full, *events, full])
