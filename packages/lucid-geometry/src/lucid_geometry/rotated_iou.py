"""Exact overlap of rotated boxes, in closed form and in float64.

One box becomes the square [-1, 1] x [-1, 1]; the other, carried along, a parallelogram. By Green's theorem
their common area is a sum over the four edges of the parallelogram, each the integral of the edge's height,
limited to the square, over the part of x it shares with the square. Every term is a continuous function of
one edge, so nothing has to decide which corner lies inside or where edges cross: almost equal, touching and
collinear boxes are no special cases, and rounding moves the result by rounding.
"""

import math
from typing import NamedTuple

import torch
from torch import Tensor

from lucid_geometry._checks import require_rows, widest, working

# numbers per temporary: on the CPU temporaries stay in the second-level cache, and below the size that torch
# splits over threads, whose start would cost more than the arithmetic
_NUMBERS = {"cpu": 30720}
_NUMBERS_ELSEWHERE = 1 << 22


def rotated_box_iou(a: Tensor, b: Tensor) -> Tensor:
    """Return (..., N, M) exact IoU of all rotated boxes ``a`` (..., N, 5) with all ``b`` (..., M, 5).

    Shapes: a ``Real[Tensor, "*#batch N 5"]``, b ``Real[Tensor, "*#batch M 5"]`` ->
    ``Float[Tensor, "*batch N M"]`` in [0, 1]. Rules, precision and gradients as in
    `aligned_rotated_box_iou`. Only pairs whose envelopes meet are computed; under ``torch.compile`` all are,
    in one graph. Raises ValueError when an input is not (..., rows, 5).

    >>> bars = torch.tensor([[0.0, 0.0, 20.0, 2.0, 0.0], [0.0, 0.0, 20.0, 2.0, 1.5707963]])
    >>> rotated_box_iou(bars, bars)
    tensor([[1.0000, 0.0526],
            [0.0526, 1.0000]])
    """
    require_rows(a, "a")
    require_rows(b, "b")
    first, second = working(a, 5, "a"), working(b, 5, "b")
    if torch.compiler.is_compiling():
        return aligned_rotated_box_iou(first.unsqueeze(-2), second.unsqueeze(-3))
    batch = torch.broadcast_shapes(first.shape[:-2], second.shape[:-2])  # type: ignore[no-untyped-call]
    rows, columns = first.shape[-2], second.shape[-2]
    first, second = (boxes.expand(*batch, -1, -1).flatten(0, -2) for boxes in (first, second))
    left, right = _planes(first), _planes(second)
    numbers = _NUMBERS.get(first.device.type, _NUMBERS_ELSEWHERE)
    images = math.prod(batch)
    a_sides = _sides(first, left).view(4, images, rows, 1)
    b_sides = _sides(second, right).view(4, images, 1, columns)
    i, j = _near(a_sides, b_sides, numbers)
    # the largest temporaries hold five numbers per pair
    chunks = zip(torch.split(i, numbers // 5), torch.split(j, numbers // 5), strict=True)
    values = torch.cat([_iou(left.rows(p), right.rows(q)) for p, q in chunks])
    dtype = torch.promote_types(first.dtype, second.dtype)
    result = torch.zeros(len(first), columns, dtype=dtype, device=first.device)
    return result.index_put((i, j % max(columns, 1)), values.to(dtype)).view(*batch, rows, columns)


def aligned_rotated_box_iou(a: Tensor, b: Tensor) -> Tensor:
    """Return (...) exact IoU of rotated boxes ``a`` (..., 5) and ``b`` (..., 5), row by row, in [0, 1].

    Shapes: a ``Real[Tensor, "*#batch 5"]``, b ``Real[Tensor, "*#batch 5"]`` -> ``Float[Tensor, "*batch"]``,
    in the wider of the inputs' dtypes, at least float32. A pair in which a box is not finite or has an extent
    <= 0 as given scores 0, never NaN; boxes that only touch score 0. Computed in float64 (float32 where the
    device has none) in the frame of ``a`` and in units of its extents, so neither far offsets nor very large
    or small boxes lose digits. Differentiable almost everywhere.

    >>> box = torch.tensor([[0.0, 0.0, 4.0, 2.0, 0.0]])
    >>> aligned_rotated_box_iou(box, torch.tensor([[2.0, 0.0, 4.0, 2.0, 0.0]]))
    tensor([0.3333])
    """
    first, second = working(a, 5, "a"), working(b, 5, "b")
    usable = _usable(first), _usable(second)
    # a box that is none is computed as another one, so that its gradient is 0 and not NaN
    left = _planes(torch.where(usable[0].unsqueeze(-1), first, 1.0))
    right = _planes(torch.where(usable[1].unsqueeze(-1), second, 1.0))
    iou = torch.where(usable[0] & usable[1], _iou(left, right), 0.0)
    return iou.to(torch.promote_types(first.dtype, second.dtype))


class _Planes(NamedTuple):
    """Rotated boxes as contiguous planes in the dtype that decides geometry."""

    x: Tensor
    y: Tensor
    w: Tensor
    h: Tensor
    cos: Tensor
    sin: Tensor

    def rows(self, index: Tensor) -> "_Planes":
        """Return the boxes at ``index`` (P,) of boxes (N,)."""
        return _Planes(*(plane.index_select(0, index) for plane in self))


def _planes(rboxes: Tensor) -> _Planes:
    x, y, w, h, theta = widest(rboxes).movedim(-1, 0).contiguous().unbind(0)
    return _Planes(x, y, w, h, torch.cos(theta), torch.sin(theta))


def _usable(rboxes: Tensor) -> Tensor:
    return torch.isfinite(rboxes).all(-1) & (rboxes[..., 2] > 0) & (rboxes[..., 3] > 0)


def _iou(a: _Planes, b: _Planes) -> Tensor:
    """Return the IoU of usable boxes, broadcasting."""
    dx, dy = 2 * (b.x - a.x), 2 * (b.y - a.y)
    # of the angle from a to b; the sine of equal angles is exactly 0
    cos, sin = a.cos * b.cos + a.sin * b.sin, a.cos * b.sin - a.sin * b.cos
    wide, high = b.w / a.w, b.h / a.h
    shared = _shared(
        (dx * a.cos + dy * a.sin) / a.w,
        (dy * a.cos - dx * a.sin) / a.h,
        *(wide * cos, b.w / a.h * sin, b.h / a.w * -sin, high * cos),
    )
    # fmax takes 0 where extents too far apart for the dtype made a NaN
    return torch.fmax(shared / (1 + wide * high - shared), shared.new_zeros(())).clamp(max=1)


def _shared(x: Tensor, y: Tensor, ux: Tensor, uy: Tensor, vx: Tensor, vy: Tensor) -> Tensor:
    """Return the share of the square [-1, 1] x [-1, 1] that the parallelogram (x, y) +- u +- v covers."""
    px, py, mx, my = ux + vx, uy + vy, ux - vx, uy - vy
    # the corners in order, the first again at the end
    xs = torch.stack((x - px, x + mx, x + px, x - mx, x - px))
    ys = torch.stack((y - py, y + my, y + py, y - my, y - py))
    # far below the last place of any difference that matters: makes 0 / 0 and its gradient 0
    tiny = torch.finfo(xs.dtype).tiny ** 0.4
    inner = xs.clamp(-1, 1)
    excess = inner - xs
    dx, dy = (xs[1:] - xs[:-1]).add_(tiny), ys[1:] - ys[:-1]
    # the ends of the part with -1 <= x <= 1, reached by a fraction of the edge from its start and its end
    start = torch.addcmul(ys[:-1], (excess[:-1] / dx).clamp(0, 1), dy)
    end = torch.addcmul(ys[1:], (excess[1:] / dx).clamp(-1, 0), dy)
    # twice the mean of that part's height limited to -1 <= y <= 1: its limited ends, corrected for the
    # stretches on which the limit holds
    low, high = start.clamp(-1, 1), end.clamp(-1, 1)
    slope = (high - low) / (end - start).add_(tiny)
    total = low + high
    height = torch.addcmul(total, slope, total - (start + end), value=-1)
    return (height * (inner[:-1] - inner[1:])).sum(0) / 8


@torch.no_grad()
def _sides(rboxes: Tensor, planes: _Planes) -> Tensor:
    """Return (4, N) x1, y1, x2, y2 of envelopes in float32, widened so that rounding hides no overlap."""
    cos, sin = planes.cos.abs() / 2, planes.sin.abs() / 2
    reach_x, reach_y = planes.w * cos + planes.h * sin, planes.w * sin + planes.h * cos
    margin = 8 * torch.finfo(torch.float32).eps
    reach_x = reach_x + margin * (planes.x.abs() + reach_x)
    reach_y = reach_y + margin * (planes.y.abs() + reach_y)
    # comparisons with NaN are false: a box that is none meets nothing
    reach_x = torch.where(_usable(rboxes), reach_x, torch.nan)
    sides = (planes.x - reach_x, planes.y - reach_y, planes.x + reach_x, planes.y + reach_y)
    return torch.stack(sides).float()


def _near(a: Tensor, b: Tensor, numbers: int) -> tuple[Tensor, Tensor]:
    """Return the rows, among all B N and B M boxes, of pairs whose sides (4, B, N, 1) and (4, B, 1, M) meet."""
    batch, rows, columns = a.shape[1], a.shape[2], b.shape[3]
    images, lines = max(numbers // max(rows * columns, 1), 1), max(numbers // max(columns, 1), 1)
    left, right = [], []
    for image in range(0, max(batch, 1), images):
        bx1, by1, bx2, by2 = b[:, image : image + images]
        for line in range(0, max(rows, 1), lines):
            ax1, ay1, ax2, ay2 = a[:, image : image + images, line : line + lines]
            meet = (ax1 <= bx2).logical_and_(bx1 <= ax2).logical_and_(ay1 <= by2).logical_and_(by1 <= ay2)
            k, i, j = meet.nonzero(as_tuple=True)
            left.append((k + image) * rows + (i + line))
            right.append((k + image) * columns + j)
    return torch.cat(left), torch.cat(right)
