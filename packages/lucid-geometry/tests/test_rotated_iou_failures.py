"""Pairs on which float32 polygon clipping returns garbage, with their values in rational arithmetic.

The failures of detectron2 #2167 and #4889 and of mmcv #2621: boxes equal but for their last digits, equal boxes
described twice, thin bars, very large boxes, centres far away.
"""

from collections.abc import Callable

import pytest
import torch
from torch import Tensor

from lucid_geometry import aligned_rotated_box_iou, rotated_box_iou, torchvision_to_rboxes

Row = tuple[float, float, float, float, float]

# radians, clockwise on screen
PAIRS: dict[str, tuple[Row, Row, float]] = {
    "equal to 1e-4 px and 1e-5 rad": (
        (53.6258, 75.7581, 25.7231, 21.1606, 1.364685),
        (53.6257, 75.7582, 25.7231, 21.1606, 1.364678),
        0.99998294,
    ),
    "narrow and equal to 1e-4 px": (
        (90.7775, 83.6641, 59.4078, 1.8852, -3.235034),
        (90.7774, 83.6642, 59.4078, 1.8852, -3.235037),
        0.99990139,
    ),
    "the same box after half a turn": (
        (76.55, 23.66, 11.84, 51.86, 2.434),
        (76.55, 23.66, 11.84, 51.86, 5.575593),
        0.99999925,
    ),
    "the same box by its other side": (
        (24.0, 22.0, 34.97, 46.73, 0.355),
        (24.0, 22.0, 46.73, 34.97, 1.925796),
        0.99999970,
    ),
    "half of a box, three sides shared": (
        (1.58, 83.18, 0.71, 46.59, -6.308),
        (1.76, 83.17, 0.35, 46.59, -6.308),
        0.49246533,
    ),
    "thin bars on each other": (
        (92.56975, 40.22219, 54.6974, 0.000134, 6.750253),
        (92.56981, 40.22222, 55.6279, 0.000137, 6.750253),
        0.96174130,
    ),
    "thin bars side by side": (
        (17.96063, 20.97345, 1.8544, 0.000106, 0.031313),
        (17.96059, 20.97336, 1.8777, 0.000108, 0.031308),
        0.09482421,
    ),
    "thin bars that cross": (
        (56.417, 78.67, 33.909, 0.00013, -3.065),
        (62.772, 75.847, 13.898, 0.00018, 6.903),
        0.00000655,
    ),
    "a large box and a thin bar": (
        (7.5, 38.5, 7165.63, 1816.958, 1.126),
        (1858.5, 4292.42, 8580.61, 0.00019, 2.784),
        0.0,
    ),
    "a million pixels away": (
        (100091.0, -999901.0, 43.5, 54.1, 6.502),
        (100102.0, -999911.0, 38.6, 55.0, -1.744),
        0.47687204,
    ),
}

# degrees, counter-clockwise, as such reports give them
DEGREES: dict[str, tuple[Row, Row, float]] = {
    "2167": (
        (2563.74462890625, 1436.7901611328125, 2174.703369140625, 214.09500122070312, 115.11834716796875),
        (2563.74462890625, 1436.790283203125, 2174.702880859375, 214.09495544433594, 115.11835479736328),
        0.99999851,
    ),
    "rounded": (
        (296.6620178222656, 458.73883056640625, 23.515729904174805, 47.677001953125, 0.08795166015625),
        (296.66201, 458.73882, 23.51573, 47.67702, 0.087951),
        0.99999960,
    ),
    "far": (
        (160.0, 153.0, 230.0, 23.0, -37.0),
        (-1.117407639806935e17, 1.3858420478349148e18, 1000.0000610351562, 1000.0000610351562, 1612.0),
        0.0,
    ),
}

CASES = [(name, torch.tensor([a]), torch.tensor([b]), iou) for name, (a, b, iou) in PAIRS.items()] + [
    (name, torchvision_to_rboxes(torch.tensor([a])), torchvision_to_rboxes(torch.tensor([b])), iou)
    for name, (a, b, iou) in DEGREES.items()
]


@pytest.mark.parametrize(("name", "a", "b", "iou"), CASES, ids=[case[0] for case in CASES])
def test_the_value_is_right_in_float32_and_either_order(name: str, a: Tensor, b: Tensor, iou: float) -> None:
    assert aligned_rotated_box_iou(a, b).item() == pytest.approx(iou, abs=1e-6)
    assert rotated_box_iou(b, a).item() == pytest.approx(iou, abs=1e-6)


@pytest.mark.parametrize(("name", "a", "b", "iou"), CASES, ids=[case[0] for case in CASES])
def test_the_value_written_here_is_that_of_exact_arithmetic(
    name: str, a: Tensor, b: Tensor, iou: float, exact_iou: Callable[[Tensor, Tensor], Tensor]
) -> None:
    if name == "far":  # 1e18 px leaves no digits for the series of its sine, and no doubt
        return
    assert exact_iou(a, b).item() == pytest.approx(iou, abs=2e-8)
