"""Oriented boxes: decoding frame, candidates, assignment by ProbIoU, losses."""

import math
from collections.abc import Callable

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import Tensor

from lucid_geometry import (
    aligned_box_iou,
    aligned_rotated_box_iou,
    angle_difference,
    canonicalize_rboxes,
    probiou_loss,
    rboxes_to_boxes,
    rboxes_to_polygons,
)
from lucid_models import (
    Assignment,
    AssignRule,
    angle_loss,
    assign_anchors,
    decode_boxes,
    decode_rboxes,
    make_points,
    rotated_box_loss,
    rotated_candidate_mask,
    rotated_l1_loss,
    rotated_overlap,
)

ONE = torch.ones(1, 1)


def random_rboxes(*shape: int) -> Tensor:
    centre, sides = torch.rand(*shape, 2) * 64, 4 + torch.rand(*shape, 2) * 30
    return canonicalize_rboxes(torch.cat((centre, sides, torch.rand(*shape, 1) * 6 - 3), -1))


def assignment(target: Tensor, weights: Tensor) -> Assignment:
    fg = weights > 0
    return Assignment(fg, fg.long() - 1, fg.long() - 1, torch.where(fg[..., None], target, 0.0), weights)


def test_angle_zero_decodes_the_upright_box() -> None:
    points, strides = make_points(64, 64)
    box = torch.rand(84, 4) * 3
    rboxes = decode_rboxes(box, torch.zeros(84, 1), points, strides)
    assert torch.allclose(rboxes_to_boxes(rboxes), decode_boxes(box, points, strides), atol=1e-4)


def test_corners_equal_the_turned_distances() -> None:
    points, strides = torch.tensor([[20.0, 30.0]]), torch.tensor([8.0])
    left, top, right, bottom, theta = 1.0, 0.5, 3.0, 0.75, 0.4
    rbox = decode_rboxes(torch.tensor([[left, top, right, bottom]]), torch.tensor([[theta]]), points, strides)
    expected = []
    for x, y in ((-left, -top), (right, -top), (right, bottom), (-left, bottom)):
        x, y = x * 8, y * 8
        expected.append(
            (20 + x * math.cos(theta) - y * math.sin(theta), 30 + x * math.sin(theta) + y * math.cos(theta))
        )
    assert torch.allclose(rboxes_to_polygons(rbox)[0], torch.tensor(expected), atol=1e-4)


@given(st.floats(-10, 10), st.lists(st.floats(0.1, 8), min_size=4, max_size=4))
@settings(max_examples=40, deadline=None)
def test_half_a_turn_exchanges_opposite_distances(theta: float, distances: list[float]) -> None:
    points, strides = torch.tensor([[20.0, 30.0]]).double(), torch.tensor([8.0]).double()
    left, top, right, bottom = distances

    def decode(distances: list[float], theta: float) -> Tensor:
        box, angle = (torch.tensor([v], dtype=torch.float64) for v in (distances, [theta]))
        return decode_rboxes(box, angle, points, strides)

    one, other = decode(distances, theta), decode([right, bottom, left, top], theta + math.pi)
    assert torch.allclose(one[:, :4], other[:, :4], atol=1e-9)
    assert angle_difference(one[:, 4], other[:, 4]).abs() < 1e-9


@pytest.mark.parametrize(
    ("ratio", "degrees", "upright"), [(5, 45, 0.23), (3, 30, 0.41), (10, 60, 0.17)], ids=str
)
def test_a_perfect_elongated_prediction_weighs_one_where_envelopes_give_little(
    ratio: float, degrees: float, upright: float
) -> None:
    target = torch.tensor([[[100.0, 100.0, 20.0 * ratio, 20.0, math.radians(degrees)]]])
    # what the same box scores when its unturned rectangle, either way round, is held against its envelope
    unturned = [torch.tensor([100.0, 100.0, w, h, 0.0]) for w, h in ((20 * ratio, 20), (20, 20 * ratio))]
    envelope = rboxes_to_boxes(target[0, 0])
    best = max(aligned_box_iou(rboxes_to_boxes(r), envelope).item() for r in unturned)
    assert best == pytest.approx(upright, abs=0.006)
    result = assign_anchors(
        torch.full((1, 1, 1), 0.5), target, target, torch.tensor([[0]]), ONE[None] > 0, AssignRule(1)
    )
    assert result.align_weights.item() == 1
    assert torch.equal(result.target_boxes, target)


def test_candidates_of_a_turned_box_need_no_negative_distance() -> None:
    rbox = torch.tensor([[[200.0, 200.0, 250.0, 50.0, math.pi / 4]]])
    points, _ = make_points(400, 400, (8,))
    inside = points[rotated_candidate_mask(points, rbox, ONE > 0)[0, 0]]
    away = inside - 200
    # about the box's own centre, the upright rectangle misses most of them
    outside = ((away[:, 0].abs() > 125) | (away[:, 1].abs() > 25)).float().mean()
    assert outside == pytest.approx(0.72, abs=0.02)
    along = (away @ torch.tensor([1.0, 1.0])) / math.sqrt(2)
    across = (away @ torch.tensor([-1.0, 1.0])) / math.sqrt(2)
    distances = torch.stack((along + 125, across + 25, 125 - along, 25 - across), -1)
    assert distances.min() >= -1e-3
    decoded = decode_rboxes(distances, torch.full((len(inside), 1), math.pi / 4), inside, torch.ones(1))
    assert torch.allclose(decoded, rbox[0].expand_as(decoded), atol=1e-3)


def test_small_sides_are_enlarged_along_the_boxs_own_axes() -> None:
    points = torch.tensor([[20.0, 20.0], [20.0, 27.9], [20.0, 28.1], [26.0, 20.0], [25.1, 20.0]])
    rbox = torch.tensor([[[20.0, 20.0, 10.0, 4.0, 0.0]]])  # becomes 10 x 16
    mask = rotated_candidate_mask(points, rbox, ONE > 0)
    assert mask[0, 0].tolist() == [True, True, False, False, False]
    turned = rotated_candidate_mask(points, canonicalize_rboxes(rbox[..., [0, 1, 3, 2, 4]]), ONE > 0)
    assert turned[0, 0].tolist() == [True, False, False, True, True]


def test_padding_has_no_candidates() -> None:
    points, _ = make_points(64, 64)
    assert not rotated_candidate_mask(points, random_rboxes(2, 3), torch.zeros(2, 3) > 0).any()


@pytest.mark.parametrize("planted", [float("nan"), float("inf"), 1e30])
def test_a_prediction_that_is_none_overlaps_nothing(planted: float) -> None:
    predictions = torch.full((1, 2, 5), planted)
    assert not rotated_overlap(random_rboxes(1, 3), predictions).any()


def test_degenerate_predictions_overlap_finitely() -> None:
    flat = torch.tensor([[[10.0, 10, 0, 0, 0], [10, 10, -4, 3, 1], [0, 0, 0, 0, 0]]])
    overlap = rotated_overlap(random_rboxes(1, 4), flat)
    assert torch.isfinite(overlap).all()
    assert overlap.max() < 0.2


def masked_oracle(rboxes: Tensor, angle: Tensor, strides: Tensor, a: Assignment) -> tuple[Tensor, ...]:
    """The three terms with boolean indexing, in the words of the formulas."""
    normalizer = a.align_weights.sum().clamp(min=1)
    q, pred, target = a.align_weights[a.fg_mask], rboxes[a.fg_mask], a.target_boxes[a.fg_mask]
    overlap = (q * probiou_loss(pred, target)).sum() / normalizer
    (x, y, w, h, t), (tx, ty, tw, th, tt) = pred.unbind(1), target.unbind(1)
    sides = torch.cos(t - tt) ** 2 * ((w - tw).abs() + (h - th).abs())
    sides = sides + torch.sin(t - tt) ** 2 * ((w - th).abs() + (h - tw).abs())
    errors = (x - tx).abs() + (y - ty).abs() + sides
    l1 = (q * errors / strides.expand(2, -1)[a.fg_mask]).sum() / normalizer
    omega = torch.exp(-(torch.log(target[:, 2] / target[:, 3]) ** 2) / 9)
    d = angle[a.fg_mask][:, 0] - target[:, 4]
    d = d - torch.round(d / math.pi) * math.pi
    return overlap, l1, (q * omega * torch.sin(2 * d) ** 2).sum() / normalizer


def dense_form(rboxes: Tensor, angle: Tensor, strides: Tensor, a: Assignment) -> tuple[Tensor, ...]:
    normalizer = a.align_weights.sum().clamp(min=1)
    return (
        rotated_box_loss(rboxes, a, normalizer),
        rotated_l1_loss(rboxes, strides, a, normalizer),
        angle_loss(angle, a, normalizer),
    )


def value_and_gradients(
    form: Callable[..., tuple[Tensor, ...]], rboxes: Tensor, angle: Tensor, strides: Tensor, a: Assignment
) -> list[Tensor]:
    rboxes, angle = rboxes.clone().requires_grad_(), angle.clone().requires_grad_()
    terms = form(rboxes, angle, strides, a)
    sum(terms).backward()  # type: ignore[union-attr]
    assert rboxes.grad is not None
    assert angle.grad is not None
    return [*(term.detach() for term in terms), rboxes.grad, angle.grad]


@pytest.mark.parametrize("share", [0.0, 0.1, 1.0])
def test_dense_losses_equal_the_masked_ones(share: float) -> None:
    _, strides = make_points(64, 64)
    a = assignment(random_rboxes(2, 84), torch.rand(2, 84) * (torch.rand(2, 84) < share))
    rboxes, angle = a.target_boxes + torch.randn(2, 84, 5), torch.randn(2, 84, 1) * 3
    got = value_and_gradients(dense_form, rboxes, angle, strides, a)
    for one, other in zip(got, value_and_gradients(masked_oracle, rboxes, angle, strides, a), strict=True):
        assert torch.allclose(one, other, rtol=1e-5, atol=1e-6)
    if share == 0:
        assert not any(term.any() for term in got)


def one_box(target: list[float]) -> Assignment:
    return assignment(torch.tensor([[target]]), torch.ones(1, 1))


def l1_of(pred: list[float], target: list[float]) -> float:
    one = torch.ones(1)
    return rotated_l1_loss(torch.tensor([[pred]]), 8 * one, one_box(target), one[0]).item()


def test_both_descriptions_of_a_rectangle_have_one_error() -> None:
    one, other = [3.0, 5, 30, 12, 0.4], [3.0, 5, 12, 30, 0.4 + math.pi / 2]
    for pred in ([1.0, 2, 28, 20, 0.9], [4.0, 4, 25, 12, -0.3]):
        assert l1_of(pred, one) == pytest.approx(l1_of(pred, other), abs=1e-5)
    assert l1_of(other, one) == pytest.approx(0, abs=1e-5)


def test_a_quarter_turn_is_an_error_of_the_sides_that_lie_along_each_other() -> None:
    # |30 - 12| along either axis, in strides of 8
    assert l1_of([3.0, 5, 30, 12, math.pi / 2], [3.0, 5, 30, 12, 0]) == pytest.approx(2 * 18 / 8, abs=1e-5)


def test_no_fit_but_for_a_quarter_turn_is_a_trap() -> None:
    """Descent on the three terms leads from the turned box to the right one; with sides alone compared it stays."""
    target = one_box([30.0, 30, 30, 20, 0.2])
    raw = torch.tensor([[[30.0, 30, 30, 20, 0.2 + math.pi / 2 - 0.02]]], requires_grad=True)
    strides, one = torch.full((1,), 8.0), torch.tensor(1.0)
    step = torch.tensor([1.0, 1, 1, 1, 0.02])
    for _ in range(400):
        pred = canonicalize_rboxes(raw)
        total = 7.5 * rotated_box_loss(pred, target, one) + 6 * rotated_l1_loss(pred, strides, target, one)
        total = total + 0.25 * angle_loss(raw[..., 4:], target, one)
        (gradient,) = torch.autograd.grad(total, raw)
        with torch.no_grad():
            raw -= 0.1 * step * gradient
    overlap = aligned_rotated_box_iou(canonicalize_rboxes(raw.detach())[0], target.target_boxes[0])
    assert overlap.item() > 0.95


@pytest.mark.parametrize("planted", [0.0, float("inf"), float("nan"), 1e30])
def test_degenerate_predictions_on_background_change_nothing(planted: float) -> None:
    _, strides = make_points(64, 64)
    a = assignment(random_rboxes(2, 84), torch.rand(2, 84) * (torch.rand(2, 84) < 0.3))
    rboxes, angle = a.target_boxes + torch.randn(2, 84, 5), torch.randn(2, 84, 1)
    fg = a.fg_mask[..., None]
    clean = value_and_gradients(dense_form, rboxes, angle, strides, a)
    spoiled = value_and_gradients(
        dense_form, torch.where(fg, rboxes, planted), torch.where(fg, angle, planted), strides, a
    )
    assert all(torch.equal(one, other) for one, other in zip(clean, spoiled, strict=True))


def test_collapsed_and_inverted_predictions_at_positives_stay_finite() -> None:
    target = torch.tensor([[[30.0, 30, 20, 10, 0.3]]]).expand(1, 3, 5)
    predictions = torch.tensor([[[30.0, 30, 0, 0, 0], [30, 30, -5, -9, 1], [0, 0, 0, 0, 0]]])
    values = value_and_gradients(
        dense_form, predictions, torch.zeros(1, 3, 1), torch.ones(3), assignment(target, torch.ones(1, 3))
    )
    assert all(torch.isfinite(value).all() for value in values)


def vector_assignment(weights: tuple[float, float]) -> Assignment:
    target = torch.tensor([[[0.0, 0, 10, 10, 0], [0, 0, 12, 6, 0.4]]])
    return assignment(target, torch.tensor([weights]))


@pytest.mark.parametrize(("weights", "expected"), [((0.5, 0.25), 0.312625), ((0.9, 0.8), 0.526028)])
def test_angle_loss_of_published_values(weights: tuple[float, float], expected: float) -> None:
    a = vector_assignment(weights)
    value = angle_loss(torch.tensor([[[0.2], [1.2]]]), a, a.align_weights.sum().clamp(min=1))
    assert value.item() == pytest.approx(expected, abs=1e-5)


@pytest.mark.parametrize(
    ("ratio", "omega"),
    [(1, 1), (1.5, 0.981899), (2, 0.948016), (3, 0.874498), (5, 0.749904), (10, 0.554827), (20, 0.368927)],
)
def test_elongation_weakens_the_angle_term(ratio: float, omega: float) -> None:
    target = torch.tensor([[[0.0, 0, 8 * ratio, 8, 0]]])
    value = angle_loss(torch.full((1, 1, 1), math.pi / 4), assignment(target, ONE), ONE.sum())
    assert value.item() == pytest.approx(omega, abs=1e-5)


def test_the_two_descriptions_of_a_square_score_alike() -> None:
    square = assignment(torch.tensor([[[0.0, 0, 10, 10, 0.3]]]), ONE)
    values = [
        angle_loss(torch.full((1, 1, 1), theta), square, ONE.sum()).item()
        for theta in (0.5, 0.5 + math.pi / 2, 0.5 - math.pi)
    ]
    assert values == pytest.approx([math.sin(0.4) ** 2] * 3, abs=1e-5)


def test_a_target_without_extent_keeps_the_angle_term_bounded() -> None:
    flat = assignment(torch.zeros(1, 1, 5), ONE)
    assert angle_loss(torch.full((1, 1, 1), math.pi / 4), flat, ONE.sum()).item() == pytest.approx(1)


def test_a_spread_that_is_not_positive_is_refused() -> None:
    with pytest.raises(ValueError, match="spread must be positive, got 0"):
        angle_loss(torch.zeros(1, 1, 1), vector_assignment((1, 1)), ONE.sum(), spread=0)
