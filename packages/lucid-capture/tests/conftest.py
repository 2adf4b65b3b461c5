from collections.abc import Callable

import hypothesis
import pytest
import torch
from torch import nn

from lucid_capture import GuardedRegion, ModuleCertificate, Poison, TapeBackend

# a test never asserts a time
hypothesis.settings.register_profile("lucid", deadline=None)
hypothesis.settings.load_profile("lucid")


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
        torch.manual_seed(0)
        return Net()

    return make


@pytest.fixture
def make_region() -> Callable[..., GuardedRegion]:
    def make(net: nn.Module, **options: object) -> GuardedRegion:
        options.setdefault("backend", TapeBackend(Poison.NAN))
        options.setdefault("record_after", 0)
        return GuardedRegion("net", net, certificate=ModuleCertificate(net), differentiable=True, **options)  # type: ignore[arg-type]

    return make
