import math

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from torch import Tensor

from lucid_geometry import (
    aligned_box_iou,
    box_area,
    box_iou,
    clip_boxes,
    complete_box_iou,
    cxcywh_to_xyxy,
    xywh_to_xyxy,
    xyxy_to_cxcywh,
    xyxy_to_xywh,
)

PAIRS = [
    ((0, 0, 10, 10), (5, 5, 15, 15), 0.142857, 0.031746),
    ((2, 3, 12, 9), (0, 0, 10, 10), 0.428571, 0.407087),
    ((0, 0, 4, 4), (20, 20, 28, 24), 0.0, -0.651689),
    ((5, 5, 5, 5), (0, 0, 10, 20), 0.0, -0.056982),
]


def row(values: tuple[float, ...]) -> Tensor:
    return torch.tensor([values], dtype=torch.float64)


@pytest.mark.parametrize(("a", "b", "iou", "ciou"), PAIRS)
def test_published_pairs(a: tuple[float, ...], b: tuple[float, ...], iou: float, ciou: float) -> None:
    assert aligned_box_iou(row(a), row(b)).item() == pytest.approx(iou, abs=1e-6)
    assert box_iou(row(a), row(b)).item() == pytest.approx(iou, abs=1e-6)
    assert complete_box_iou(row(a), row(b)).item() == pytest.approx(ciou, abs=1e-6)


corner = st.integers(-20, 20)
box = st.tuples(corner, corner, corner, corner).map(
    lambda v: (min(v[0], v[2]), min(v[1], v[3]), max(v[0], v[2]), max(v[1], v[3]))
)


@given(st.lists(box, min_size=1, max_size=6), st.lists(box, min_size=1, max_size=6))
def test_iou_of_whole_pixel_boxes_equals_counting_pixels(
    a: list[tuple[int, ...]], b: list[tuple[int, ...]]
) -> None:
    def pixels(v: tuple[int, ...]) -> set[tuple[int, int]]:
        return {(x, y) for x in range(v[0], v[2]) for y in range(v[1], v[3])}

    expected = [[len(pixels(p) & pixels(q)) / max(len(pixels(p) | pixels(q)), 1) for q in b] for p in a]
    actual = box_iou(torch.tensor(a, dtype=torch.float64), torch.tensor(b, dtype=torch.float64))
    torch.testing.assert_close(actual, torch.tensor(expected, dtype=torch.float64))


def test_leading_dimensions_broadcast() -> None:
    a, b = torch.rand(3, 1, 5, 4), torch.rand(2, 7, 4)
    full = box_iou(a, b)
    assert full.shape == (3, 2, 5, 7)
    torch.testing.assert_close(full[2, 1], box_iou(a[2, 0], b[1]))


def test_rows_of_the_dense_form_equal_the_aligned_form() -> None:
    a = torch.rand(6, 4).cumsum(-1)
    torch.testing.assert_close(box_iou(a, a + 0.1).diagonal(), aligned_box_iou(a, a + 0.1))


def test_empty_boxes_and_empty_sets_give_no_nan() -> None:
    assert box_iou(torch.zeros(1, 4), torch.zeros(1, 4)).item() == 0
    assert box_iou(torch.zeros(0, 4), torch.zeros(3, 4)).shape == (0, 3)
    assert box_area(torch.tensor([5.0, 5.0, 1.0, 1.0])).item() == 0


def test_eps_is_added_to_the_union() -> None:
    a = torch.tensor([[0.0, 0.0, 1.0, 1.0]])
    assert aligned_box_iou(a, a, eps=1.0).item() == 0.5


def test_half_precision_does_not_overflow() -> None:
    big = torch.tensor([[0.0, 0.0, 640.0, 640.0]], dtype=torch.float16)
    assert box_area(big).item() == 640 * 640
    assert box_iou(big, big).item() == 1.0


def test_inputs_are_not_written() -> None:
    a, b = torch.rand(3, 4).cumsum(-1), torch.rand(3, 4).cumsum(-1)
    before = a.clone(), b.clone()
    box_iou(a, b)
    aligned_box_iou(a, b)
    complete_box_iou(a, b)
    assert torch.equal(a, before[0])
    assert torch.equal(b, before[1])


@given(st.lists(box, min_size=1, max_size=5))
def test_conversions_come_back(boxes: list[tuple[int, ...]]) -> None:
    t = torch.tensor(boxes, dtype=torch.float64)
    assert torch.equal(cxcywh_to_xyxy(xyxy_to_cxcywh(t)), t)
    assert torch.equal(xywh_to_xyxy(xyxy_to_xywh(t)), t)


def test_clipping_moves_every_corner_onto_the_canvas() -> None:
    clipped = clip_boxes(torch.tensor([[-5.0, -5.0, 50.0, 3.0], [60.0, 1.0, 70.0, 2.0]]), height=10, width=20)
    assert clipped.tolist() == [[0, 0, 20, 3], [20, 1, 20, 2]]


def test_the_aspect_weight_carries_no_gradient() -> None:
    p = row((0, 0, 4, 4)).requires_grad_()
    t = row((20, 20, 28, 24))
    complete_box_iou(p, t).sum().backward()
    # the same expression written out, its weight a constant
    q = row((0, 0, 4, 4)).requires_grad_()
    w, h = q[0, 2] - q[0, 0], q[0, 3] - q[0, 1]
    v = 4 / math.pi**2 * (math.atan2(8, 4) - torch.atan2(w, h)) ** 2
    rho = ((q[0, 0] + q[0, 2]) / 2 - 24) ** 2 + ((q[0, 1] + q[0, 3]) / 2 - 22) ** 2
    c = (28 - q[0, 0]) ** 2 + (24 - q[0, 1]) ** 2
    (-rho / (c + 1e-7) - v * (v / (1 + v + 1e-7)).item()).backward()
    torch.testing.assert_close(p.grad, q.grad)


def test_a_collapsed_box_has_a_finite_gradient_without_aspect_part() -> None:
    p = torch.tensor([[5.0, 5.0, 5.0, 5.0], [5.0, 5.0, 9.0, 5.0]], requires_grad=True)
    complete_box_iou(p, torch.tensor([[0.0, 0.0, 10.0, 20.0]])).sum().backward()
    assert torch.isfinite(p.grad).all()
    assert p.grad[0, 0] == p.grad[0, 2]
    assert p.grad[0, 1] == p.grad[0, 3]


def test_an_inverted_box_gets_no_gradient_on_its_extents() -> None:
    p = torch.tensor([[8.0, 8.0, 2.0, 2.0]], requires_grad=True)
    complete_box_iou(p, torch.tensor([[0.0, 0.0, 10.0, 20.0]])).sum().backward()
    assert torch.equal(p.grad[0, :2], p.grad[0, 2:])


@pytest.mark.parametrize("function", [aligned_box_iou, complete_box_iou])
def test_gradients_are_those_of_finite_differences(function: object) -> None:
    p = torch.tensor([[1.0, 2.0, 7.0, 9.0], [0.0, 0.0, 5.0, 3.0]], dtype=torch.float64, requires_grad=True)
    t = torch.tensor([[2.0, 1.0, 8.0, 7.5], [1.0, 1.0, 4.0, 8.0]], dtype=torch.float64)
    if function is complete_box_iou:  # its weight is a constant to the gradient but not to differences
        p2 = p.detach().clone().requires_grad_()
        complete_box_iou(p2, p2.detach()).sum().backward()
        assert torch.allclose(p2.grad, torch.zeros_like(p2.grad))
    else:
        assert torch.autograd.gradcheck(lambda x: aligned_box_iou(x, t), p)
        assert torch.autograd.gradcheck(lambda x: box_iou(x, t), p)


def test_shapes_and_types_that_make_no_sense_are_refused() -> None:
    with pytest.raises(ValueError, match="a must have shape"):
        box_iou(torch.zeros(4), torch.zeros(1, 4))
    with pytest.raises(ValueError, match=r"boxes must have shape \(..., 4\), got \(2, 5\)"):
        box_area(torch.zeros(2, 5))
    with pytest.raises(TypeError, match="list"):
        box_area([0, 0, 1, 1])  # type: ignore[arg-type]
    with pytest.raises(TypeError, match="real"):
        box_area(torch.zeros(1, 4, dtype=torch.complex64))
