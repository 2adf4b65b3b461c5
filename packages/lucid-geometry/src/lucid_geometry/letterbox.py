"""The letterbox: fit an image into a canvas, keep its aspect, centre it, and come back exactly."""

from dataclasses import dataclass

import torch
from torch import Tensor

from lucid_geometry._checks import widest, widest_dtype, working


@dataclass(frozen=True)
class Letterbox:
    """The map from a ``height`` x ``width`` image to a ``canvas_height`` x ``canvas_width`` canvas.

    One ratio for both axes, ``min(canvas / image)``, at most 1 when ``allow_upscale`` is false. The resized
    image has rounded sides (half to even) and the padding is split evenly, the odd pixel going right and
    bottom. Geometry uses the unrounded ratio, so rotated boxes stay rectangles, and is computed in float64
    and returned in the input's dtype (float32 for half-precision and integer inputs). Nothing is clipped.
    Raises ValueError for a side that is not a positive whole number.

    >>> box = Letterbox(1080, 1920, 640, 640)
    >>> box.new_height, box.new_width, box.pad_top, box.pad_bottom
    (360, 640, 140, 140)
    >>> box.forward_boxes(torch.tensor([[0.0, 0.0, 1920.0, 1080.0]]))
    tensor([[  0., 140., 640., 500.]])
    """

    height: int
    width: int
    canvas_height: int
    canvas_width: int
    allow_upscale: bool = True

    def __post_init__(self) -> None:
        for name in ("height", "width", "canvas_height", "canvas_width"):
            value = getattr(self, name)
            if isinstance(value, bool) or not isinstance(value, int) or value < 1:
                raise ValueError(f"Letterbox.{name} must be a positive int, got {value!r}")

    @property
    def ratio(self) -> float:
        """Canvas pixels per image pixel."""
        ratio = min(self.canvas_height / self.height, self.canvas_width / self.width)
        return ratio if self.allow_upscale else min(ratio, 1.0)

    @property
    def new_height(self) -> int:
        """Rows of the resized image, without padding."""
        return max(1, round(self.height * self.ratio))

    @property
    def new_width(self) -> int:
        """Columns of the resized image, without padding."""
        return max(1, round(self.width * self.ratio))

    @property
    def pad_left(self) -> int:
        """Padding columns left of the image."""
        return (self.canvas_width - self.new_width) // 2

    @property
    def pad_top(self) -> int:
        """Padding rows above the image."""
        return (self.canvas_height - self.new_height) // 2

    @property
    def pad_right(self) -> int:
        """Padding columns right of the image."""
        return self.canvas_width - self.new_width - self.pad_left

    @property
    def pad_bottom(self) -> int:
        """Padding rows below the image."""
        return self.canvas_height - self.new_height - self.pad_top

    def matrix(self) -> Tensor:
        """Return the (3, 3) float64 matrix taking homogeneous image points to canvas points.

        Shapes: ``Float64[Tensor, "3 3"]``.
        """
        r = self.ratio
        rows = [[r, 0.0, self.pad_left], [0.0, r, self.pad_top], [0.0, 0.0, 1.0]]
        return torch.tensor(rows, dtype=torch.float64)

    def forward_points(self, points: Tensor) -> Tensor:
        """Return (..., 2) canvas points of image points (..., 2).

        Shapes: points ``Real[Tensor, "*batch 2"]`` -> ``Float[Tensor, "*batch 2"]``.
        """
        return self._forward(working(points, 2, "points"))

    def inverse_points(self, points: Tensor) -> Tensor:
        """Return (..., 2) image points of canvas points (..., 2).

        Shapes: points ``Real[Tensor, "*batch 2"]`` -> ``Float[Tensor, "*batch 2"]``.
        """
        return self._inverse(working(points, 2, "points"))

    def forward_boxes(self, boxes: Tensor) -> Tensor:
        """Return (..., 4) canvas boxes of image boxes (..., 4), both x1 y1 x2 y2.

        Shapes: boxes ``Real[Tensor, "*batch 4"]`` -> ``Float[Tensor, "*batch 4"]``.
        """
        return self._forward(working(boxes, 4, "boxes"))

    def inverse_boxes(self, boxes: Tensor) -> Tensor:
        """Return (..., 4) image boxes of canvas boxes (..., 4), both x1 y1 x2 y2.

        Shapes: boxes ``Real[Tensor, "*batch 4"]`` -> ``Float[Tensor, "*batch 4"]``.
        """
        return self._inverse(working(boxes, 4, "boxes"))

    def forward_rboxes(self, rboxes: Tensor) -> Tensor:
        """Return (..., 5) canvas rotated boxes of image ones (..., 5); angles pass bit for bit.

        Shapes: rboxes ``Real[Tensor, "*batch 5"]`` -> ``Float[Tensor, "*batch 5"]``.
        """
        r = working(rboxes, 5, "rboxes")
        return torch.cat(
            (self._forward(r[..., :2]), (widest(r[..., 2:4]) * self.ratio).to(r.dtype), r[..., 4:]), -1
        )

    def inverse_rboxes(self, rboxes: Tensor) -> Tensor:
        """Return (..., 5) image rotated boxes of canvas ones (..., 5); angles pass bit for bit.

        Shapes: rboxes ``Real[Tensor, "*batch 5"]`` -> ``Float[Tensor, "*batch 5"]``.
        """
        r = working(rboxes, 5, "rboxes")
        return torch.cat(
            (self._inverse(r[..., :2]), (widest(r[..., 2:4]) / self.ratio).to(r.dtype), r[..., 4:]), -1
        )

    def _pad(self, coordinates: Tensor) -> Tensor:
        pair = [float(self.pad_left), float(self.pad_top)]
        device = coordinates.device
        return torch.tensor(pair * (coordinates.shape[-1] // 2), dtype=widest_dtype(device), device=device)

    def _forward(self, coordinates: Tensor) -> Tensor:
        return (widest(coordinates) * self.ratio + self._pad(coordinates)).to(coordinates.dtype)

    def _inverse(self, coordinates: Tensor) -> Tensor:
        return ((widest(coordinates) - self._pad(coordinates)) / self.ratio).to(coordinates.dtype)
