"""`verify` passes what is equal, names what is not, and refuses to pass for nothing."""

import copy
import sys
from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch import Tensor, nn

from lucid_capture import (
    FunctionCertificate,
    GraphedStep,
    GuardedRegion,
    ModuleCertificate,
    Outcome,
    Poison,
    Reason,
    State,
    TapeBackend,
    same_bytes,
    verify,
)

MakeNet = Callable[[], nn.Module]
gradients = sys.modules["lucid_capture.gradients"]


@pytest.fixture
def whole(make_net: MakeNet, toy: Any) -> tuple[GraphedStep, nn.Module, list[Any]]:
    net = make_net()
    optimizer = torch.optim.SGD(net.parameters(), lr=0.1, momentum=0.9, fused=True)
    step = GraphedStep(
        net,
        lambda image: toy.scalar(net(image)),
        optimizer,
        backend=TapeBackend(),
        clip_norm=1.0,
        ema_decay=0.99,
    )
    return step, net, [(toy.images(i),) for i in range(3)]


def test_a_whole_step_is_proven_and_left_as_it_was(whole: Any) -> None:
    step, net, batches = whole
    for batch in batches:
        step(*batch)
    held, rng = step.region.owned_bytes(), torch.get_rng_state()
    before = copy.deepcopy((net.state_dict(), step.optimizer.state_dict()["state"], step.ema))
    counts = dict(step.region.counts)
    verdict = verify(step, batches)
    assert verdict, str(verdict)
    assert verdict.launches == {"step": 3}
    assert same_bytes(before, (net.state_dict(), step.optimizer.state_dict()["state"], step.ema))
    assert torch.equal(rng, torch.get_rng_state())
    assert (step.region.state, step.region.owned_bytes()) == (State.ACTIVE, held)
    assert dict(step.region.counts) == counts
    step(*batches[0])
    assert step.region.counts[Reason.REPLAYED] == counts[Reason.REPLAYED] + 1


def test_a_step_that_never_ran_is_proven_and_left_without_state(whole: Any) -> None:
    step, _, batches = whole
    assert verify(step, batches)
    assert not step.optimizer.state


def test_a_plain_loop_around_a_region_is_proven(toy: Any, make_net: MakeNet) -> None:
    net = make_net()
    optimizer = torch.optim.Adam(net.parameters(), lr=0.01)
    region = GuardedRegion(
        "net", net, backend=TapeBackend(), certificate=ModuleCertificate(net), differentiable=True
    )

    def step(image: Tensor) -> Tensor:
        loss = toy.scalar(region(image))
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        return loss

    batches = [(toy.images(i),) for i in range(2)]
    verdict = verify(step, batches, regions=[region], state={"net": net, "optimizer": optimizer})
    assert verdict, str(verdict)
    assert verdict.launches == {"net": 3}


@pytest.mark.parametrize("differentiable", [True, False])
def test_a_bare_region_is_proven(toy: Any, make_net: MakeNet, differentiable: bool) -> None:
    net = make_net()
    region = GuardedRegion(
        "net",
        net,
        backend=TapeBackend(),
        certificate=ModuleCertificate(net),
        differentiable=differentiable,
    )
    verdict = verify(region, [(toy.images(0),), (toy.images(1),)])
    assert verdict, str(verdict)


def test_the_first_differing_tensor_is_named(whole: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    step, _, batches = whole
    saved = sys.modules["lucid_capture._procedure"].Saved
    monkeypatch.setattr(saved, "restore", lambda self: None)
    verdict = verify(step, batches)
    assert not verdict
    assert verdict.control
    assert "[1]['results'][0]: element 0 of 1 differs" in str(verdict)


def test_state_that_differs_is_named_by_holder_and_tensor() -> None:
    layer = nn.Linear(2, 1)
    region = GuardedRegion("f", lambda x: x * 2, backend=TapeBackend(), record_after=0)

    def step(x: Tensor) -> Tensor:
        result = region(x)
        if region.counts[Reason.RECORDED]:
            with torch.no_grad():
                layer.bias.add_(1)
        return result

    verdict = verify(step, [(torch.zeros(1),), (torch.ones(1),)], regions=[region], state={"layer": layer})
    assert "[0]['layer']['bias']" in str(verdict)


def test_a_host_value_that_nobody_declared_is_found() -> None:
    calls = iter(range(100))
    region = GuardedRegion("f", lambda x: x + next(calls) % 2, backend=TapeBackend())
    verdict = verify(region, [(torch.zeros(1),), (torch.ones(1),)])
    assert "replay differs" in str(verdict)


def test_eager_runs_that_differ_cannot_be_judged() -> None:
    noise = torch.Generator().manual_seed(0)
    region = GuardedRegion("f", lambda x: x + torch.rand(1, generator=noise), backend=TapeBackend())
    verdict = verify(region, [(torch.zeros(1),), (torch.ones(1),)])
    assert "does not reproduce itself" in str(verdict)
    known = GuardedRegion("f", region.native, backend=TapeBackend(generators=(noise,)))
    assert verify(known, [(torch.zeros(1),), (torch.ones(1),)])


def test_batches_that_cannot_tell_are_refused() -> None:
    region = GuardedRegion("f", lambda x: torch.zeros_like(x), backend=TapeBackend())
    assert "give batches that differ" in str(verify(region, [(torch.zeros(1),), (torch.ones(1),)]))


def test_a_region_that_does_not_replay_proves_nothing() -> None:
    region = GuardedRegion("f", lambda x: x * 2, backend=TapeBackend(), admit=lambda x: False)
    verdict = verify(region, [(torch.zeros(1),), (torch.ones(1),)])
    assert "nothing was tested: declined" in str(verdict)


def test_a_shared_input_summed_in_another_order_is_found() -> None:
    # natively the three contributions to x arrive one by one; the region hands two of them over as one sum
    torch.manual_seed(0)
    a, b, c = (torch.randn(64) * 10.0**k for k in (0, 4, 8))
    region = GuardedRegion(
        "two", lambda x: (x * a, x * b), backend=TapeBackend(), differentiable=True, record_after=0
    )
    leaf = nn.Parameter(torch.ones(64))

    def step(scale: Tensor) -> Tensor:
        leaf.grad = None
        x = leaf * scale
        one, two = region(x)
        outside = x * c
        (one.sum() + two.sum() + outside.sum()).backward()
        return x.detach()

    batches = [(torch.ones(1),), (torch.full((1,), 3.0),)]
    verdict = verify(step, batches, regions=[region], state={"leaf": {"leaf": leaf}, "m": Holder(leaf)})
    assert "weight.grad" in str(verdict)


class Holder(nn.Module):
    """A parameter with a name."""

    def __init__(self, weight: nn.Parameter) -> None:
        super().__init__()
        self.weight = weight


def test_it_asks_for_what_it_cannot_know() -> None:
    with pytest.raises(TypeError, match="regions and the state"):
        verify(lambda x: x, [(1,), (2,)])
    with pytest.raises(ValueError, match="two batches"):
        verify(GuardedRegion("f", lambda x: x), [(torch.ones(1),)])


# what is broken on purpose, and must be found


def no_input_copy(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(gradients, "_copy", lambda pairs: None)


def outputs_of_the_recording(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(gradients, "_owned", lambda tensors: [t.detach() for t in tensors])


def no_rollback(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(sys.modules["lucid_capture._procedure"].Saved, "restore", lambda self: None)


@pytest.mark.parametrize("mutant", [no_input_copy, outputs_of_the_recording, no_rollback])
def test_broken_replay_is_found(
    toy: Any, make_net: MakeNet, mutant: Callable[[pytest.MonkeyPatch], None], monkeypatch: pytest.MonkeyPatch
) -> None:
    net = make_net()
    region = GuardedRegion(
        "net",
        net,
        backend=TapeBackend(Poison.NAN),
        certificate=ModuleCertificate(net),
        differentiable=True,
    )

    def step(image: Tensor) -> Any:
        first = region(image)
        toy.scalar(first).backward()
        second = region(image * 2)
        toy.scalar(second).backward()
        return first, second

    batches = [(toy.images(0),), (toy.images(1),)]
    assert verify(step, batches, regions=[region], state={"net": net})
    mutant(monkeypatch)
    assert not verify(step, batches, regions=[region], state={"net": net})


def test_a_guard_that_is_off_is_found() -> None:
    gain = [1.0]
    region = GuardedRegion(
        "gain",
        lambda x: x * gain[0],
        backend=TapeBackend(),
        certificate=FunctionCertificate(gain=lambda: gain[0]),
        policy={Reason.CONTRACT: Outcome.DROP},
    )

    def step(x: Tensor) -> Tensor:
        gain[0] = 3.0 if x.item() > 1 else 1.0
        return region(x)

    batches = [(torch.ones(1),), (torch.full((1,), 2.0),)]
    assert "fewer than two" in str(verify(step, batches, regions=[region], state={}))
    region.certificate = FunctionCertificate()
    assert "differs" in str(verify(step, batches, regions=[region], state={}))
