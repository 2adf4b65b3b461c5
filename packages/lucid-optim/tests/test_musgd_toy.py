"""A small regression task whose step counts two independent implementations agree on."""

from collections.abc import Callable
from functools import partial

import pytest
import torch
from torch import nn

from lucid_optim import MuSGD

Factory = Callable[..., torch.optim.Optimizer]


def fit(make: Factory) -> tuple[int, float]:
    """Steps taken before the loss is at most 0.1, and that loss."""
    inputs = torch.randn(8, 3, 8, 8, generator=torch.Generator().manual_seed(101))
    targets = inputs.flatten(1) @ torch.randn(192, 4, generator=torch.Generator().manual_seed(202))
    with torch.random.fork_rng():
        torch.manual_seed(303)
        model = nn.Sequential(
            nn.Conv2d(3, 8, 3, padding=1),
            nn.ReLU(),
            nn.Conv2d(8, 8, 3, padding=1),
            nn.ReLU(),
            nn.Flatten(),
            nn.Linear(512, 4),
        )
    optimizer = make(model.parameters(), lr=0.003, momentum=0.95)
    for step in range(500):
        loss = (model(inputs) - targets).square().mean()
        if loss.item() <= 0.1:
            return step, loss.item()
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
    raise AssertionError("500 steps were not enough")


@pytest.mark.parametrize("batched", [True, False])
def test_musgd_needs_47_steps(batched: bool) -> None:
    steps, loss = fit(partial(MuSGD, batched=batched))
    assert steps == pytest.approx(47, abs=1)
    assert loss == pytest.approx(0.091276, abs=5e-4)


def test_sgd_needs_90_steps() -> None:
    steps, loss = fit(torch.optim.SGD)
    assert steps == pytest.approx(90, abs=1)
    assert loss == pytest.approx(0.087464, abs=5e-4)


def test_a_second_run_gives_the_same_numbers() -> None:
    assert fit(MuSGD) == fit(MuSGD)
