"""Exact overlap of rotated boxes, in closed form and in float64.

One box becomes the square [-1, 1] x [-1, 1]; the other, carried along, a parallelogram. By Green's theorem
their common area is a sum over the four edges of the parallelogram, each the integral of the edge's height,
limited to the square, over the part of x it shares with the square. Every term is a continuous function of
one edge, so nothing has to decide which corner lies inside or where edges cross: almost equal, touching and
collinear boxes are no special cases, and rounding moves the result by rounding.
"""

from typing import NamedTuple

import torch
from torch import Tensor

from lucid_geometry._checks import require_rows, widest, working
from lucid_geometry.rotated import rboxes_to_boxes

# pairs worked on at once: temporaries stay in the second-level cache, and below the size torch splits over
# threads, whose start would cost more than the arithmetic
_CHUNK = 6144


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
    first, second = (boxes.expand(*batch, *boxes.shape[-2:]) for boxes in (first, second))
    rows, columns = first.shape[-2], second.shape[-2]
    meet = _envelopes_meet(first, second)
    rows, columns = meet.shape[-2:]
    pairs = meet.flatten().nonzero().squeeze(-1)
    i = torch.div(pairs, max(columns, 1), rounding_mode="floor")
    j = pairs - columns * (i - torch.div(i, max(rows, 1), rounding_mode="floor"))
    left, right = _planes(first.flatten(0, -2)), _planes(second.flatten(0, -2))
    chunks = zip(torch.split(i, _CHUNK), torch.split(j, _CHUNK), strict=True)
    values = [_iou(left.rows(p), right.rows(q)) for p, q in chunks]
    dtype = torch.promote_types(first.dtype, second.dtype)
    result = torch.zeros(meet.numel(), dtype=dtype, device=first.device)
    return result.index_put((pairs,), torch.cat(values).to(dtype)).view(meet.shape)


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
def _envelopes_meet(a: Tensor, b: Tensor) -> Tensor:
    """Return (..., N, M) bool: False only where boxes (..., N, 5) and (..., M, 5) cannot overlap."""
    sides = []
    for rboxes in (a, b):
        x1, y1, x2, y2 = rboxes_to_boxes(rboxes).unbind(-1)
        # widened by some units in the last place, so that rounding never hides an overlap
        margin = 8 * torch.finfo(x1.dtype).eps
        wide, high = margin * (x1.abs() + x2.abs()), margin * (y1.abs() + y2.abs())
        # comparisons with NaN are false: a box that is none meets nothing
        x1 = torch.where(_usable(rboxes), x1, torch.nan)
        sides.append((x1 - wide, y1 - high, x2 + wide, y2 + high))
    ax1, ay1, ax2, ay2 = (side.unsqueeze(-1) for side in sides[0])
    bx1, by1, bx2, by2 = (side.unsqueeze(-2) for side in sides[1])
    return (ax1 <= bx2).logical_and_(bx1 <= ax2).logical_and_(ay1 <= by2).logical_and_(by1 <= ay2)
