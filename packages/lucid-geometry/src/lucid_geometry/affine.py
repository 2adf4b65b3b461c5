"""Plane affine maps in float64 and their action on points, boxes, polygons and rotated boxes."""

from __future__ import annotations

import math
from dataclasses import dataclass

import torch
from torch import Tensor

from lucid_geometry._checks import widest, working
from lucid_geometry.fit import polygons_to_rboxes
from lucid_geometry.rotated import corners


@dataclass(frozen=True, eq=False)
class Affine:
    """The map p -> A p + t held as a (3, 3) float64 ``matrix`` on homogeneous column points.

    Maps compose right to left: ``(a @ b).points(p)`` is ``a.points(b.points(p))``. Results come back in the
    input's dtype (float32 for half-precision and integer inputs). Raises TypeError for a matrix that is not
    float64, ValueError for one that is not (3, 3), not finite or whose last row is not (0, 0, 1).

    >>> turn = Affine.rotation(math.pi / 2).about(1.0, 1.0)
    >>> turn.points(torch.tensor([[2.0, 1.0]]))
    tensor([[1., 2.]])
    """

    matrix: Tensor

    def __post_init__(self) -> None:
        if self.matrix.dtype != torch.float64:
            raise TypeError(f"Affine.matrix must be float64, got {self.matrix.dtype}; convert with .double()")
        if self.matrix.shape != (3, 3):
            raise ValueError(f"Affine.matrix must be (3, 3), got {tuple(self.matrix.shape)}")
        rows = self.matrix.tolist()
        if rows[2] != [0.0, 0.0, 1.0] or not all(map(math.isfinite, rows[0] + rows[1])):
            raise ValueError(f"Affine.matrix must be finite with last row (0, 0, 1), got {rows}")

    @classmethod
    def from_rows(cls, rows: list[list[float]]) -> Affine:
        """Return the map of the two rows [[a, b, tx], [c, d, ty]]."""
        return cls(torch.tensor([*rows, [0.0, 0.0, 1.0]], dtype=torch.float64))

    @classmethod
    def identity(cls) -> Affine:
        """Return the map that changes nothing."""
        return cls.from_rows([[1.0, 0.0, 0.0], [0.0, 1.0, 0.0]])

    @classmethod
    def translation(cls, dx: float, dy: float) -> Affine:
        """Return the shift by (dx, dy) pixels."""
        return cls.from_rows([[1.0, 0.0, dx], [0.0, 1.0, dy]])

    @classmethod
    def scaling(cls, sx: float, sy: float) -> Affine:
        """Return the scaling by sx along x and sy along y about the origin."""
        return cls.from_rows([[sx, 0.0, 0.0], [0.0, sy, 0.0]])

    @classmethod
    def rotation(cls, angle: float) -> Affine:
        """Return the rotation by ``angle`` radians about the origin, clockwise on screen as y points down."""
        cos, sin = math.cos(angle), math.sin(angle)
        return cls.from_rows([[cos, -sin, 0.0], [sin, cos, 0.0]])

    @classmethod
    def shear(cls, x: float, y: float) -> Affine:
        """Return the shear x' = x + y tan(x angle), y' = y + x tan(y angle); both angles in radians."""
        return cls.from_rows([[1.0, math.tan(x), 0.0], [math.tan(y), 1.0, 0.0]])

    def about(self, cx: float, cy: float) -> Affine:
        """Return this map performed with (cx, cy) as the origin."""
        return Affine.translation(cx, cy) @ self @ Affine.translation(-cx, -cy)

    def __matmul__(self, other: Affine) -> Affine:
        if not isinstance(other, Affine):
            return NotImplemented
        return Affine(self.matrix @ other.matrix)

    def inverse(self) -> Affine:
        """Return the inverse map; ValueError when there is none."""
        (a, b, tx), (c, d, ty) = self.matrix[:2].tolist()
        det = a * d - b * c
        if det == 0:
            raise ValueError(f"Affine.inverse: the map is singular, matrix {self.matrix.tolist()}")
        ia, ib, ic, id_ = d / det, -b / det, -c / det, a / det
        return Affine.from_rows([[ia, ib, -(ia * tx + ib * ty)], [ic, id_, -(ic * tx + id_ * ty)]])

    def points(self, points: Tensor) -> Tensor:
        """Return (..., 2) images of points (..., 2).

        Shapes: points ``Real[Tensor, "*batch 2"]`` -> ``Float[Tensor, "*batch 2"]``.
        """
        p = working(points, 2, "points")
        return self._apply(widest(p)).to(p.dtype)

    def polygons(self, polygons: Tensor) -> Tensor:
        """Return (..., P, 2) images of polygons (..., P, 2), vertex by vertex.

        Shapes: polygons ``Real[Tensor, "*batch P 2"]`` -> ``Float[Tensor, "*batch P 2"]``.
        """
        return self.points(polygons)

    def boxes(self, boxes: Tensor) -> Tensor:
        """Return (..., 4) envelopes of the images of the four corners of boxes (..., 4).

        Shapes: boxes ``Real[Tensor, "*batch 4"]`` -> ``Float[Tensor, "*batch 4"]``.
        """
        b = working(boxes, 4, "boxes")
        quad = self._apply(widest(b)[..., [0, 1, 2, 1, 2, 3, 0, 3]].reshape(*b.shape[:-1], 4, 2))
        return torch.cat((quad.amin(-2), quad.amax(-2)), -1).to(b.dtype)

    def rboxes(self, rboxes: Tensor) -> Tensor:
        """Return (..., 5) canonical rotated boxes fitted to the mapped corners of rotated boxes (..., 5).

        Shapes: rboxes ``Real[Tensor, "*batch 5"]`` -> ``Float[Tensor, "*batch 5"]``.

        Exact for rotations, translations, mirrors and uniform scaling. Where the map loses perpendicularity
        by an angle s, corners deviate by at most h sin(s / 2).
        """
        r = working(rboxes, 5, "rboxes")
        return polygons_to_rboxes(self._apply(corners(widest(r)))).to(r.dtype)

    def _apply(self, points: Tensor) -> Tensor:
        matrix = self.matrix.to(points)
        return points @ matrix[:2, :2].T + matrix[:2, 2]
