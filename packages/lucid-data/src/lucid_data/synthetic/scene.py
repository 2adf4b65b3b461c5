"""One scene: a noisy background, shapes in painter's order, and labels of what is left of each."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Final

import numpy as np
import numpy.typing as npt
import torch
from torch import Tensor

from lucid_data.randomness import Stream
from lucid_data.raster import fill_rings
from lucid_data.synthetic.shapes import ARROW_POINTS, COLOURS, OUTLINES, Points, Rings
from lucid_data.targets import Targets
from lucid_data.tasks import Task, as_task
from lucid_geometry import polygons_to_rboxes

CLASS_NAMES: Final[dict[Task, tuple[str, ...]]] = {
    "detect": ("circle", "square", "rectangle", "triangle", "star", "pair"),
    "segment": ("circle", "square", "rectangle", "triangle", "star", "pair"),
    "pose": ("arrow",),
    "obb": ("plate", "bar"),
}
_SAMPLES = 4  # supersampling per axis
_TINY, _LEAST, _MOST = (1.5, 4.0), 0.08, 0.48


def class_names(task: str = "detect") -> tuple[str, ...]:
    """Return the class names of the scenes of ``task``, in label order.

    >>> class_names("obb")
    ('plate', 'bar')
    """
    return CLASS_NAMES[as_task(task)]


def keypoint_names() -> tuple[str, ...]:
    """Return the names of the seven points of a pose scene's arrows."""
    return tuple(ARROW_POINTS)


@dataclass(frozen=True)
class _Shape:
    label: int
    rings: Rings
    colour: npt.NDArray[np.float64]
    keypoints: Points
    quad: Points


def scene(
    seed: int,
    size: int | tuple[int, int] = 128,
    shapes: int = 5,
    task: str = "detect",
    *,
    overlap: float = 0.25,
    truncate: bool = False,
    tiny: int = 0,
) -> tuple[Tensor, Targets]:
    """Return a picture (3, H, W) uint8 RGB and its exact labels.

    Args:
        seed: the same seed gives the same scene everywhere.
        size: side, or (height, width), in pixels.
        shapes: how many are drawn; crowded scenes hold fewer when no free place is found. 0 is background.
        task: which shapes and labels; see ``class_names``.
        overlap: the largest part of an earlier shape's box that a later one may cover.
        truncate: let shapes reach over the border; their labels end there.
        tiny: how many of the shapes are smaller than 4 px.

    Labels: outlines of every shape for segment (and its parts for ``pair``), seven points for pose (v 1 under a later
    shape, 0 outside), rotated boxes for obb. Boxes bound outlines; areas are those of the drawn mask.

    >>> image, targets = scene(0, 64, 2)
    >>> image.shape, len(targets)
    (torch.Size([3, 64, 64]), 2)
    """
    kind = as_task(task)
    height, width = (size, size) if isinstance(size, int) else size
    if min(height, width) < 16 or shapes < 0:
        raise ValueError(f"a scene needs sides of 16 px and a count of 0 or more, got {size} and {shapes}")
    stream = Stream.of(seed, shapes, height * 65536 + width)
    canvas = _background(stream, height, width)
    placed: list[_Shape] = []
    boxes = np.zeros((0, 4))
    for number in range(shapes):
        for _ in range(40):
            shape = _draw_shape(stream, kind, height, width, truncate, number < tiny)
            box = _envelope(shape.rings)
            if _covered(boxes, box) <= overlap:
                placed.append(shape)
                boxes = np.vstack([boxes, box])
                break
    masks = [_paint(canvas, shape) for shape in placed]
    # the grain of a sensor, the same on every machine
    grain = _noise(Stream(stream.bits()), 3, height, width)
    pixels = np.clip(np.rint(canvas + 10.0 * (grain - 0.5)), 0, 255).astype(np.uint8)
    return torch.from_numpy(pixels), _targets(placed, masks, kind, height, width)


def _draw_shape(stream: Stream, task: Task, height: int, width: int, truncate: bool, tiny: bool) -> _Shape:
    label = stream.integer(len(CLASS_NAMES[task]))
    name = CLASS_NAMES[task][label]
    short = min(height, width)
    extent = stream.uniform(*_TINY) if tiny else short * _size_fraction(stream)
    # pose and obb turn freely; the rest lean a little, so that a square stays a square
    turn = math.pi if task in ("pose", "obb") else 0.35
    angle = stream.uniform(-turn, turn)
    rotation = extent * np.array([[math.cos(angle), math.sin(angle)], [-math.sin(angle), math.cos(angle)]])
    rings = [ring @ rotation for ring in OUTLINES[name](stream)]
    x1, y1, x2, y2 = _envelope(rings)
    slack = 0.4 * extent if truncate else 0.0
    shift = np.array(
        [stream.uniform(-x1 - slack, width - x2 + slack), stream.uniform(-y1 - slack, height - y2 + slack)]
    )
    colour = np.array([c + stream.uniform(-45, 45) for c in COLOURS[name]])
    points = np.array(list(ARROW_POINTS.values())) @ rotation + shift
    quad = rings[0][:4] + shift if len(rings[0]) >= 4 else np.zeros((4, 2))
    return _Shape(label, [ring + shift for ring in rings], colour, points, quad)


def _size_fraction(stream: Stream) -> float:
    # even on a logarithmic scale: as many small as large
    return _LEAST * math.exp(math.log(_MOST / _LEAST) * stream.unit())


def _envelope(rings: Rings) -> npt.NDArray[np.float64]:
    points = np.vstack(rings)
    return np.concatenate([points.min(0), points.max(0)])


def _covered(boxes: npt.NDArray[np.float64], box: npt.NDArray[np.float64]) -> float:
    """Return the largest fraction of any of ``boxes``, or of ``box``, that the other covers."""
    if not len(boxes):
        return 0.0
    overlap = np.minimum(boxes[:, 2:], box[2:]) - np.maximum(boxes[:, :2], box[:2])
    shared = np.clip(overlap, 0, None).prod(1)
    areas = np.minimum((boxes[:, 2:] - boxes[:, :2]).prod(1), (box[2:] - box[:2]).prod())
    return float((shared / np.maximum(areas, 1e-9)).max())


def _paint(canvas: npt.NDArray[np.float64], shape: _Shape) -> npt.NDArray[np.float64]:
    """Blend ``shape`` into ``canvas`` and return its coverage (H, W) in [0, 1]."""
    height, width = canvas.shape[1:]
    coverage = np.zeros((height, width))
    x1, y1, x2, y2 = _envelope(shape.rings)
    left, top = max(0, math.floor(x1)), max(0, math.floor(y1))
    right, bottom = min(width, math.ceil(x2)), min(height, math.ceil(y2))
    if right <= left or bottom <= top:
        return coverage
    fine = [(ring - [left, top]) * _SAMPLES for ring in shape.rings]
    rows, columns = bottom - top, right - left
    mask = fill_rings(fine, rows * _SAMPLES, columns * _SAMPLES)
    part = mask.reshape(rows, _SAMPLES, columns, _SAMPLES).mean((1, 3))
    coverage[top:bottom, left:right] = part
    window = canvas[:, top:bottom, left:right]
    window += part * (shape.colour[:, None, None] - window)
    return coverage


def _targets(
    shapes: list[_Shape], masks: list[npt.NDArray[np.float64]], task: Task, height: int, width: int
) -> Targets:
    if not shapes:
        return Targets.empty()
    limit = np.array([width, height], np.float64)
    rings = [[np.clip(ring, 0, limit) for ring in shape.rings] for shape in shapes]
    boxes = torch.tensor(np.stack([_envelope(parts) for parts in rings]), dtype=torch.float32)
    quads = torch.from_numpy(np.stack([shape.quad for shape in shapes]))
    return Targets.of(
        boxes=boxes,
        labels=torch.tensor([shape.label for shape in shapes]),
        polygons=[[torch.tensor(r, dtype=torch.float32) for r in p] for p in rings]
        if task == "segment"
        else (),
        rboxes=polygons_to_rboxes(quads).float() if task == "obb" else None,
        keypoints=_keypoints(shapes, height, width) if task == "pose" else None,
        area=torch.tensor([mask.sum() for mask in masks], dtype=torch.float32),
    )


def _keypoints(shapes: list[_Shape], height: int, width: int) -> Tensor:
    points = np.stack([shape.keypoints for shape in shapes])
    inside = np.asarray(((points >= 0) & (points < [width, height])).all(-1))
    visibility = np.where(inside, 2.0, 0.0)
    for later, shape in enumerate(shapes):
        over = fill_rings(shape.rings, height, width)
        cells = np.clip(np.floor(points[:later]).astype(np.int64), 0, [width - 1, height - 1])
        hidden = over[cells[..., 1], cells[..., 0]] & inside[:later]
        visibility[:later][hidden] = 1.0
    points = np.where(visibility[..., None] > 0, points, 0.0)
    return torch.tensor(np.concatenate([points, visibility[..., None]], -1), dtype=torch.float32)


def _background(stream: Stream, height: int, width: int) -> npt.NDArray[np.float64]:
    base = np.array([stream.uniform(60, 190) for _ in range(3)])
    slope = np.array([[stream.uniform(-40, 40) for _ in range(3)] for _ in range(2)])
    y = ((np.arange(height) + 0.5) / height - 0.5)[:, None]
    x = ((np.arange(width) + 0.5) / width - 0.5)[None, :]
    gradient = slope[0][:, None, None] * y + slope[1][:, None, None] * x
    clouds = _smooth(_noise(Stream(stream.bits()), 3, 7, 7), height, width)
    pixels: npt.NDArray[np.float64] = base[:, None, None] + gradient + 60.0 * (clouds - 0.5)
    return pixels


def _noise(stream: Stream, *shape: int) -> npt.NDArray[np.float64]:
    """Return values in [0, 1): one hash per element."""
    with np.errstate(over="ignore"):
        z = np.uint64(stream.bits()) + np.arange(math.prod(shape), dtype=np.uint64) * np.uint64(
            0x9E3779B97F4A7C15
        )
        z = (z ^ (z >> np.uint64(30))) * np.uint64(0xBF58476D1CE4E5B9)
        z = (z ^ (z >> np.uint64(27))) * np.uint64(0x94D049BB133111EB)
        z ^= z >> np.uint64(31)
    values: npt.NDArray[np.float64] = (z >> np.uint64(11)).astype(np.float64) * 2.0**-53
    shaped: npt.NDArray[np.float64] = values.reshape(shape)
    return shaped


def _smooth(grid: npt.NDArray[np.float64], height: int, width: int) -> npt.NDArray[np.float64]:
    """Return ``grid`` (C, h, w) stretched over (C, height, width), bilinear between its nodes."""

    def axis(count: int, nodes: int) -> tuple[npt.NDArray[np.int64], npt.NDArray[np.float64]]:
        at = np.linspace(0, nodes - 1, count)
        low = np.minimum(at.astype(np.int64), nodes - 2)
        return low, at - low

    rows, fy = axis(height, grid.shape[1])
    columns, fx = axis(width, grid.shape[2])
    tall = grid[:, rows] * (1 - fy)[:, None] + grid[:, rows + 1] * fy[:, None]
    wide: npt.NDArray[np.float64] = tall[:, :, columns] * (1 - fx) + tall[:, :, columns + 1] * fx
    return wide
