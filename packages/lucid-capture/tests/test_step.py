"""A whole step replayed against the plain training loop that it stands for."""

import copy
import warnings
from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch import Tensor, nn

from lucid_capture import (
    CaptureError,
    GraphedStep,
    Outcome,
    Reason,
    ReplayWarning,
    State,
    TapeBackend,
    same_bytes,
)

MakeNet = Callable[[], nn.Module]
Make = Callable[..., Any]

OPTIMIZERS: dict[str, Make] = {
    "sgd": lambda ps, lr: torch.optim.SGD(ps, lr=lr, momentum=0.9, weight_decay=1e-2, fused=True),
    "adam": lambda ps, lr: torch.optim.Adam(ps, lr=lr, fused=True),
    "adamw": lambda ps, lr: torch.optim.AdamW(ps, lr=lr, fused=True, capturable=True),
}


class SignDescent:
    """An optimizer of the plainest kind: no base class, its state a dict."""

    def __init__(self, parameters: list[Tensor], lr: float) -> None:
        self.param_groups: list[dict[str, Any]] = [{"params": parameters, "lr": lr}]
        self.state: dict[Tensor, dict[str, Any]] = {}

    @torch.no_grad()
    def step(self) -> None:
        for group in self.param_groups:
            for p in group["params"]:
                if p.grad is not None:
                    kept = self.state.setdefault(p, {"seen": torch.zeros_like(p)})
                    kept["seen"].add_(p.grad)
                    p.sub_(kept["seen"].sign() * group["lr"])


def objective(net: nn.Module) -> Callable[..., Tensor]:
    def loss(image: Tensor, alpha: Tensor | float = 1.0) -> Tensor:
        outputs = net(image)
        return (outputs["main"].square() * alpha).mean() + outputs["side"].abs().mean()

    return loss


def plain_loop(
    net: nn.Module, optimizer: Any, images: list[Tensor], alphas: list[float], rates: list[float]
) -> list[Any]:
    """The training loop everybody writes, with host numbers."""
    ema = {n: t.detach().clone() for n, t in net.state_dict().items() if t.is_floating_point()}
    loss, seen = objective(net), []
    for image, alpha, rate in zip(images, alphas, rates, strict=True):
        optimizer.param_groups[0]["lr"] = torch.tensor(rate)
        for p in net.parameters():
            p.grad = None
        value = loss(image, alpha)
        value.backward()
        torch.nn.utils.clip_grad_norm_(net.parameters(), 0.5)
        optimizer.step()
        live = net.state_dict()
        for name, shadow in ema.items():
            shadow.lerp_(live[name], 1.0 - 0.9)
        seen.append((value.detach(), copy.deepcopy(net.state_dict()), copy.deepcopy(ema)))
    return seen


def graphed_loop(
    net: nn.Module, optimizer: Any, images: list[Tensor], alphas: list[float], rates: list[float]
) -> tuple[list[Any], GraphedStep]:
    step = GraphedStep(
        net,
        objective(net),
        optimizer,
        backend=TapeBackend(),
        scalars={"alpha": 1.0},
        clip_norm=0.5,
        ema_decay=0.9,
    )
    seen = []
    for image, alpha, rate in zip(images, alphas, rates, strict=True):
        step.scalars["alpha"] = alpha
        optimizer.param_groups[0]["lr"] = rate
        value = step(image)
        ema = {n: step.ema[n] for n, t in net.state_dict().items() if t.is_floating_point()}
        seen.append((value, copy.deepcopy(net.state_dict()), copy.deepcopy(ema)))
    return seen, step


ALPHAS, RATES = [0.8, 0.1, 0.25, 0.7, 0.1], [0.1, 0.01, 0.03, 0.2, 0.1]


@pytest.mark.parametrize("kind", OPTIMIZERS)
def test_a_replayed_step_is_the_plain_loop_byte_for_byte(toy: Any, make_net: MakeNet, kind: str) -> None:
    images = [toy.images(i) for i in range(5)]
    runs = []
    for loop in (plain_loop, lambda *a: graphed_loop(*a)[0]):
        net = make_net()
        optimizer = OPTIMIZERS[kind](net.parameters(), torch.tensor(0.1))
        torch.manual_seed(3)
        runs.append(loop(net, optimizer, images, ALPHAS, RATES))
    result = same_bytes(*runs)
    assert result, str(result)


@pytest.fixture
def quick(make_net: MakeNet) -> Callable[..., tuple[GraphedStep, nn.Module]]:
    def make(optimizer: Make = OPTIMIZERS["sgd"], **options: Any) -> tuple[GraphedStep, nn.Module]:
        net = make_net()
        options.setdefault("backend", TapeBackend())
        return GraphedStep(net, objective(net), optimizer(list(net.parameters()), 0.1), **options), net

    return make


def test_autocast_inside_the_loss_gives_the_bytes_of_the_plain_loop(toy: Any, make_net: MakeNet) -> None:
    runs = []
    for graphed in (False, True):
        net = make_net()
        optimizer = OPTIMIZERS["adam"](net.parameters(), torch.tensor(0.01))

        def loss(image: Tensor, net: nn.Module = net) -> Tensor:
            with torch.autocast("cpu", torch.bfloat16):
                outputs = net(image)
            return toy.scalar({k: v.float() for k, v in outputs.items()})

        step = GraphedStep(net, loss, optimizer, backend=TapeBackend()) if graphed else None
        torch.default_generator.manual_seed(2)
        for i in range(4):
            if step is not None:
                step(toy.images(i))
                continue
            optimizer.zero_grad()
            loss(toy.images(i)).backward()
            optimizer.step()
        runs.append((net.state_dict(), [p.grad for p in net.parameters()]))
    result = same_bytes(*runs)
    assert result, str(result)


def test_a_partial_batch_is_native_and_the_recording_stays(toy: Any, quick: Make) -> None:
    step, _ = quick()
    for i in range(3):
        step(toy.images(i))
    step(toy.images(3, batch=1))
    step(toy.images(4))
    assert step.region.counts[Reason.SIGNATURE] == 1
    assert step.region.counts[Reason.REPLAYED] == 2


def test_gradients_shown_are_those_the_step_computed(make_net: MakeNet, toy: Any) -> None:
    net = make_net()
    optimizer = OPTIMIZERS["sgd"](net.parameters(), 0.1)

    def loss(image: Tensor) -> Tensor:
        outputs = net(image)
        return outputs["main"].sum() if len(image) == 1 else toy.scalar(outputs)

    step = GraphedStep(net, loss, optimizer, backend=TapeBackend())
    shown = []
    for batch in (2, 2, 1, 2):
        step(toy.images(0, batch))
        shown.append(net.side.weight.grad is not None)
    assert shown == [True, True, False, True]
    assert step.region.counts[Reason.REPLAYED] == 1


def test_a_copy_has_its_own_model_and_no_recording(toy: Any, quick: Make) -> None:
    step, net = quick()
    for i in range(3):
        step(toy.images(i))
    twin = copy.deepcopy(step)
    assert twin.model is not net
    assert (twin.region.state, twin.region.owned_bytes()) == (State.IDLE, 0)


def test_a_parameter_outside_the_model_is_trained_too() -> None:
    def run(backend: TapeBackend | None) -> list[Tensor]:
        torch.default_generator.manual_seed(0)
        net, temperature = nn.Linear(2, 1), nn.Parameter(torch.ones(1))
        optimizer = torch.optim.SGD([*net.parameters(), temperature], lr=0.1, fused=True)
        step = GraphedStep(
            net,
            lambda x: (net(x) * temperature).square().mean(),
            optimizer,
            backend=backend,
            policy={Reason.UNSUPPORTED: Outcome.NATIVE_ONCE},
        )
        for i in range(4):
            step(torch.full((3, 2), 1.0 + i))
        return [*net.parameters(), temperature, temperature.grad]

    assert same_bytes(run(None), run(TapeBackend()))


def test_a_parameter_read_past_its_module_is_refused() -> None:
    net = nn.Linear(2, 1)
    weight = net.weight
    optimizer = torch.optim.SGD(net.parameters(), lr=0.1, fused=True)
    step = GraphedStep(net, lambda x: (x @ weight.t()).square().mean(), optimizer, backend=TapeBackend())
    step(torch.ones(1, 2))
    with pytest.raises(CaptureError, match="other parameters"):
        step(torch.ones(1, 2))


def test_it_replays_after_one_native_and_one_recording_step(toy: Any, quick: Make) -> None:
    step, _ = quick()
    for i in range(5):
        step(toy.images(i))
    assert step.region.counts == {Reason.FIRST_SIGHTING: 1, Reason.RECORDED: 1, Reason.REPLAYED: 3}
    assert "replayed" in step.report().table()


def test_any_object_with_groups_state_and_a_step_is_an_optimizer(toy: Any, quick: Make) -> None:
    native, one = quick(SignDescent, policy={Reason.FIRST_SIGHTING: Outcome.RETIRE})
    replayed, other = quick(SignDescent)
    for step in (native, replayed):
        torch.manual_seed(1)
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", ReplayWarning)
            for i in range(4):
                step(toy.images(i))
    result = same_bytes(one.state_dict(), other.state_dict())
    assert result, str(result)
    assert replayed.region.counts[Reason.REPLAYED] == 2
    assert native.region.retired_by is Reason.FIRST_SIGHTING


def test_a_learning_rate_that_a_scheduler_sets_is_used(toy: Any, quick: Make) -> None:
    step, net = quick()
    schedule = torch.optim.lr_scheduler.LambdaLR(step.optimizer, lambda epoch: float(epoch < 3))
    for i in range(3):
        step(toy.images(i))
        schedule.step()
    before = copy.deepcopy(dict(net.named_parameters()))
    step(toy.images(3))
    assert step.region.counts[Reason.REPLAYED] == 2
    assert same_bytes(before, dict(net.named_parameters()))


def test_gradients_stay_readable_after_the_next_step(toy: Any, quick: Make) -> None:
    step, net = quick()
    for i in range(4):
        step(toy.images(i))
        step.optimizer.zero_grad()
    step(toy.images(5))
    assert net.conv.weight.grad.isfinite().all()


def test_an_optimizer_that_counts_on_the_host_cannot_be_recorded(toy: Any, quick: Make) -> None:
    class Counting(SignDescent):
        def step(self) -> None:
            super().step()
            for kept in self.state.values():
                kept["n"] = kept.get("n", 0) + 1

    step, _ = quick(Counting)
    step(toy.images(0))
    with pytest.raises(CaptureError, match=r"state\[0\].n"):
        step(toy.images(1))


def test_an_option_of_a_group_that_changes_retires_the_step(toy: Any, quick: Make) -> None:
    step, _ = quick()
    for i in range(3):
        step(toy.images(i))
    step.optimizer.param_groups[0]["momentum"] = 0.5
    with pytest.warns(ReplayWarning, match="constant"):
        step(toy.images(3))


def test_loaded_optimizer_state_is_noticed(toy: Any, quick: Make) -> None:
    step, _ = quick()
    for i in range(3):
        step(toy.images(i))
    step.optimizer.load_state_dict(copy.deepcopy(step.optimizer.state_dict()))
    with pytest.warns(ReplayWarning, match="lives elsewhere"):
        step(toy.images(3))


def test_a_failed_recording_leaves_the_state_of_training_alone(toy: Any, quick: Make) -> None:
    step, net = quick(backend=TapeBackend(fail_at="replay"))
    step(toy.images(0))
    before = copy.deepcopy((net.state_dict(), step.optimizer.state_dict()["state"]))
    with pytest.raises(CaptureError, match="injected"):
        step(toy.images(1))
    assert same_bytes(before, (net.state_dict(), step.optimizer.state_dict()["state"]))


def test_closing_gives_learning_rates_back_as_numbers(quick: Make) -> None:
    step, _ = quick()
    step.close()
    assert isinstance(step.optimizer.param_groups[0]["lr"], float)


def test_scalars_have_fixed_names(quick: Make) -> None:
    step, _ = quick(scalars={"alpha": 0.5})
    with pytest.raises(KeyError, match="beta"):
        step.scalars["beta"] = 1.0


def test_the_first_step_has_to_be_native(quick: Make) -> None:
    with pytest.raises(ValueError, match="record_after"):
        quick(record_after=0)
