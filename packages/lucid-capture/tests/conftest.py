import copy
import gc
from collections.abc import Callable, Iterator
from typing import Any

import hypothesis
import pytest
import torch
from torch import nn

from lucid_capture import GuardedRegion, ModuleCertificate, Poison, TapeBackend

# a test never asserts a time
hypothesis.settings.register_profile("lucid", deadline=None)
hypothesis.settings.load_profile("lucid")


@pytest.fixture(scope="session", autouse=True)
def little_garbage() -> Iterator[None]:
    """Recording collects garbage: keep out of that what torch makes when the first optimizer is built."""
    torch.optim.SGD([torch.zeros(1)])
    gc.collect()
    gc.freeze()
    yield
    gc.unfreeze()


class Net(nn.Module):
    """Convolutions, normalisation, pooling and dropout: what a detector's stages are made of."""

    def __init__(self) -> None:
        super().__init__()
        self.conv = nn.Conv2d(2, 4, 3, padding=1)
        self.norm = nn.BatchNorm2d(4)
        self.head = nn.Conv2d(4, 3, 1)
        self.side = nn.Conv2d(4, 1, 1)

    def forward(self, image: torch.Tensor) -> dict[str, torch.Tensor]:
        x = nn.functional.silu(self.norm(self.conv(image)))
        x = nn.functional.dropout(nn.functional.max_pool2d(x, 2), 0.25, self.training)
        return {"main": self.head(x), "side": self.side(x), "index": x.argmax(1)}


@pytest.fixture
def make_net() -> Callable[[], Net]:
    def make() -> Net:
        torch.default_generator.manual_seed(0)
        return Net()

    return make


@pytest.fixture
def make_region() -> Callable[..., GuardedRegion]:
    def make(net: nn.Module, **options: object) -> GuardedRegion:
        options.setdefault("backend", TapeBackend(Poison.NAN))
        options.setdefault("record_after", 0)
        return GuardedRegion("net", net, certificate=ModuleCertificate(net), differentiable=True, **options)  # type: ignore[arg-type]

    return make


class Toy:
    """Inputs, a loss and short trainings of the network."""

    @staticmethod
    def images(seed: int, batch: int = 2) -> torch.Tensor:
        return torch.randn(batch, 2, 8, 8, generator=torch.Generator().manual_seed(seed))

    @staticmethod
    def scalar(outputs: dict[str, torch.Tensor]) -> torch.Tensor:
        return outputs["main"].square().mean() + outputs["side"].abs().mean()

    @staticmethod
    def state(net: nn.Module) -> dict[str, Any]:
        return {"grads": [p.grad for p in net.parameters()], "weights": dict(net.state_dict())}

    def run(self, region: Callable[..., Any], seed: int = 1, batch: int = 2) -> None:
        self.scalar(region(self.images(seed, batch))).backward()

    def train(self, call: Callable[..., Any], net: nn.Module, steps: int, accumulate: int = 1) -> list[Any]:
        """Losses, gradients and weights of SGD steps; the random generator starts from one seed."""
        torch.default_generator.manual_seed(7)
        optimizer = torch.optim.SGD(net.parameters(), lr=0.1, momentum=0.9)
        seen: list[Any] = []
        for step in range(steps):
            for micro in range(accumulate):
                loss = self.scalar(call(self.images(10 * step + micro)))
                if micro == 0:
                    optimizer.zero_grad()
                loss.backward()
                seen.append(loss.detach())
            seen.append(copy.deepcopy(self.state(net)))
            optimizer.step()
        return seen


@pytest.fixture
def toy() -> Toy:
    return Toy()


@pytest.fixture
def active(
    make_net: Callable[[], Net], make_region: Callable[..., GuardedRegion], toy: Toy
) -> tuple[GuardedRegion, Net]:
    """A region that has recorded, with counters at zero, and its network."""
    net = make_net()
    region = make_region(net)
    toy.run(region, seed=0)
    region.counts.clear()
    return region, net
