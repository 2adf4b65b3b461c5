import math
from collections.abc import Callable
from fractions import Fraction

import hypothesis
import numpy as np
import pytest
import shapely
import torch
from torch import Tensor

# a test never asserts a time
hypothesis.settings.register_profile("lucid", deadline=None)
hypothesis.settings.load_profile("lucid")

Point = tuple[Fraction, Fraction]


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


def drawn(boxes: np.ndarray, origin: np.ndarray) -> np.ndarray:
    """Rectangles (N,) of rotated boxes (N, 5) about ``origin`` (N, 2)."""
    centre, half, theta = boxes[:, :2] - origin, boxes[:, 2:4, None] / 2, boxes[:, 4]
    u = np.stack((np.cos(theta), np.sin(theta)), 1) * half[:, 0]
    v = np.stack((-np.sin(theta), np.cos(theta)), 1) * half[:, 1]
    return shapely.polygons(np.stack((centre - u - v, centre + u - v, centre + u + v, centre - u + v), 1))


@pytest.fixture(scope="session")
def oracle_aligned_iou() -> Callable[[Tensor, Tensor], Tensor]:
    """IoU of many rotated boxes (N, 5), row by row, by shapely in float64 about each first box."""

    def iou(a: Tensor, b: Tensor) -> Tensor:
        p, q = a.double().numpy(), b.double().numpy()
        overlap = shapely.area(shapely.intersection(drawn(p, p[:, :2]), drawn(q, p[:, :2])))
        return torch.from_numpy(overlap / (p[:, 2] * p[:, 3] + q[:, 2] * q[:, 3] - overlap))

    return iou


BITS = 240


def cos_sin(theta: float) -> Point:
    """Cosine and sine to more than 60 digits, by their series in integers."""
    x, term, sums = int(Fraction(theta) * 2**BITS), 2**BITS, [0, 0, 0, 0]
    for n in range(160):
        sums[n % 4] += term
        term = term * x // ((n + 1) * 2**BITS)
    return Fraction(sums[0] - sums[2], 2**BITS), Fraction(sums[1] - sums[3], 2**BITS)


def exact_corners(box: list[float]) -> list[Point]:
    cx, cy, w, h = (Fraction(value) for value in box[:4])
    cos, sin = cos_sin(box[4])
    signs = ((-1, -1), (1, -1), (1, 1), (-1, 1))
    return [(cx + (i * w * cos - j * h * sin) / 2, cy + (i * w * sin + j * h * cos) / 2) for i, j in signs]


def cut(ring: list[Point], p: Point, q: Point) -> list[Point]:
    """What lies left of the line from p to q (right on screen)."""
    side = [(q[0] - p[0]) * (y - p[1]) - (q[1] - p[1]) * (x - p[0]) for x, y in ring]
    kept: list[Point] = []
    for i, (x, y) in enumerate(ring):
        here, there, (nx, ny) = side[i - 1], side[i], (x, y)
        px, py = ring[i - 1]
        if here * there < 0:
            t = here / (here - there)
            kept.append((px + (nx - px) * t, py + (ny - py) * t))
        if there >= 0:
            kept.append((nx, ny))
    return kept


def exact_iou_of(a: list[float], b: list[float]) -> float:
    ring, window = exact_corners(a), exact_corners(b)
    for i in range(4):
        ring = cut(ring, window[i - 1], window[i])
    twice = sum((ring[i - 1][0] * y - ring[i - 1][1] * x for i, (x, y) in enumerate(ring)), Fraction(0))
    overlap = twice / 2
    return float(overlap / (Fraction(a[2]) * Fraction(a[3]) + Fraction(b[2]) * Fraction(b[3]) - overlap))


@pytest.fixture(scope="session")
def exact_iou() -> Callable[[Tensor, Tensor], Tensor]:
    """IoU of a few rotated boxes (N, 5), row by row, in rational arithmetic."""

    def iou(a: Tensor, b: Tensor) -> Tensor:
        pairs = zip(a.double().tolist(), b.double().tolist(), strict=True)
        return torch.tensor([exact_iou_of(p, q) for p, q in pairs], dtype=torch.float64)

    return iou
