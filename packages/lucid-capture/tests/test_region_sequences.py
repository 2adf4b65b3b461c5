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


class Scene:
    """A network, what calls it, its optimizer, and what is under way: the same events happen to two of them."""

    def __init__(self, toy: Any, call: Call, net: nn.Module) -> None:
        self.toy, self.call, self.net = toy, call, net
        self.optimizer = torch.optim.SGD(net.parameters(), lr=0.1, momentum=0.9)
        self.hook: Any = None

    def state(self) -> dict[str, Any]:
        return {**self.toy.state(self.net), "optimizer": self.optimizer.state_dict()["state"]}


Event = Callable[[Scene], None]


def full(s: Scene) -> None:
    s.toy.run(s.call, seed=3)


def partial(s: Scene) -> None:
    s.toy.run(s.call, seed=4, batch=1)


def empty(s: Scene) -> None:
    s.net.eval()
    s.toy.run(s.call, seed=4, batch=0)
    s.net.train()


def skipped_backward(s: Scene) -> None:
    s.call(s.toy.images(5))


def two_forwards(s: Scene) -> None:
    first, second = s.toy.scalar(s.call(s.toy.images(6))), s.toy.scalar(s.call(s.toy.images(7)))
    second.backward()
    first.backward()


def part_of_the_outputs(s: Scene) -> None:
    s.call(s.toy.images(8))["main"].sum().backward()


def validation(s: Scene) -> None:
    s.net.eval()
    with torch.no_grad():
        s.call(s.toy.images(9))
    s.net.train()


def zero_grad(s: Scene) -> None:
    s.optimizer.zero_grad()


def update(s: Scene) -> None:
    s.optimizer.step()


def failing_step(s: Scene) -> None:
    with pytest.raises(RuntimeError):
        s.call(torch.zeros(2, 5, 8, 8))


def new_batch(s: Scene) -> None:
    if isinstance(s.call, GuardedRegion):
        s.call.release()


def toggle_hook(s: Scene) -> None:
    if s.hook is None:
        s.hook = s.net.head.register_forward_hook(lambda module, args, output: output * 2)
    else:
        s.hook.remove()
        s.hook = None


def toggle_freeze(s: Scene) -> None:
    s.net.side.weight.requires_grad_(not s.net.side.weight.requires_grad)


def swap_storage(s: Scene) -> None:
    s.net.head.weight.data = s.net.head.weight.data * 0.5


def half_precision(s: Scene) -> None:
    with torch.autocast("cpu", torch.bfloat16):
        s.toy.run(s.call, seed=11)


def new_scalar(s: Scene) -> None:
    s.net.norm.momentum = 0.2 if s.net.norm.momentum == 0.1 else 0.1


def dropped(s: Scene) -> None:
    if isinstance(s.call, GuardedRegion):
        s.call.drop()


HARMLESS = [
    full,
    partial,
    empty,
    skipped_backward,
    two_forwards,
    part_of_the_outputs,
    validation,
    zero_grad,
    update,
    failing_step,
    new_batch,
]
BREAKING = [dropped, toggle_hook, toggle_freeze, swap_storage, half_precision, new_scalar]


def check(toy: Any, make_net: Any, make_region: Any, events: list[Event]) -> GuardedRegion:
    native, replayed = make_net(), make_net()
    region = make_region(replayed)
    scenes = Scene(toy, native, native), Scene(toy, region, replayed)
    for number, event in enumerate(events):
        for scene in scenes:
            torch.default_generator.manual_seed(number)
            with warnings.catch_warnings():
                warnings.simplefilter("ignore", ReplayWarning)
                event(scene)
        result = same_bytes(*(scene.state() for scene in scenes))
        assert result, f"after {[e.__name__ for e in events[: number + 1]]}: {result}"
    return region


def sequences(examples: int) -> Any:
    return settings(
        max_examples=examples, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture]
    )


@given(events=st.lists(st.sampled_from(HARMLESS), min_size=1, max_size=6))
@sequences(100)
def test_events_that_break_no_contract(
    toy: Any, make_net: Any, make_region: Any, events: list[Event]
) -> None:
    region = check(toy, make_net, make_region, [full, *events, zero_grad, full, full])
    assert region.retired_by is None
    assert region.counts[Reason.REPLAYED] >= 1


@given(events=st.lists(st.sampled_from(HARMLESS + BREAKING), min_size=1, max_size=6))
@sequences(120)
def test_events_of_every_kind(toy: Any, make_net: Any, make_region: Any, events: list[Event]) -> None:
    check(toy, make_net, make_region, [full, *events, full])
