"""Whatever happens between steps, a replayed whole step stays byte-equal to the plain loop it stands for."""

import copy
import warnings
from collections.abc import Callable
from typing import Any

import pytest
import torch
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from torch import Tensor, nn

from lucid_capture import GraphedStep, Reason, ReplayWarning, TapeBackend, same_bytes

MakeNet = Callable[[], nn.Module]


class Plain:
    """The loop everybody writes, with host numbers where it can."""

    def __init__(self, toy: Any, net: nn.Module) -> None:
        self.toy, self.net = toy, net
        self.optimizer = torch.optim.SGD(net.parameters(), lr=torch.tensor(0.1), momentum=0.9, fused=True)
        self.alpha, self.limit = 1.0, 0.5
        self.ema = {n: t.detach().clone() for n, t in net.state_dict().items() if t.is_floating_point()}

    def loss(self, image: Tensor, alpha: Any) -> Tensor:
        outputs = self.net(image)
        return (outputs["main"].square() * alpha).mean() + outputs["side"].abs().mean()

    def step(self, image: Tensor) -> Any:
        self.optimizer.zero_grad()
        value = self.loss(image, self.alpha)
        value.backward()
        torch.nn.utils.clip_grad_norm_(self.net.parameters(), self.limit)
        self.optimizer.step()
        live = self.net.state_dict()
        for name, shadow in self.ema.items():
            shadow.lerp_(live[name], 1.0 - 0.9)
        return value.detach()

    def set_rate(self, rate: float) -> None:
        self.optimizer.param_groups[0]["lr"] = torch.tensor(rate)

    def state(self) -> dict[str, Any]:
        kept = self.optimizer.state_dict()["state"]
        grads = [p.grad for p in self.net.parameters()]
        return {**self.net.state_dict(), "optimizer": kept, "ema": self.ema, "grads": grads}


class Replayed(Plain):
    """The same, through a `GraphedStep`."""

    def __init__(self, toy: Any, net: nn.Module) -> None:
        super().__init__(toy, net)
        self.graphed = GraphedStep(
            net,
            lambda image, alpha: self.loss(image, alpha),
            self.optimizer,
            backend=TapeBackend(),
            scalars={"alpha": 1.0},
            clip_norm=0.5,
            ema_decay=0.9,
        )
        self.ema = {name: self.graphed.ema[name] for name in self.ema}

    def step(self, image: Tensor) -> Any:
        self.graphed.scalars["alpha"], self.graphed.scalars["clip_norm"] = self.alpha, self.limit
        return self.graphed(image)

    def set_rate(self, rate: float) -> None:
        self.optimizer.param_groups[0]["lr"] = rate


Event = Callable[[Plain], Any]


def full(s: Plain) -> Any:
    return s.step(s.toy.images(1))


def other(s: Plain) -> Any:
    return s.step(s.toy.images(2))


def partial(s: Plain) -> Any:
    return s.step(s.toy.images(3, batch=1))


def new_rate(s: Plain) -> None:
    s.set_rate(0.03)


def no_rate(s: Plain) -> None:
    s.set_rate(0.0)


def new_alpha(s: Plain) -> None:
    s.alpha = 0.25


def new_limit(s: Plain) -> None:
    s.limit = 5.0 if s.limit == 0.5 else 0.5


def validation(s: Plain) -> Any:
    s.net.eval()
    with torch.no_grad():
        result = s.net(s.toy.images(4))["main"]
    s.net.train()
    return result


def failing(s: Plain) -> None:
    kept = [p.grad for p in s.net.parameters()]
    with pytest.raises(RuntimeError):
        s.step(torch.zeros(2, 5, 8, 8))
    for p, grad in zip(s.net.parameters(), kept, strict=True):
        p.grad = grad


def outside_backward(s: Plain) -> Any:
    """A gradient taken apart from the step, whose loss stays alive."""
    s.kept = s.loss(s.toy.images(5), 1.0)  # type: ignore[attr-defined]
    return torch.autograd.grad(s.kept, s.net.head.weight, retain_graph=True)  # type: ignore[attr-defined]


def freeze(s: Plain) -> None:
    s.net.side.weight.requires_grad_(not s.net.side.weight.requires_grad)


def hook(s: Plain) -> None:
    s.net.head.register_forward_hook(lambda module, args, output: output * 2)


def reload(s: Plain) -> None:
    rate = float(s.optimizer.param_groups[0]["lr"])
    s.optimizer.load_state_dict(copy.deepcopy(s.optimizer.state_dict()))
    s.set_rate(rate)


def new_momentum(s: Plain) -> None:
    s.optimizer.param_groups[0]["momentum"] = 0.8


HARMLESS: list[Event] = [
    full,
    other,
    partial,
    new_rate,
    no_rate,
    new_alpha,
    new_limit,
    validation,
    failing,
    outside_backward,
]
BREAKING: list[Event] = [freeze, hook, reload, new_momentum]


def check(toy: Any, make_net: MakeNet, events: list[Event]) -> GraphedStep:
    plain, replayed = Plain(toy, make_net()), Replayed(toy, make_net())
    for number, event in enumerate(events):
        results = []
        for scene in (plain, replayed):
            torch.default_generator.manual_seed(number)
            with warnings.catch_warnings():
                warnings.simplefilter("ignore", ReplayWarning)
                results.append((event(scene), scene.state()))
        result = same_bytes(*results)
        assert result, f"after {[e.__name__ for e in events[: number + 1]]}: {result}"
    return replayed.graphed


def sequences(examples: int) -> Any:
    return settings(
        max_examples=examples, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture]
    )


@given(events=st.lists(st.sampled_from(HARMLESS), min_size=1, max_size=6))
@sequences(40)
def test_steps_that_break_no_contract(toy: Any, make_net: MakeNet, events: list[Event]) -> None:
    step = check(toy, make_net, [full, full, *events, full])
    assert step.region.retired_by is None
    assert step.region.counts[Reason.REPLAYED] >= 1


@given(events=st.lists(st.sampled_from(HARMLESS + BREAKING), min_size=1, max_size=6))
@sequences(40)
def test_steps_of_every_kind(toy: Any, make_net: MakeNet, events: list[Event]) -> None:
    check(toy, make_net, [full, full, *events, full])
