import math
from collections.abc import Callable

import hypothesis
import numpy as np
import pytest
import shapely
import torch
from torch import Tensor

# a test never asserts a time
hypothesis.settings.register_profile("lucid", deadline=None)
hypothesis.settings.load_profile("lucid")


@pytest.fixture
def random_rboxes() -> Callable[..., Tensor]:
    def make(count: int, seed: int = 0, spread: float = 40.0, dtype: torch.dtype = torch.float64) -> Tensor:
        g = torch.Generator().manual_seed(seed)
        centre = torch.rand(count, 2, generator=g, dtype=torch.float64) * spread
        extent = torch.rand(count, 2, generator=g, dtype=torch.float64) * 30 + 0.5
        theta = (torch.rand(count, 1, generator=g, dtype=torch.float64) - 0.5) * 4 * math.pi
        return torch.cat((centre, extent, theta), -1).to(dtype)

    return make


def rectangle(rbox: Tensor) -> shapely.Polygon:
    """The rectangle drawn by shapely's own affine operations, independent of the package."""
    cx, cy, w, h, theta = rbox.double().tolist()
    box = shapely.box(-w / 2, -h / 2, w / 2, h / 2)
    return shapely.affinity.translate(shapely.affinity.rotate(box, theta, (0, 0), use_radians=True), cx, cy)


@pytest.fixture
def oracle_rectangle() -> Callable[[Tensor], shapely.Polygon]:
    return rectangle


@pytest.fixture
def oracle_iou() -> Callable[[Tensor, Tensor], Tensor]:
    """Pairwise IoU matrix of rotated boxes by shapely."""

    def iou(a: Tensor, b: Tensor) -> Tensor:
        p = np.array([rectangle(r) for r in a], dtype=object)[:, None]
        q = np.array([rectangle(r) for r in b], dtype=object)[None, :]
        overlap = shapely.area(shapely.intersection(p, q))
        return torch.from_numpy(overlap / (shapely.area(p) + shapely.area(q) - overlap))

    return iou
