import math
from collections.abc import Callable

import pytest
import shapely
import torch
from torch import Tensor

from lucid_geometry import canonicalize_rboxes, clip_rboxes

HEIGHT, WIDTH = 30.0, 40.0


def test_the_published_case() -> None:
    clipped = clip_rboxes(torch.tensor([[4.0, 1.0, 4.0, 2.0, 0.0]]), height=4, width=5)
    assert clipped.rboxes.tolist() == [[3.5, 1, 3, 2, 0]]
    assert clipped.boxes.tolist() == [[2, 0, 5, 2]]
    assert clipped.areas.tolist() == [6]


def test_a_box_inside_comes_back_bit_for_bit() -> None:
    box = torch.tensor([[20.0, 15.0, 4.0, 9.0, 7.3]])
    assert torch.equal(clip_rboxes(box, HEIGHT, WIDTH).rboxes, box)


def test_a_box_outside_becomes_zero() -> None:
    clipped = clip_rboxes(
        torch.tensor([[-50.0, 0.0, 4.0, 2.0, 0.4], [60.0, 15.0, 40.0, 2.0, 0.0]]), HEIGHT, WIDTH
    )
    for tensor in clipped:
        assert not tensor.any()


def test_area_envelope_and_extents_agree_with_shapely(
    random_rboxes: Callable[..., Tensor], oracle_rectangle: Callable[[Tensor], shapely.Polygon]
) -> None:
    boxes = random_rboxes(150, spread=50)
    clipped = clip_rboxes(boxes, HEIGHT, WIDTH)
    canvas = shapely.box(0, 0, WIDTH, HEIGHT)
    partly = 0
    for box, fitted, envelope, area in zip(boxes, *clipped, strict=True):
        visible = oracle_rectangle(box).intersection(canvas)
        assert area.item() == pytest.approx(visible.area, abs=1e-9)
        if visible.area < 1e-9:
            continue
        assert envelope.tolist() == pytest.approx(list(visible.bounds), abs=1e-9)
        theta = float(box[4])
        upright = shapely.affinity.rotate(visible, -theta, (0, 0), use_radians=True)
        x1, y1, x2, y2 = upright.bounds
        assert sorted(fitted[2:4].tolist()) == pytest.approx(sorted((x2 - x1, y2 - y1)), abs=1e-9)
        drawn = oracle_rectangle(fitted)
        assert visible.difference(drawn.buffer(1e-6)).area == 0
        turns = (float(fitted[4]) - theta) / (math.pi / 2)
        assert turns == pytest.approx(round(turns), abs=1e-9)
        partly += visible.area < 0.99 * oracle_rectangle(box).area
    assert partly > 30


def test_what_was_cut_is_canonical(random_rboxes: Callable[..., Tensor]) -> None:
    boxes = canonicalize_rboxes(random_rboxes(100, spread=50, dtype=torch.float32))
    cut = clip_rboxes(boxes, HEIGHT, WIDTH).rboxes
    torch.testing.assert_close(canonicalize_rboxes(cut), cut, rtol=0, atol=0)


def test_no_boxes_and_batches() -> None:
    assert clip_rboxes(torch.zeros(0, 5), 4, 5).areas.shape == (0,)
    assert clip_rboxes(torch.zeros(2, 3, 5), 4, 5).boxes.shape == (2, 3, 4)
