"""Anchor points and the decoding of box distances.

Points are cell centres, level by level (strides ascending as given), row-major inside a level, in canvas
pixels.
"""

from collections.abc import Sequence
from functools import lru_cache

import torch
from torch import Tensor

from lucid_models.registry import STRIDES


def make_points(
    height: int, width: int, strides: Sequence[int] = STRIDES, device: torch.device | str = "cpu"
) -> tuple[Tensor, Tensor]:
    """Return points (A, 2) float32 as (x, y) and strides (A,) float32 for a canvas of height x width pixels.

    The tensors are cached and shared between calls; do not write to them. Raises ValueError for a stride or
    side below 1 and for a side that a stride does not divide.

    >>> points, stride = make_points(16, 32, (8, 16))
    >>> points[[0, 4, 8]].tolist(), stride.tolist()[-2:]
    ([[4.0, 4.0], [4.0, 12.0], [8.0, 8.0]], [16.0, 16.0])
    """
    for stride in strides:
        if stride < 1:
            raise ValueError(f"strides must be at least 1, got {stride}")
        if height < 1 or width < 1 or height % stride or width % stride:
            raise ValueError(
                f"canvas {height} x {width} must have positive sides that stride {stride} divides"
            )
    return _grid(height, width, tuple(strides), str(device))


@lru_cache(maxsize=64)
def _grid(height: int, width: int, strides: tuple[int, ...], device: str) -> tuple[Tensor, Tensor]:
    points, sizes = [torch.zeros(0, 2)], [torch.zeros(0)]
    # the cache outlives the call: a grid made in inference mode would be unusable in training
    with torch.inference_mode(False):
        for stride in strides:
            y = (torch.arange(height // stride) + 0.5) * stride
            x = (torch.arange(width // stride) + 0.5) * stride
            points.append(torch.cartesian_prod(y, x).flip(-1).reshape(-1, 2))
            sizes.append(torch.full((len(points[-1]),), float(stride)))
        return torch.cat(points).to(device), torch.cat(sizes).to(device)


def decode_boxes(box: Tensor, points: Tensor, strides: Tensor) -> Tensor:
    """Return xyxy boxes (..., A, 4) float32 in pixels of distances left, top, right, bottom (..., A, 4).

    Distances are in ``strides`` (..., A) from ``points`` (..., A, 2); nothing is clamped, so an inverted box
    stays inverted. float64 distances stay float64.

    >>> decode_boxes(torch.tensor([[1.0, 2, 3, 4]]), torch.tensor([[10.0, 10]]), torch.tensor([2.0]))
    tensor([[ 8.,  6., 16., 18.]])
    """
    if box.dtype != torch.float64:
        box = box.float()
    reach = box * strides[..., None]
    return torch.cat((points - reach[..., :2], points + reach[..., 2:]), -1)
