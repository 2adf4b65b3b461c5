"""Assignment against a scalar oracle, the published candidate sets and the edge cases of the rules."""

import math
from collections.abc import Callable

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import Tensor

from lucid_geometry import canonicalize_rboxes
from lucid_models import (
    MANY_RULE,
    ONE_RULE,
    Assignment,
    AssignRule,
    assign_anchors,
    candidate_mask,
    decode_boxes,
    decode_rboxes,
    make_points,
    positives,
    rotated_candidate_mask,
)

Box = list[float]


def scalar_iou(a: Box, b: Box) -> float:
    def side(low: float, high: float) -> float:
        return max(0.0, high - low)

    inter = side(max(a[0], b[0]), min(a[2], b[2])) * side(max(a[1], b[1]), min(a[3], b[3]))
    areas = side(a[0], a[2]) * side(a[1], a[3]) + side(b[0], b[2]) * side(b[1], b[3])
    return inter / (areas - inter + 1e-9)


def scalar_inside(point: Box, box: Box) -> bool:
    spans = []
    for low, high in ((box[0], box[2]), (box[1], box[3])):
        centre = (low + high) / 2
        spans.append((centre - 8, centre + 8) if high - low < 8 else (low, high))
    return all(low <= p <= high for p, (low, high) in zip(point, spans, strict=True))


def scalar_assign(
    scores: list[list[float]],
    boxes: list[Box],
    points: list[Box],
    gt_boxes: list[Box],
    labels: list[int],
    valid: list[bool],
    rule: AssignRule,
    compare: Callable[[Box, Box], float] = scalar_iou,
    inside: Callable[[Box, Box], bool] = scalar_inside,
) -> tuple[list[int], list[float]]:
    """One image, step by step; returns the ground-truth index and the weight of each anchor."""
    anchors, rows = range(len(points)), range(len(gt_boxes))
    overlap = [[compare(gt_boxes[n], boxes[a]) for a in anchors] for n in rows]
    metric = [[scores[a][labels[n]] * overlap[n][a] ** 6 for a in anchors] for n in rows]
    chosen: list[set[int]] = []
    for n in rows:
        candidates = [a for a in anchors if valid[n] and inside(points[a], gt_boxes[n])]
        chosen.append(set(sorted(candidates, key=lambda a: (-metric[n][a], a))[: rule.topk]))
    for a in anchors:
        claimants = [n for n in rows if a in chosen[n]]
        for n in sorted(claimants, key=lambda n: (-metric[n][a], n))[1:]:
            chosen[n].discard(a)
    if rule.unique:
        chosen = [set(sorted(c, key=lambda a, n=n: (-metric[n][a], a))[:1]) for n, c in enumerate(chosen)]
    index, weight = [-1] * len(points), [0.0] * len(points)
    for n in rows:
        if chosen[n]:
            best = max(max(metric[n][a] for a in chosen[n]), torch.finfo(torch.float32).tiny)
            best_overlap = max(overlap[n][a] for a in chosen[n])
            for a in chosen[n]:
                index[a], weight[a] = n, metric[n][a] * best_overlap / best
    return index, weight


def random_problem(seed: int) -> tuple[Tensor, ...]:
    """Predictions near the truths, some copied between anchors (ties), some far away (zero overlap)."""
    g = torch.Generator().manual_seed(seed)
    batch, rows, classes = 2, int(torch.randint(1, 7, (), generator=g)), 3
    points, strides = make_points(64, 64)
    corner = torch.rand(batch, rows, 2, generator=g) * 52
    gt_boxes = torch.cat((corner, corner + 3 + torch.rand(batch, rows, 2, generator=g) ** 2 * 45), -1)
    labels = torch.randint(0, classes, (batch, rows), generator=g)
    valid = torch.rand(batch, rows, generator=g) < 0.8
    boxes = decode_boxes(torch.rand(batch, len(points), 4, generator=g) * 3 - 0.3, points, strides)
    scores = torch.rand(batch, len(points), classes, generator=g)
    far = torch.rand(batch, len(points), generator=g) < 0.3
    boxes = torch.where(far[..., None], boxes + 500, boxes)
    copied = torch.rand(len(points) - 1, generator=g) < 0.3
    boxes[:, 1:][:, copied] = boxes[:, :-1][:, copied].clone()
    scores[:, 1:][:, copied] = scores[:, :-1][:, copied].clone()
    return scores, boxes, points, gt_boxes, labels, valid


def run(problem: tuple[Tensor, ...], rule: AssignRule) -> Assignment:
    scores, boxes, points, gt_boxes, labels, valid = problem
    return assign_anchors(scores, boxes, gt_boxes, labels, candidate_mask(points, gt_boxes, valid), rule)


@pytest.mark.parametrize("rule", [MANY_RULE, ONE_RULE, AssignRule(topk=2), AssignRule(topk=500)])
@settings(deadline=None, max_examples=25)
@given(seed=st.integers(0, 2**31))
def test_equals_the_scalar_rules(rule: AssignRule, seed: int) -> None:
    problem = random_problem(seed)
    scores, boxes, points, gt_boxes, labels, valid = problem
    result = run(problem, rule)
    for b in range(len(scores)):
        index, weight = scalar_assign(
            scores[b].tolist(),
            boxes[b].tolist(),
            points.tolist(),
            gt_boxes[b].tolist(),
            labels[b].tolist(),
            valid[b].tolist(),
            rule,
        )
        assert result.gt_index[b].tolist() == index
        assert result.align_weights[b].tolist() == pytest.approx(weight, rel=1e-4, abs=1e-7)
        for a, n in enumerate(index):
            assert bool(result.fg_mask[b, a]) == (n >= 0)
            assert result.target_labels[b, a] == (-1 if n < 0 else labels[b, n])
            assert torch.equal(result.target_boxes[b, a], torch.zeros(4) if n < 0 else gt_boxes[b, n])


def scalar_inside_rotated(point: Box, rbox: Box) -> bool:
    cx, cy, w, h, theta = rbox
    dx, dy = point[0] - cx, point[1] - cy
    along = dx * math.cos(theta) + dy * math.sin(theta)
    across = dy * math.cos(theta) - dx * math.sin(theta)
    sides = [16 if side < 8 else side for side in (w, h)]
    return abs(along) <= sides[0] / 2 and abs(across) <= sides[1] / 2


def scalar_probiou(a: Box, b: Box) -> float:
    """The Hellinger form by covariance matrices, in double precision."""
    means, covariances = [], []
    for cx, cy, w, h, theta in (a, b):
        turn = torch.tensor([[math.cos(theta), -math.sin(theta)], [math.sin(theta), math.cos(theta)]])
        turn = turn.double()
        spread = torch.diag(torch.tensor([w * w / 12, h * h / 12]).double())
        means.append(torch.tensor([cx, cy]).double())
        covariances.append(turn @ spread @ turn.T)
    mean, apart = (covariances[0] + covariances[1]) / 2, means[0] - means[1]
    first = (apart @ torch.linalg.solve(mean, apart)).item() / 8
    second = math.log(mean.det() / math.sqrt(covariances[0].det() * covariances[1].det())) / 2
    return 1 - math.sqrt(max(0.0, 1 - math.exp(-first - second)))


@pytest.mark.parametrize("rule", [MANY_RULE, ONE_RULE])
@pytest.mark.parametrize("seed", range(2))
def test_rotated_assignment_equals_the_scalar_rules(rule: AssignRule, seed: int) -> None:
    torch.manual_seed(seed)
    points, strides = make_points(64, 32)
    sides, turn = 3 + torch.rand(2, 4, 2) * 30, torch.rand(2, 4, 1) * 3
    truths = canonicalize_rboxes(torch.cat((torch.rand(2, 4, 2) * 40, sides, turn), -1))
    labels, valid = torch.randint(0, 3, (2, 4)), torch.rand(2, 4) < 0.8
    scores = torch.rand(2, len(points), 3)
    boxes = decode_rboxes(
        0.5 + torch.rand(2, len(points), 4) * 2, torch.randn(2, len(points), 1), points, strides
    )
    candidates = rotated_candidate_mask(points, truths, valid)
    result = assign_anchors(scores, boxes, truths, labels, candidates, rule)
    for b in range(2):
        index, weight = scalar_assign(
            scores[b].tolist(),
            boxes[b].tolist(),
            points.tolist(),
            truths[b].tolist(),
            labels[b].tolist(),
            valid[b].tolist(),
            rule,
            scalar_probiou,
            scalar_inside_rotated,
        )
        assert result.gt_index[b].tolist() == index
        assert result.align_weights[b].tolist() == pytest.approx(weight, rel=1e-3, abs=1e-6)
        for a, n in enumerate(index):
            assert torch.equal(result.target_boxes[b, a], torch.zeros(5) if n < 0 else truths[b, n])


@given(seed=st.integers(0, 2**31), share=st.floats(0, 1))
@settings(deadline=None, max_examples=25)
def test_positives_list_every_anchor_with_its_truth_in_order_and_then_filler(seed: int, share: float) -> None:
    generator = torch.Generator().manual_seed(seed)
    rows = torch.randint(0, 4, (2, 9), generator=generator)
    index = torch.where(torch.rand(2, 9, generator=generator) < share, rows, -1)
    background = torch.zeros(2, 9)
    chosen = positives(Assignment(index >= 0, index, index, background[..., None], background), 9)
    for b in range(2):
        expected = [(a, n) for a, n in enumerate(index[b].tolist()) if n >= 0]
        got = list(zip(*(field[b].tolist() for field in chosen), strict=True))
        assert got == [(a, n, True) for a, n in expected] + [(0, 0, False)] * (9 - len(expected))


@pytest.mark.parametrize("rule", [MANY_RULE, ONE_RULE])
def test_padding_rows_change_nothing(rule: AssignRule) -> None:
    scores, boxes, points, gt_boxes, labels, valid = problem = random_problem(3)
    rows = torch.randn(2, 9, 4) * 30
    padded = (
        scores,
        boxes,
        points,
        torch.cat((gt_boxes, rows), 1),
        torch.cat((labels, labels.new_full((2, 9), -1)), 1),
        torch.cat((valid, valid.new_zeros(2, 9)), 1),
    )
    for a, b in zip(run(problem, rule), run(padded, rule), strict=True):
        assert torch.equal(a, b)


def test_images_do_not_influence_each_other() -> None:
    problem = random_problem(4)
    together = run(problem, MANY_RULE)
    for b in range(2):
        alone = run(tuple(t if t.dim() == 2 and len(t) > 2 else t[b : b + 1] for t in problem), MANY_RULE)
        for whole, part in zip(together, alone, strict=True):
            assert torch.equal(whole[b : b + 1], part)


@pytest.mark.parametrize(
    ("box", "expected"),
    [
        ((5, 5, 11, 11), {0, 1, 4, 5}),
        ((5, 2, 11, 22), {0, 1, 4, 5, 8, 9}),
        ((2, 5, 22, 11), {0, 1, 2, 4, 5, 6}),
        ((9, 9, 14, 14), {0, 1, 4, 5}),
        ((0, 0, 32, 32), set(range(16))),
        ((8, 8, 16, 16), {5}),
        ((4, 4, 12, 12), {0, 1, 4, 5}),
    ],
)
def test_candidate_sets_on_a_four_by_four_grid(box: tuple[int, ...], expected: set[int]) -> None:
    points, _ = make_points(32, 32, (8,))
    mask = candidate_mask(points, torch.tensor([[box]], dtype=torch.float32), torch.ones(1, 1) > 0)
    assert set(mask[0, 0].nonzero().flatten().tolist()) == expected


@pytest.mark.parametrize(("minimum", "reference"), [(0, 16), (8, 4), (-1, 2), (math.nan, 16), (8, math.inf)])
def test_candidate_sides_are_checked(minimum: float, reference: float) -> None:
    points, _ = make_points(32, 32)
    with pytest.raises(ValueError, match="minimum"):
        candidate_mask(points, torch.zeros(1, 1, 4), torch.ones(1, 1) > 0, minimum, reference)


def test_equal_candidate_sides_are_allowed() -> None:
    points, _ = make_points(32, 32)
    assert candidate_mask(points, torch.zeros(1, 1, 4), torch.ones(1, 1) > 0, 8, 8).any()


@pytest.mark.parametrize(
    "arguments",
    [{"topk": 0}, {"topk": 3, "alpha": -1.0}, {"topk": 3, "beta": math.inf}, {"topk": 3, "eps": 0.0}],
)
def test_rule_arguments_are_checked(arguments: dict[str, float]) -> None:
    with pytest.raises(ValueError, match="AssignRule"):
        AssignRule(**arguments)  # type: ignore[arg-type]


def test_weights_of_the_published_example() -> None:
    overlap = torch.tensor([0.7, 0.6, 0.2])
    boxes = torch.stack((torch.zeros(3), torch.zeros(3), 10 * overlap, torch.full((3,), 10.0)), -1)[None]
    scores = torch.tensor([[[0.8], [0.5], [0.3]]])
    gt = torch.tensor([[[0.0, 0.0, 10.0, 10.0]]])
    result = assign_anchors(
        scores, boxes, gt, torch.zeros(1, 1, dtype=torch.int64), torch.ones(1, 1, 3) > 0, MANY_RULE
    )
    assert result.align_weights[0].tolist() == pytest.approx([0.7, 0.173499, 0.000143], abs=1e-5)


def three_large() -> tuple[Tensor, Tensor, Tensor, Tensor, Tensor]:
    points, strides = make_points(128, 128)
    gt_boxes = torch.tensor([[[0.0, 0, 56, 56], [64, 0, 120, 56], [0, 64, 56, 120]]])
    return points, strides, gt_boxes, torch.zeros(1, 3, dtype=torch.int64), torch.ones(1, 3) > 0


def test_three_separated_truths_yield_thirty_and_three_positives() -> None:
    points, strides, gt_boxes, labels, valid = three_large()
    boxes = decode_boxes(torch.full((1, len(points), 4), 2.0), points, strides)
    candidates = candidate_mask(points, gt_boxes, valid)
    scores = torch.rand(1, len(points), 1)
    for rule, expected in ((MANY_RULE, 30), (ONE_RULE, 3)):
        assert assign_anchors(scores, boxes, gt_boxes, labels, candidates, rule).fg_mask.sum() == expected


def test_zero_overlap_everywhere_still_ranks_candidates_that_are_not_the_first_anchors() -> None:
    points, _, gt_boxes, labels, valid = three_large()
    gt_boxes = gt_boxes + 8
    candidates = candidate_mask(points, gt_boxes, valid)
    assert not candidates[..., :10].any()
    boxes = torch.full((1, len(points), 4), 900.0)
    result = assign_anchors(torch.rand(1, len(points), 1), boxes, gt_boxes, labels, candidates, MANY_RULE)
    assert result.fg_mask.sum() == 30
    assert not result.align_weights.any()
    for n in range(3):
        first = candidates[0, n].nonzero().flatten()[:10].tolist()
        assert (result.gt_index[0] == n).nonzero().flatten().tolist() == first


def test_metrics_near_underflow_keep_the_best_weight_at_the_overlap() -> None:
    points, _, gt_boxes, labels, valid = three_large()
    boxes = gt_boxes[:, :1].repeat(1, len(points), 1)
    boxes[..., 2] = boxes[..., 0] + 0.56  # overlap 0.01, metric about 1e-12
    candidates = candidate_mask(points, gt_boxes[:, :1], valid[:, :1])
    scores = torch.full((1, len(points), 1), 0.01)
    result = assign_anchors(scores, boxes, gt_boxes[:, :1], labels[:, :1], candidates, MANY_RULE)
    assert result.align_weights.max().item() == pytest.approx(0.01, rel=1e-4)


def test_a_truth_that_loses_its_best_anchor_falls_back_to_its_next() -> None:
    gt_boxes = torch.tensor([[[0.0, 0, 10, 10], [0, 0, 10, 9]]])
    boxes = torch.tensor([[[0.0, 0, 10, 9.6], [0, 0, 10, 5]]])
    result = assign_anchors(
        torch.ones(1, 2, 1),
        boxes,
        gt_boxes,
        torch.zeros(1, 2, dtype=torch.int64),
        torch.ones(1, 2, 2) > 0,
        ONE_RULE,
    )
    assert result.gt_index[0].tolist() == [0, 1]


def test_a_truth_whose_only_candidate_is_taken_stays_empty() -> None:
    gt_boxes = torch.tensor([[[0.0, 0, 10, 10], [0, 0, 10, 9]]])
    result = assign_anchors(
        torch.ones(1, 1, 1),
        torch.tensor([[[0.0, 0, 10, 10]]]),
        gt_boxes,
        torch.zeros(1, 2, dtype=torch.int64),
        torch.ones(1, 2, 1) > 0,
        ONE_RULE,
    )
    assert result.gt_index.tolist() == [[0]]


def test_no_truths_gives_the_background_record() -> None:
    points, _ = make_points(64, 64)
    empty = torch.zeros(2, 0, 4)
    candidates = candidate_mask(points, empty, torch.zeros(2, 0) > 0)
    result = assign_anchors(
        torch.rand(2, 84, 3), torch.rand(2, 84, 4), empty, torch.zeros(2, 0).long(), candidates, MANY_RULE
    )
    assert not result.fg_mask.any()
    assert torch.all(result.gt_index == -1)
    assert torch.all(result.target_labels == -1)
    assert result.target_boxes.shape == (2, 84, 4)
    assert not result.target_boxes.any()
    assert not result.align_weights.any()


def test_other_exponents_follow_the_metric() -> None:
    scores, boxes, points, gt_boxes, labels, valid = random_problem(8)
    rule = AssignRule(topk=1, alpha=0.5, beta=3.0)
    result = run((scores, boxes, points, gt_boxes[:, :1], labels[:, :1], valid[:, :1] | True), rule)
    for b in range(2):
        inside = [a for a in range(len(points)) if scalar_inside(points[a].tolist(), gt_boxes[b, 0].tolist())]
        metric = {
            a: scores[b, a, labels[b, 0]].item() ** 0.5
            * scalar_iou(gt_boxes[b, 0].tolist(), boxes[b, a].tolist()) ** 3
            for a in inside
        }
        best = min(metric, key=lambda a: (-metric[a], a))
        assert result.fg_mask[b].nonzero().flatten().tolist() == [best]
