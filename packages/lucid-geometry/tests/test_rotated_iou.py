import math
import sys
from collections.abc import Callable

import pytest
import shapely
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import Tensor

from lucid_geometry import (
    aligned_rotated_box_iou,
    box_iou,
    canonicalize_rboxes,
    convex_intersection,
    polygon_area,
    rotated_box_iou,
)

Boxes = Callable[..., Tensor]
Iou = Callable[[Tensor, Tensor], Tensor]


def row(*values: float) -> Tensor:
    return torch.tensor([values], dtype=torch.float64)


@pytest.mark.parametrize(("dtype", "bound"), [(torch.float64, 1e-9), (torch.float32, 1e-6)])
def test_random_boxes_agree_with_shapely(
    random_rboxes: Boxes, oracle_iou: Iou, dtype: torch.dtype, bound: float
) -> None:
    a, b = random_rboxes(40, seed=1, dtype=dtype), random_rboxes(50, seed=2, dtype=dtype)
    torch.testing.assert_close(rotated_box_iou(a, b).double(), oracle_iou(a, b), rtol=0, atol=bound)


whole = st.integers(-6, 6)
lattice = st.tuples(whole, whole, st.integers(1, 8), st.integers(1, 8), st.integers(0, 11))


@given(lattice, lattice)
@settings(max_examples=200)
def test_edges_on_lines_shared_corners_and_touching_borders_agree_with_shapely(
    p: tuple[int, ...], q: tuple[int, ...]
) -> None:
    a, b = (row(*r[:4], r[4] * math.pi / 12) for r in (p, q))

    def drawn(r: tuple[int, ...]) -> shapely.Polygon:
        box = shapely.affinity.rotate(
            shapely.box(-r[2] / 2, -r[3] / 2, r[2] / 2, r[3] / 2), 15 * r[4], (0, 0)
        )
        return shapely.affinity.translate(box, r[0], r[1])

    overlap = drawn(p).intersection(drawn(q)).area
    expected = overlap / (p[2] * p[3] + q[2] * q[3] - overlap)
    assert aligned_rotated_box_iou(a, b).item() == pytest.approx(expected, abs=1e-9)


@pytest.mark.parametrize(
    ("ratio", "expected"),
    [
        (2, (0.9584, 0.9030, 0.8254, 0.7620)),
        (5, (0.9142, 0.8016, 0.6453, 0.5162)),
        (10, (0.8389, 0.6427, 0.3955, 0.2394)),
    ],
)
def test_published_turns_about_one_centre(ratio: int, expected: tuple[float, ...]) -> None:
    turned = torch.tensor(
        [[0.0, 0.0, ratio, 1.0, math.radians(d)] for d in (2, 5, 10, 15)], dtype=torch.float64
    )
    actual = rotated_box_iou(row(0, 0, ratio, 1, 0), turned)[0]
    torch.testing.assert_close(actual, torch.tensor(expected, dtype=torch.float64), rtol=0, atol=6e-5)


def test_other_published_pairs() -> None:
    assert aligned_rotated_box_iou(
        row(0, 0, 20, 2, 0), row(0, 0, 20, 2, math.pi / 2)
    ).item() == pytest.approx(4 / 76)
    assert aligned_rotated_box_iou(row(0, 0, 4, 2, 0), row(2, 0, 4, 2, 0)).item() == pytest.approx(1 / 3)
    assert aligned_rotated_box_iou(row(10, 10, 8, 4, 0.3), row(11, 9, 6, 5, -0.2)).item() == pytest.approx(
        0.4644, abs=5e-5
    )


def test_upright_boxes_score_as_upright_boxes() -> None:
    corner = torch.rand(20, 2, dtype=torch.float64) * 10
    size = torch.rand(20, 2, dtype=torch.float64) * 10 + 0.1
    rboxes = torch.cat((corner + size / 2, size, torch.zeros(20, 1, dtype=torch.float64)), 1)
    boxes = torch.cat((corner, corner + size), 1)
    torch.testing.assert_close(rotated_box_iou(rboxes, rboxes), box_iou(boxes, boxes))


def test_symmetric_in_range_and_one_on_itself(random_rboxes: Boxes) -> None:
    boxes = random_rboxes(60)
    iou = rotated_box_iou(boxes, boxes)
    torch.testing.assert_close(iou, iou.T, rtol=0, atol=1e-12)
    assert iou.min() >= 0
    assert iou.max() <= 1
    torch.testing.assert_close(iou.diagonal(), torch.ones(60, dtype=torch.float64))
    torch.testing.assert_close(aligned_rotated_box_iou(boxes, canonicalize_rboxes(boxes)), iou.diagonal())


@pytest.mark.parametrize("offset", [1e4, 1e5, 1e6])
def test_a_far_offset_loses_no_digits(random_rboxes: Boxes, oracle_iou: Iou, offset: float) -> None:
    # whole and half pixels, which float32 holds exactly at any of these offsets
    near = random_rboxes(30)
    near[:, :2] = near[:, :2].round()
    far = near.float()
    far[:, :2] += offset
    actual = rotated_box_iou(far, far).double()
    torch.testing.assert_close(actual, oracle_iou(near, near), rtol=0, atol=1e-6)


@pytest.mark.parametrize("scale", [1e-30, 1e-6, 1e6, 1e30])
def test_the_unit_of_length_does_not_matter(random_rboxes: Boxes, scale: float) -> None:
    boxes = random_rboxes(30)
    scaled = boxes * torch.tensor([scale, scale, scale, scale, 1], dtype=torch.float64)
    torch.testing.assert_close(
        rotated_box_iou(scaled, scaled), rotated_box_iou(boxes, boxes), rtol=0, atol=1e-9
    )


@pytest.mark.parametrize(
    "bad",
    [
        (0, 0, 0, 2, 0),
        (0, 0, 2, 0, 0),
        (0, 0, -2, -2, 0),
        (math.nan, 0, 2, 2, 0),
        (0, 0, 2, 2, math.nan),
        (0, 0, math.inf, 2, 0),
        (0, math.inf, 2, 2, 0),
    ],
)
def test_a_box_that_is_none_scores_zero_with_everything(bad: tuple[float, ...]) -> None:
    good = row(0, 0, 2, 2, 0)
    assert aligned_rotated_box_iou(row(*bad), good).item() == 0
    assert rotated_box_iou(torch.cat((good, row(*bad))), row(*bad)).tolist() == [[0], [0]]


def test_boxes_that_only_touch_score_zero() -> None:
    assert aligned_rotated_box_iou(row(0, 0, 2, 2, 0), row(2, 0, 2, 2, 0)).item() == 0
    assert aligned_rotated_box_iou(row(0, 0, 2, 2, 0), row(2, 2, 2, 2, 0)).item() == 0


def test_nearly_equal_boxes_score_nearly_one(random_rboxes: Boxes) -> None:
    boxes = random_rboxes(200)
    for noise in (1e-15, 1e-12, 1e-9, 1e-7):
        moved = boxes + noise * torch.randn(boxes.shape, dtype=torch.float64)
        assert (1 - aligned_rotated_box_iou(boxes, moved)).max() < max(100 * noise, 1e-12)


def test_batches_broadcast_and_empty_sets_are_fine(random_rboxes: Boxes) -> None:
    a, b = random_rboxes(12).reshape(3, 4, 5), random_rboxes(5, seed=9)
    full = rotated_box_iou(a, b)
    assert full.shape == (3, 4, 5)
    torch.testing.assert_close(full[1], rotated_box_iou(a[1], b))
    assert rotated_box_iou(a[0, :0], b).shape == (0, 5)
    assert rotated_box_iou(b, b[:0]).shape == (5, 0)


@pytest.mark.parametrize("numbers", [5, 7, 35, 60])
def test_chunks_do_not_change_the_answer(
    random_rboxes: Boxes, monkeypatch: pytest.MonkeyPatch, numbers: int
) -> None:
    a = random_rboxes(20)
    whole_answer = rotated_box_iou(a, a)
    monkeypatch.setitem(sys.modules["lucid_geometry.rotated_iou"]._NUMBERS, "cpu", numbers)
    assert torch.equal(rotated_box_iou(a, a), whole_answer)
    batch = a.reshape(4, 5, 5)
    assert torch.equal(rotated_box_iou(batch, batch)[2], whole_answer[10:15, 10:15])


def test_the_gradient_is_that_of_finite_differences(random_rboxes: Boxes) -> None:
    a, b = random_rboxes(6, seed=3, spread=10).requires_grad_(), random_rboxes(6, seed=4, spread=10)
    assert torch.autograd.gradcheck(lambda x: aligned_rotated_box_iou(x, b), a)
    assert torch.autograd.gradcheck(lambda x: rotated_box_iou(x, b), a)


def test_the_gradient_is_finite_where_nothing_overlaps_or_a_box_is_none() -> None:
    a = torch.cat((row(0, 0, 2, 2, 0), row(0, 0, 2, 2, 0), row(0, 0, 0, 2, 0))).requires_grad_()
    b = torch.cat((row(50, 0, 2, 2, 0), row(0, 0, 2, 2, 0), row(0, 0, 2, 2, 0)))
    aligned_rotated_box_iou(a, b).sum().backward()
    assert torch.isfinite(a.grad).all()


def regular(sides: int, radius: float, turn: float, at: tuple[float, float]) -> Tensor:
    angles = torch.arange(sides, dtype=torch.float64) * 2 * math.pi / sides + turn
    return torch.stack((angles.cos(), angles.sin()), 1) * radius + torch.tensor(at, dtype=torch.float64)


@given(st.integers(3, 8), st.integers(3, 8), st.floats(0, 6), st.floats(-3, 3), st.floats(-3, 3))
@settings(max_examples=100)
def test_convex_intersections_agree_with_shapely(m: int, n: int, turn: float, x: float, y: float) -> None:
    p, q = regular(m, 2.0, turn, (x, y)), regular(n, 1.5, 0.0, (0, 0))
    expected = shapely.Polygon(p.numpy()).intersection(shapely.Polygon(q.numpy())).area
    assert polygon_area(convex_intersection(p, q)).item() == pytest.approx(expected, abs=1e-9)
