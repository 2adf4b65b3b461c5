"""The outlines of the drawn shapes, at unit size around the origin."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Final

import numpy as np
import numpy.typing as npt

from lucid_data.randomness import Stream

Points = npt.NDArray[np.float64]
Rings = list[Points]


def _rectangle(width: float, height: float) -> Points:
    x, y = width / 2, height / 2
    return np.array([[-x, -y], [x, -y], [x, y], [-x, y]])


def _regular(count: int, phase: float = -math.pi / 2) -> Points:
    angle = phase + 2 * math.pi * np.arange(count) / count
    return 0.5 * np.stack([np.cos(angle), np.sin(angle)], 1)


def _circle(stream: Stream) -> Rings:
    return [_regular(32)]


def _square(stream: Stream) -> Rings:
    return [_rectangle(0.8, 0.8)]


def _long_rectangle(stream: Stream) -> Rings:
    return [_rectangle(1.0, 1.0 / stream.uniform(1.6, 3.0))]


def _triangle(stream: Stream) -> Rings:
    return [_regular(3)]


def _star(stream: Stream) -> Rings:
    outer, inner = _regular(5), 0.4 * _regular(5, -math.pi / 2 + math.pi / 5)
    return [np.stack([outer, inner], 1).reshape(10, 2)]


def _pair(stream: Stream) -> Rings:
    # one object in two parts, as an occluder leaves it
    part = 0.42 * _regular(6)
    shift = np.array([0.29, 0.0])
    return [part - shift, part + shift]


def _plate(stream: Stream) -> Rings:
    return [_rectangle(1.0, 1.0 / stream.uniform(1.3, 1.7))]


def _bar(stream: Stream) -> Rings:
    return [_rectangle(1.0, 1.0 / stream.uniform(2.4, 4.0))]


# an arrow head on a stem, wider on one side than on the other: no symmetry hides a wrong flip
_ARROW: Final = np.array(
    [[0.0, -0.5], [0.34, -0.08], [0.12, -0.08], [0.12, 0.5], [-0.12, 0.5], [-0.12, -0.08], [-0.42, -0.08]]
)
ARROW_POINTS: Final[dict[str, tuple[float, float]]] = {
    "centre": (0.0, 0.0),
    "apex": (0.0, -0.46),
    "tail": (0.0, 0.46),
    "base_left": (-0.08, 0.4),
    "base_right": (0.08, 0.4),
    "flank_left": (-0.34, -0.12),
    "flank_right": (0.28, -0.12),
}


def _arrow(stream: Stream) -> Rings:
    return [_ARROW]


OUTLINES: Final[dict[str, Callable[[Stream], Rings]]] = {
    "circle": _circle,
    "square": _square,
    "rectangle": _long_rectangle,
    "triangle": _triangle,
    "star": _star,
    "pair": _pair,
    "plate": _plate,
    "bar": _bar,
    "arrow": _arrow,
}

# a colour each, so that colour helps but, with its noise, does not decide
COLOURS: Final[dict[str, tuple[int, int, int]]] = {
    "circle": (214, 69, 65),
    "square": (65, 131, 215),
    "rectangle": (38, 166, 91),
    "triangle": (244, 208, 63),
    "star": (155, 89, 182),
    "pair": (230, 126, 34),
    "plate": (65, 131, 215),
    "bar": (214, 69, 65),
    "arrow": (38, 166, 91),
}
