"""The random affine, and the single resample from composition canvas to output.

Two routes draw the same thing. Without rotation or shear every picture is resized straight into its place on
the output (``draw_upright``): zooms lie on a grid of 1/32 and corners on whole pixels, so a crop of the source
resizes to exactly the pixels that the whole source would. With rotation or shear the canvas is composed and sampled
bilinearly (``warp``). Coordinates are edge-frame: pixel j has its centre at j + 0.5.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

import torch
from torch import Tensor
from torch.nn.functional import avg_pool2d, grid_sample, interpolate

from lucid_data.policy import AugmentPolicy
from lucid_data.randomness import Stream
from lucid_data.transforms.flip import flip_image
from lucid_data.transforms.letterbox import GREY, interleaved
from lucid_data.transforms.mosaic import Cells, Place
from lucid_geometry import Affine

ZOOM_STEPS = 32


@dataclass(frozen=True)
class AffineParams:
    """Angles in radians, ``zoom`` in steps of 1/32, shift as a fraction of the output side."""

    angle: float = 0.0
    shear_x: float = 0.0
    shear_y: float = 0.0
    zoom: int = ZOOM_STEPS
    translate_x: float = 0.0
    translate_y: float = 0.0

    @property
    def scale(self) -> float:
        """Output pixels per canvas pixel."""
        return self.zoom / ZOOM_STEPS

    @property
    def upright(self) -> bool:
        """Whether axes stay axes, so that pictures can be resized instead of warped."""
        return self.angle == 0.0 and self.shear_x == 0.0 and self.shear_y == 0.0


def sample_affine(stream: Stream, policy: AugmentPolicy) -> AffineParams:
    """Return parameters drawn in the order angle, shears, scale, shifts; a zero range draws nothing."""
    turn, shear = math.radians(policy.degrees), math.radians(policy.shear)
    angle = stream.uniform(-turn, turn)
    shear_x, shear_y = stream.uniform(-shear, shear), stream.uniform(-shear, shear)
    scale = stream.uniform(1.0 - policy.scale, 1.0 + policy.scale)
    t = policy.translate
    zoom = max(1, round(scale * ZOOM_STEPS))
    return AffineParams(angle, shear_x, shear_y, zoom, stream.uniform(-t, t), stream.uniform(-t, t))


def canvas_to_output(params: AffineParams, canvas: int, side: int) -> Affine:
    """Return the map from a square canvas to the square output: affine about the centre, then the shift.

    A = R(angle) scale [[1, tan shear_x], [tan shear_y, 1]]; x' = A (x - canvas / 2) + side / 2 + shift side.

    >>> canvas_to_output(AffineParams(), 8, 4).points(torch.tensor([[4.0, 4.0]])).tolist()
    [[2.0, 2.0]]
    """
    linear = (
        Affine.rotation(params.angle)
        @ Affine.scaling(params.scale, params.scale)
        @ Affine.shear(params.shear_x, params.shear_y)
    )
    half = side / 2
    shift = Affine.translation(half + params.translate_x * side, half + params.translate_y * side)
    return shift @ linear @ Affine.translation(-canvas / 2, -canvas / 2)


@dataclass(frozen=True)
class UprightPlace:
    """One picture on the output: x' = zoom / 32 x + left, seen through the whole-pixel ``window``."""

    zoom: int
    left: int
    top: int
    window: Cells

    @property
    def scale(self) -> float:
        """Output pixels per picture pixel."""
        return self.zoom / ZOOM_STEPS

    @property
    def visible(self) -> bool:
        """Whether any pixel shows."""
        return self.window[2] > self.window[0] and self.window[3] > self.window[1]

    def map(self, ratio: float) -> tuple[float, float, float]:
        """Return scale, left and top of the map from the original picture, ``ratio`` times smaller or larger."""
        return self.scale * ratio, float(self.left), float(self.top)


def upright_place(
    place: Place, size: tuple[int, int], params: AffineParams, canvas: int, side: int
) -> UprightPlace:
    """Return where a picture of ``size`` (height, width) at ``place`` lands on the output, to whole pixels."""
    height, width = size
    left, x1, x2 = _axis(
        place.left, width, place.anchor_x, place.window[::2], params, params.translate_x, canvas, side
    )
    top, y1, y2 = _axis(
        place.top, height, place.anchor_y, place.window[1::2], params, params.translate_y, canvas, side
    )
    return UprightPlace(params.zoom, left, top, (x1, y1, x2, y2))


def _axis(
    start: int,
    length: int,
    anchor: int,
    window: Sequence[int],
    params: AffineParams,
    translate: float,
    canvas: int,
    side: int,
) -> tuple[int, int, int]:
    s, zoom = params.scale, params.zoom
    meeting = round(s * (anchor - canvas / 2) + side / 2 + translate * side)
    # a picture that ends at the anchor has its last whole output pixel there, so neighbours meet without a seam
    origin = meeting if start == anchor else meeting - zoom * length // ZOOM_STEPS
    first, last = max(0, window[0] - start), min(length, window[1] - start)
    low = origin + -(-zoom * first // ZOOM_STEPS)
    high = origin + zoom * last // ZOOM_STEPS
    return origin, max(low, 0), min(high, side)


def draw_upright(
    output: Tensor, picture: Tensor, place: UprightPlace, *, across: bool = False, down: bool = False
) -> None:
    """Resize the part of ``picture`` (3, h, w) uint8 that a visible ``place`` shows into ``output`` (3, S, S) uint8.

    With ``across`` and ``down`` it is drawn where, and as, it would be if the whole output were mirrored afterwards.
    """
    x1, y1, x2, y2 = place.window
    top, rows, y = _crop(y1 - place.top, y2 - place.top, picture.shape[1], place.zoom)
    left, columns, x = _crop(x1 - place.left, x2 - place.left, picture.shape[2], place.zoom)
    part = picture[:, rows, columns]
    if place.zoom != ZOOM_STEPS:
        part = _zoomed(interleaved(part), place.scale)[0]
    part = part[:, y - top : y - top + y2 - y1, x - left : x - left + x2 - x1]
    side_y, side_x = output.shape[1:]
    y1, y2 = (side_y - y2, side_y - y1) if down else (y1, y2)
    x1, x2 = (side_x - x2, side_x - x1) if across else (x1, x2)
    output[:, y1:y2, x1:x2] = flip_image(part, across=across, down=down)


def _zoomed(image: Tensor, scale: float) -> Tensor:
    """Return ``image`` (1, 3, h, w) uint8 resized by ``scale``, bilinear with antialias, both axes rounded to uint8."""
    # torch goes along the rows first, the dearer pass; shrunk down the columns before, there are fewer rows
    passes = [(scale, 1.0), (1.0, scale)] if scale < 1 else [(scale, scale)]
    for factors in passes:
        image = interpolate(image, scale_factor=factors, mode="bilinear", antialias=True)
    return image


def _crop(low: int, high: int, length: int, zoom: int) -> tuple[int, slice, int]:
    """Return the first resized pixel of the crop, the source crop, and ``low`` itself.

    The crop starts on a source pixel that the zoom takes to a whole pixel, and reaches past the filter's support, so
    its resized pixels are those of the whole source.
    """
    step = ZOOM_STEPS // math.gcd(ZOOM_STEPS, zoom)
    reach = max(1, -(-ZOOM_STEPS // zoom)) + 1
    # torch leaves an axis as it is where its length would not change, as that of a shorter crop might not
    latest = max(0, length - ZOOM_STEPS)
    start = max(0, min(low * ZOOM_STEPS // zoom - reach, latest)) // step * step
    stop = min(length, max(-(-high * ZOOM_STEPS // zoom) + reach, start + ZOOM_STEPS))
    return start * zoom // ZOOM_STEPS, slice(start, stop), low


def compose(pictures: Sequence[Tensor], places: Sequence[Place], canvas: int) -> Tensor:
    """Return the grey (3, canvas, canvas) uint8 canvas with every picture pasted, cut to its window."""
    out = torch.full((3, canvas, canvas), GREY, dtype=torch.uint8)
    for picture, place in zip(pictures, places, strict=True):
        x1, y1, x2, y2 = place.window
        x1, y1 = max(x1, place.left), max(y1, place.top)
        x2, y2 = min(x2, place.left + picture.shape[2]), min(y2, place.top + picture.shape[1])
        if x2 > x1 and y2 > y1:
            out[:, y1:y2, x1:x2] = picture[
                :, y1 - place.top : y2 - place.top, x1 - place.left : x2 - place.left
            ]
    return out


def warp(canvas: Tensor, affine: Affine, side: int) -> Tensor:
    """Return (3, side, side) uint8: output pixel centre q takes the canvas at affine^-1 q, bilinear, grey outside.

    A map that shrinks to less than half is preceded by an average pool of the whole factor, against aliasing.
    """
    (a, b, _), (c, d, _) = affine.matrix[:2].tolist()
    shrink = math.sqrt(abs(a * d - b * c))
    image = canvas[None].float() - GREY
    inverse = affine.inverse().matrix
    if shrink < 0.5:
        image = avg_pool2d(image, math.floor(1 / shrink), ceil_mode=True, count_include_pad=False)
    centres = torch.arange(side, dtype=torch.float64) + 0.5
    at = torch.stack(
        [
            (inverse[i, 0] * centres)[None, :] + (inverse[i, 1] * centres + inverse[i, 2])[:, None]
            for i in (0, 1)
        ],
        -1,
    )
    if shrink < 0.5:
        at = at / math.floor(1 / shrink)
    size = torch.tensor([image.shape[3], image.shape[2]], dtype=torch.float64)
    grid = (2.0 * at / size - 1.0).float()[None]
    sampled = grid_sample(image, grid, mode="bilinear", padding_mode="zeros", align_corners=False)[0]
    return sampled.add_(GREY).round_().clamp_(0, 255).to(torch.uint8)
