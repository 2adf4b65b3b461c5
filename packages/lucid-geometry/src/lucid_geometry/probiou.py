"""Rotated boxes as Gaussians: a smooth similarity and the losses made of it.

Source: Llerena et al., "Gaussian Bounding Boxes and Probabilistic Intersection-over-Union for Object
Detection", arXiv:2106.06072. The distance is written so that every sum has terms of one sign, which keeps
float32 accurate for thin boxes, where the determinant form loses all digits.
"""

from typing import Literal

import torch
from torch import Tensor

from lucid_geometry._checks import working

# pixels; shorter sides count as this long and get no gradient
_MIN_SIDE = 1e-4
# keeps the square root's gradient finite
_MIN_RADICAND = 1e-20


def probiou(a: Tensor, b: Tensor) -> Tensor:
    """Return (...) ProbIoU in [0, 1] of rotated boxes ``a`` (..., 5) and ``b`` (..., 5), row by row.

    Shapes: a ``Real[Tensor, "*#batch 5"]``, b ``Real[Tensor, "*#batch 5"]`` -> ``Float[Tensor, "*batch"]``.

    One minus the Hellinger distance of the two Gaussians; a box against itself gives exactly 1. Leading
    dimensions broadcast, so ``probiou(a.unsqueeze(-2), b.unsqueeze(-3))`` compares all pairs. Computed in
    float32 or wider and returned in the inputs' dtype.

    >>> probiou(torch.tensor([10.0, 10.0, 8.0, 4.0, 0.3]), torch.tensor([11.0, 9.0, 6.0, 5.0, -0.2]))
    tensor(0.6113)
    """
    return _as_given(1 - _loss(a, b, "hellinger"), a, b)


def probiou_loss(
    pred: Tensor, target: Tensor, form: Literal["hellinger", "bhattacharyya"] = "hellinger"
) -> Tensor:
    """Return (...) loss of rotated boxes ``pred`` (..., 5) against ``target`` (..., 5), row by row.

    Shapes: pred ``Real[Tensor, "*#batch 5"]``, target ``Real[Tensor, "*#batch 5"]`` ->
    ``Float[Tensor, "*batch"]``.

    ``hellinger`` is the bounded form, 1 - ProbIoU; ``bhattacharyya`` the unbounded distance. Equal boxes
    give exactly 0 with zero gradient. Sides below 1e-4 px count as 1e-4 and get no gradient. Raises
    ValueError for another form.

    >>> bar = torch.tensor([0.0, 0.0, 40.0, 10.0, 0.0])
    >>> probiou_loss(bar, torch.tensor([0.0, 0.0, 40.0, 10.0, 0.785398]))
    tensor(0.6307)
    """
    return _as_given(_loss(pred, target, form), pred, target)


def _loss(pred: Tensor, target: Tensor, form: str) -> Tensor:
    if form not in ("hellinger", "bhattacharyya"):
        raise ValueError(f"form must be 'hellinger' or 'bhattacharyya', got {form!r}")
    distance = _bhattacharyya(working(pred, 5, "pred"), working(target, 5, "target"))
    if form == "bhattacharyya":
        return distance
    apart = distance > 0
    radicand = torch.where(apart, -torch.expm1(-distance), 1.0).clamp(min=_MIN_RADICAND)
    return torch.where(apart, radicand.sqrt(), 0.0)


def _bhattacharyya(a: Tensor, b: Tensor) -> Tensor:
    x1, y1, w1, h1, t1 = a.unbind(-1)
    x2, y2, w2, h2, t2 = b.unbind(-1)
    w1, h1, w2, h2 = (side.clamp(min=_MIN_SIDE) for side in (w1, h1, w2, h2))
    a1, b1, a2, b2 = (side.square() / 12 for side in (w1, h1, w2, h2))
    dx, dy = x1 - x2, y1 - y2
    along1, across1 = dx * torch.cos(t1) + dy * torch.sin(t1), dy * torch.cos(t1) - dx * torch.sin(t1)
    along2, across2 = dx * torch.cos(t2) + dy * torch.sin(t2), dy * torch.cos(t2) - dx * torch.sin(t2)
    cos2, sin2 = torch.cos(t1 - t2).square(), torch.sin(t1 - t2).square()
    num = b1 * along1.square() + a1 * across1.square() + b2 * along2.square() + a2 * across2.square()
    det = a1 * b1 + a2 * b2 + (a1 * b2 + a2 * b1) * cos2 + (a1 * a2 + b1 * b2) * sin2
    spread = (
        (w1 * h1 - w2 * h2).square()
        + (w1 * h2 - w2 * h1).square() * cos2
        + (w1 * w2 - h1 * h2).square() * sin2
    )
    return num / (4 * det) + torch.log1p(spread / (4 * w1 * h1 * w2 * h2)) / 2


def _as_given(values: Tensor, *inputs: Tensor) -> Tensor:
    """Return ``values`` in the inputs' half precision, or as computed when an input is wider."""
    half = all(tensor.dtype in (torch.float16, torch.bfloat16) for tensor in inputs)
    return values.to(torch.promote_types(inputs[0].dtype, inputs[1].dtype)) if half else values
