"""Small functions, each with one planted fault on the line that says so."""

import inspect
import random
from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch import Tensor, nn

from lucid_capture import Fault, GraphedStep, GuardedRegion, TapeBackend, doctor

PRIVATE = torch.Generator()


def reads_a_number(x: Tensor) -> Tensor:
    scale = x.abs().max().item()  # planted
    return x / scale


def branches_on_a_value(x: Tensor) -> Tensor:
    y = x * 2
    if (y > 1).any():  # planted
        y = y - 1
    return y


def copies_to_the_host(x: Tensor) -> Tensor:
    kept = x.detach().cpu()  # planted
    return x + kept.numel()


def counts_rows(x: Tensor) -> Tensor:
    return x.sum() * x.nonzero().shape[0]  # planted


def indexes_with_a_mask(x: Tensor) -> Tensor:
    positive = x > 0
    return x[positive].sum()  # planted


def builds_a_tensor(x: Tensor) -> Tensor:
    size = torch.tensor([4.0, 2.0], device=x.device)  # planted
    return x.view(-1, 2) * size


def waits_for_the_device(x: Tensor) -> Tensor:
    y = x.exp()
    torch.cuda.synchronize()  # planted
    return y


def changes_the_stream(x: Tensor) -> Tensor:
    side = torch.cuda.Stream()
    with torch.cuda.stream(side):  # planted
        return x * 2


def draws_on_the_host(x: Tensor) -> Tensor:
    return x * random.uniform(0.5, 1.5)  # planted


def writes_its_argument(x: Tensor) -> Tensor:
    x.clamp_(min=0)  # planted
    return x.sum()


def draws_from_a_generator_of_its_own(x: Tensor) -> Tensor:
    return x + torch.rand(4, generator=PRIVATE)  # planted


def lists_values(x: Tensor) -> Tensor:
    return x * len(x.tolist())  # planted


def names_the_host(x: Tensor) -> Tensor:
    return x + x.detach().to("cpu").numel()  # planted


def moves_to_a_device(x: Tensor) -> Tensor:
    weight = torch.ones(4)
    return x * weight.to("cuda", torch.float64).float()  # planted


def moves_to_the_device(x: Tensor) -> Tensor:
    return x * torch.ones(4).cuda()  # planted


def waits_for_an_event(x: Tensor) -> Tensor:
    event = torch.cuda.Event()
    torch.cuda.current_stream().record_event(event)
    event.synchronize()  # planted
    return x * 2


PLANTED: dict[Callable[[Tensor], Tensor], Fault] = {
    reads_a_number: Fault.HOST_READ,
    branches_on_a_value: Fault.HOST_READ,
    copies_to_the_host: Fault.HOST_COPY,
    counts_rows: Fault.DYNAMIC_SHAPE,
    indexes_with_a_mask: Fault.BOOLEAN_INDEX,
    builds_a_tensor: Fault.HOST_BUILT,
    waits_for_the_device: Fault.SYNCHRONISATION,
    changes_the_stream: Fault.FOREIGN_STREAM,
    draws_on_the_host: Fault.HOST_RANDOM,
    writes_its_argument: Fault.ARGUMENT_WRITTEN,
    draws_from_a_generator_of_its_own: Fault.UNKNOWN_GENERATOR,
    lists_values: Fault.HOST_READ,
    names_the_host: Fault.HOST_COPY,
    moves_to_a_device: Fault.HOST_COPY,
    moves_to_the_device: Fault.HOST_COPY,
    waits_for_an_event: Fault.SYNCHRONISATION,
}


@pytest.mark.parametrize("function", PLANTED, ids=lambda f: f.__name__)
def test_the_planted_fault_and_nothing_else_is_named(function: Callable[[Tensor], Tensor]) -> None:
    lines, first = inspect.getsourcelines(function)
    if torch.cuda.is_available() and function in (moves_to_a_device, moves_to_the_device):
        pytest.skip("with a device the product of tensors on two of them is an error")
    (offset,) = [i for i, line in enumerate(lines) if "# planted" in line]
    (finding,) = doctor(function, torch.tensor([1.0, -2.0, 3.0, 0.5])).findings
    assert finding.fault is PLANTED[function]
    assert (finding.file, finding.line) == (__file__, first + offset)
    assert finding.code == lines[offset].strip()
    assert finding.fault.remedy in str(finding)


def test_every_fault_is_planted_somewhere() -> None:
    assert set(PLANTED.values()) == set(Fault)


def test_what_can_be_recorded_gets_a_clean_bill(toy: Any, make_net: Callable[[], nn.Module]) -> None:
    net = make_net()

    def work(image: Tensor) -> Tensor:
        loss = toy.scalar(net(image))
        loss.backward()
        return loss

    diagnosis = doctor(work, toy.images(0))
    assert diagnosis, str(diagnosis)
    assert "nothing" in str(diagnosis)


def test_faults_of_the_backward_pass_are_seen() -> None:
    class Clipped(torch.autograd.Function):
        @staticmethod
        def forward(ctx: Any, x: Tensor) -> Tensor:
            return x.clone()

        @staticmethod
        def backward(ctx: Any, grad: Tensor) -> Tensor:
            return grad / grad.norm().item()

    def work(x: Tensor) -> Tensor:
        return torch.autograd.grad(Clipped.apply(x).sum(), x)[0]

    (finding,) = doctor(work, torch.ones(2, requires_grad=True)).findings
    assert "grad.norm().item()" in finding.code


def test_a_step_names_the_optimizer_that_reads_on_the_host() -> None:
    net = nn.Linear(2, 1)
    optimizer = torch.optim.Adam(net.parameters(), lr=0.1)
    step = GraphedStep(net, lambda x: net(x).square().mean(), optimizer, backend=TapeBackend())
    step(torch.ones(1, 2))
    diagnosis = doctor(step, torch.ones(1, 2))
    assert {f.fault for f in diagnosis.findings} == {Fault.HOST_READ}
    assert "torch/optim" in diagnosis.findings[0].file
    assert ".item()" in diagnosis.findings[0].code


def test_a_fused_optimizer_gets_a_clean_bill() -> None:
    net = nn.Linear(2, 1)
    optimizer = torch.optim.Adam(net.parameters(), lr=0.1, fused=True)
    step = GraphedStep(net, lambda x: net(x).square().mean(), optimizer, clip_norm=1.0, ema_decay=0.9)
    with pytest.warns(UserWarning, match="no recording back-end"):
        step(torch.ones(1, 2))
    diagnosis = doctor(step, torch.ones(1, 2))
    assert diagnosis, str(diagnosis)


def test_several_faults_are_told_in_order_once_each() -> None:
    def work(x: Tensor) -> Tensor:
        for _ in range(3):
            x = x * float(x.sum())
        return x.unique()

    diagnosis = doctor(work, torch.ones(2))
    assert [f.fault for f in diagnosis.findings] == [Fault.HOST_READ, Fault.DYNAMIC_SHAPE]


def test_known_generators_are_no_fault() -> None:
    assert doctor(draws_from_a_generator_of_its_own, torch.ones(4), generators=(PRIVATE,))


def test_nothing_stays_patched_after_an_error() -> None:
    def failing(x: Tensor) -> Tensor:
        raise ValueError("from the work")

    before = (torch.cuda.synchronize, random.random, torch.Tensor.tolist, torch.cuda.Stream)
    with pytest.raises(ValueError, match="from the work"):
        doctor(failing, torch.ones(1))
    assert (torch.cuda.synchronize, random.random, torch.Tensor.tolist, torch.cuda.Stream) == before


def test_a_region_may_be_examined() -> None:
    region = GuardedRegion("f", indexes_with_a_mask, backend=TapeBackend())
    (finding,) = doctor(region, torch.ones(4)).findings
    assert finding.fault is Fault.BOOLEAN_INDEX
