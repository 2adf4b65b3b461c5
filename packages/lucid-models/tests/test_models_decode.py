"""Decoding: selection order, padding, suppression."""

import math

import pytest
import torch
from torch import Tensor

from lucid_models import BranchOutput, decode_boxes, end_to_end, make_points, with_nms

CLASSES = 5


def branch(anchors: int = 84) -> BranchOutput:
    return BranchOutput(torch.randn(2, anchors, CLASSES), torch.rand(2, anchors, 4) * 3)


def logit(p: float) -> float:
    return math.log(p / (1 - p))


def rows_of(pairs: list[tuple[float, int, int]], boxes: Tensor) -> list[list[float]]:
    return [[*boxes[a].tolist(), score, float(c)] for score, a, c in pairs]


@pytest.mark.parametrize("k", [1, 7, 40, 84, 300])
def test_two_stage_selection_equals_sorting_by_hand(k: int) -> None:
    points, strides = make_points(64, 64)
    output = branch()
    detections, anchors = end_to_end(output, points, strides, k)
    assert detections.shape == (2, k, 6)
    for b in range(2):
        scores = output.cls[b].sigmoid().tolist()
        first = sorted(range(84), key=lambda a: -max(scores[a]))[:k]
        pairs = sorted(((scores[a][c], a, c) for a in first for c in range(CLASSES)), reverse=True)[:k]
        boxes = decode_boxes(output.box[b], points, strides)
        assert torch.allclose(detections[b, : len(pairs)], torch.tensor(rows_of(pairs, boxes)))
        assert anchors[b, : len(pairs)].tolist() == [a for _, a, _ in pairs]


def test_one_anchor_may_give_two_classes() -> None:
    cls = torch.tensor([[[4.0, 3.0], [1.0, -9.0], [2.0, -9.0]]])
    points, strides = make_points(8, 24, (8,))
    detections, anchors = end_to_end(BranchOutput(cls, torch.ones(1, 3, 4)), points, strides, 3)
    assert anchors.tolist() == [[0, 0, 2]]
    assert detections[0, :, 5].tolist() == [0, 1, 0]


def test_rows_without_a_pair_are_zero_with_anchor_minus_one() -> None:
    points, strides = make_points(32, 32)
    output = branch(21)
    detections, anchors = end_to_end(output, points, strides, 300)
    assert not detections[:, 105:].any()
    assert torch.all(anchors[:, 105:] == -1)
    assert torch.all(anchors[:, :105] >= 0)


def test_a_confidence_zeroes_the_score_and_keeps_the_row() -> None:
    points, strides = make_points(64, 64)
    output = branch()
    plain, anchors = end_to_end(output, points, strides, 50)
    cut, cut_anchors = end_to_end(output, points, strides, 50, confidence=0.9)
    assert torch.equal(anchors, cut_anchors)
    assert torch.equal(plain[..., [0, 1, 2, 3, 5]], cut[..., [0, 1, 2, 3, 5]])
    assert torch.equal(cut[..., 4], torch.where(plain[..., 4] < 0.9, 0.0, plain[..., 4]))
    assert 0 < (cut[..., 4] == 0).sum() < 100


@pytest.mark.parametrize("decoder", [end_to_end, with_nms])
def test_decoders_refuse_no_detections(decoder: object) -> None:
    points, strides = make_points(64, 64)
    with pytest.raises(ValueError, match="max_detections"):
        decoder(branch(), points, strides, max_detections=0)  # type: ignore[operator]


def test_decoding_is_float32_in_mixed_precision() -> None:
    points, strides = make_points(64, 64)
    half = BranchOutput(*(t.bfloat16() for t in branch()[:2]))
    assert end_to_end(half, points, strides)[0].dtype == torch.float32
    assert with_nms(half, points, strides)[0].dtype == torch.float32


def test_end_to_end_is_one_graph() -> None:
    points, strides = make_points(64, 64)
    output = branch()
    compiled = torch.compile(end_to_end, fullgraph=True, backend="eager")
    for got, expected in zip(
        compiled(output, points, strides), end_to_end(output, points, strides), strict=True
    ):
        assert torch.equal(got, expected)


def planted(rows: list[tuple[float, float, float, float, float, int]]) -> tuple[BranchOutput, Tensor, Tensor]:
    """Exact pixel boxes: points at the origin, stride 1."""
    n = len(rows)
    cls, box = torch.full((1, n, CLASSES), -20.0), torch.zeros(1, n, 4)
    for i, (x1, y1, x2, y2, score, label) in enumerate(rows):
        cls[0, i, label] = logit(score)
        box[0, i] = torch.tensor([-x1, -y1, x2, y2])
    return BranchOutput(cls, box), torch.zeros(n, 2), torch.ones(n)


def test_suppression_acts_within_a_class_above_the_threshold() -> None:
    output, points, strides = planted(
        [
            (0, 0, 10, 10, 0.6, 1),
            (0, 0, 10, 10, 0.9, 1),  # suppresses the first
            (0, 0, 10, 10, 0.5, 2),  # another class
            (0, 0, 10, 7, 0.8, 1),  # IoU 0.7 exactly: kept
            (0, 0, 10, 7.2, 0.4, 1),  # IoU 0.72: dropped
        ]
    )
    detections, anchors = with_nms(output, points, strides, 6)
    assert anchors.tolist() == [[1, 3, 2, -1, -1, -1]]
    assert detections[0, :3, 4].tolist() == pytest.approx([0.9, 0.8, 0.5])
    assert not detections[0, 3:].any()


def test_weak_degenerate_and_non_finite_rows_are_dropped() -> None:
    output, points, strides = planted(
        [
            (0, 0, 10, 10, 0.0009, 0),
            (5, 5, 5, 9, 0.9, 0),
            (9, 0, 3, 4, 0.9, 0),
            (0, 0, math.inf, 4, 0.9, 0),
            (0, 0, math.nan, 4, 0.9, 0),
            (0, 0, 4, 4, 0.0011, 0),
        ]
    )
    assert with_nms(output, points, strides, 3)[1].tolist() == [[5, -1, -1]]


def test_one_label_per_anchor_unless_asked() -> None:
    cls = torch.tensor([[[1.0, 2.0, -20.0, -20.0, -20.0]]])
    output = BranchOutput(cls, torch.ones(1, 1, 4))
    points, strides = make_points(8, 8, (8,))
    assert with_nms(output, points, strides, 3)[0][0, :, 5].tolist() == [1, 0, 0]
    detections, anchors = with_nms(output, points, strides, 3, multi_label=True)
    assert anchors.tolist() == [[0, 0, -1]]
    assert detections[0, :2, 5].tolist() == [1, 0]


def test_suppression_stops_at_the_limit_with_the_best() -> None:
    output, points, strides = planted([(20 * i, 0, 20 * i + 9, 9, 0.1 + 0.08 * i, 0) for i in range(10)])
    assert with_nms(output, points, strides, 4)[1].tolist() == [[9, 8, 7, 6]]
