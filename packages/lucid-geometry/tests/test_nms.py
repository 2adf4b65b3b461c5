import sys
from collections.abc import Callable

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import Tensor

from lucid_geometry import box_iou, nms, rotated_box_iou, rotated_nms


def greedy(overlap: Tensor, scores: Tensor, threshold: float, labels: Tensor | None) -> list[int]:
    """The textbook loop."""
    kept: list[int] = []
    for i in torch.argsort(scores, descending=True, stable=True).tolist():
        rivals = [k for k in kept if labels is None or labels[k] == labels[i]]
        if all(overlap[k, i] <= threshold for k in rivals):
            kept.append(i)
    return kept


def crowd(count: int, seed: int) -> tuple[Tensor, Tensor, Tensor]:
    g = torch.Generator().manual_seed(seed)
    corner = torch.rand(count, 2, generator=g) * 40
    boxes = torch.cat((corner, corner + torch.rand(count, 2, generator=g) * 20), 1)
    # few distinct scores, so that ties happen
    return boxes, torch.randint(0, 8, (count,), generator=g) / 8, torch.randint(0, 3, (count,), generator=g)


@given(st.integers(0, 80), st.integers(0, 10**6), st.sampled_from([0.0, 0.3, 0.7]), st.booleans())
@settings(max_examples=60)
def test_upright_suppression_is_the_greedy_loop(
    count: int, seed: int, threshold: float, by_class: bool
) -> None:
    boxes, scores, labels = crowd(count, seed)
    chosen = labels if by_class else None
    expected = greedy(box_iou(boxes, boxes), scores, threshold, chosen)
    assert nms(boxes, scores, threshold, chosen).tolist() == expected


@pytest.mark.parametrize("block", [1, 3, 16])
def test_blocks_do_not_change_the_answer(block: int, monkeypatch: pytest.MonkeyPatch) -> None:
    boxes, scores, labels = crowd(60, 1)
    whole = nms(boxes, scores, 0.3, labels)
    # the package exports the function under the name of its module
    monkeypatch.setattr(sys.modules["lucid_geometry.nms"], "_BLOCK", block)
    assert torch.equal(nms(boxes, scores, 0.3, labels), whole)


def test_rotated_suppression_is_the_greedy_loop(random_rboxes: Callable[..., Tensor]) -> None:
    boxes = random_rboxes(60)
    _, scores, labels = crowd(60, 2)
    expected = greedy(rotated_box_iou(boxes, boxes), scores, 0.3, labels)
    assert rotated_nms(boxes, scores, 0.3, labels).tolist() == expected


def test_crossing_bars_both_live_though_their_envelopes_coincide() -> None:
    bars = torch.tensor([[0.0, 0.0, 20.0, 2.0, 0.785398], [0.0, 0.0, 20.0, 2.0, 2.356194]])
    assert rotated_nms(bars, torch.tensor([0.9, 0.8]), 0.7).tolist() == [0, 1]


def test_a_limit_keeps_the_best() -> None:
    boxes, scores, _ = crowd(50, 3)
    whole = nms(boxes, scores, 0.5)
    assert torch.equal(nms(boxes, scores, 0.5, limit=4), whole[:4])


def test_a_pair_at_the_threshold_lives() -> None:
    boxes = torch.tensor([[0.0, 0.0, 2.0, 1.0], [0.0, 0.0, 1.0, 1.0]])
    scores = torch.tensor([0.9, 0.8])
    assert nms(boxes, scores, 0.5).tolist() == [0, 1]
    assert nms(boxes, scores, 0.49).tolist() == [0]


def test_nothing_in_nothing_out() -> None:
    kept = nms(torch.zeros(0, 4), torch.zeros(0), 0.5)
    assert kept.shape == (0,)
    assert kept.dtype == torch.int64


def test_arguments_that_disagree_are_refused() -> None:
    with pytest.raises(ValueError, match="scores"):
        nms(torch.zeros(2, 4), torch.zeros(3), 0.5)
    with pytest.raises(ValueError, match="labels"):
        nms(torch.zeros(2, 4), torch.zeros(2), 0.5, torch.zeros(1))
    with pytest.raises(ValueError, match="iou_threshold"):
        nms(torch.zeros(2, 4), torch.zeros(2), 1.5)
    with pytest.raises(ValueError, match="columns"):
        nms(torch.zeros(1, 2, 4), torch.zeros(1), 0.5)
