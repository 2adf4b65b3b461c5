"""Losses against an indexed oracle, published values and the compiler."""

from collections.abc import Callable
from typing import Any

import pytest
import torch
import torch._dynamo.testing
from torch import Tensor
from torch.nn.functional import binary_cross_entropy_with_logits

from lucid_geometry import complete_box_iou
from lucid_models import (
    MANY_RULE,
    ONE_RULE,
    Assignment,
    BranchLoss,
    BranchOutput,
    DetectionLoss,
    Detector,
    HeadOutput,
    box_loss,
    candidate_mask,
    check_labels,
    classification_loss,
    decode_boxes,
    l1_loss,
    make_points,
)

CLASSES = 4
HostReads = Callable[[], Any]


def random_assignment(positives: float) -> Assignment:
    fg = torch.rand(2, 84) < positives
    corner = torch.rand(2, 84, 2) * 40
    boxes = torch.cat((corner, corner + 2 + torch.rand(2, 84, 2) * 20), -1)
    return Assignment(
        fg,
        torch.where(fg, 0, -1),
        torch.where(fg, torch.randint(0, CLASSES, (2, 84)), -1),
        torch.where(fg[..., None], boxes, 0.0),
        torch.where(fg, torch.rand(2, 84), 0.0),
    )


def indexed_oracle(logits: Tensor, boxes: Tensor, strides: Tensor, a: Assignment) -> tuple[Tensor, ...]:
    """The three terms with boolean indexing, in the words of the formulas."""
    normalizer = a.align_weights.sum().clamp(min=1)
    y = torch.zeros_like(logits)
    b, n = a.fg_mask.nonzero(as_tuple=True)
    y[b, n, a.target_labels[b, n]] = a.align_weights[b, n]
    cls = binary_cross_entropy_with_logits(logits, y, reduction="sum") / normalizer
    q, pred, target = a.align_weights[a.fg_mask], boxes[a.fg_mask], a.target_boxes[a.fg_mask]
    box = (q * (1 - complete_box_iou(pred, target))).sum() / normalizer
    stride = strides.expand(2, -1)[a.fg_mask]
    l1 = (q * ((pred - target).abs().sum(-1) / stride)).sum() / normalizer
    return box, cls, l1


def three_terms(logits: Tensor, boxes: Tensor, strides: Tensor, a: Assignment) -> tuple[Tensor, ...]:
    normalizer = a.align_weights.sum().clamp(min=1)
    return (
        box_loss(boxes, a, normalizer),
        classification_loss(logits, a, normalizer),
        l1_loss(boxes, strides, a, normalizer),
    )


def value_and_gradients(
    form: Callable[..., tuple[Tensor, ...]], logits: Tensor, boxes: Tensor, strides: Tensor, a: Assignment
) -> list[Tensor]:
    logits, boxes = logits.clone().requires_grad_(), boxes.clone().requires_grad_()
    box, cls, l1 = form(logits, boxes, strides, a)
    (7.5 * box + 0.5 * cls + 6 * l1).backward()
    assert logits.grad is not None
    assert boxes.grad is not None
    return [box.detach(), cls.detach(), l1.detach(), logits.grad, boxes.grad]


@pytest.mark.parametrize("positives", [0.0, 0.05, 0.5, 1.0])
@pytest.mark.parametrize("seed", range(3))
def test_dense_form_equals_the_indexed_form(positives: float, seed: int) -> None:
    torch.manual_seed(seed)
    _, strides = make_points(64, 64)
    a = random_assignment(positives)
    logits = torch.randn(2, 84, CLASSES) * 3
    boxes = a.target_boxes + torch.randn(2, 84, 4) * 4
    dense = value_and_gradients(three_terms, logits, boxes, strides, a)
    oracle = value_and_gradients(indexed_oracle, logits, boxes, strides, a)
    for got, expected in zip(dense, oracle, strict=True):
        assert torch.allclose(got, expected, rtol=1e-6, atol=1e-6)


@pytest.mark.parametrize("planted", [0.0, float("inf"), float("nan"), 1e30])
def test_degenerate_predictions_on_background_change_nothing(planted: float) -> None:
    _, strides = make_points(64, 64)
    a = random_assignment(0.3)
    logits, boxes = torch.randn(2, 84, CLASSES), a.target_boxes + torch.randn(2, 84, 4)
    spoiled = torch.where(a.fg_mask[..., None], boxes, planted)
    clean = value_and_gradients(three_terms, logits, boxes, strides, a)
    for got, expected in zip(
        value_and_gradients(three_terms, logits, spoiled, strides, a), clean, strict=True
    ):
        assert torch.equal(got, expected)


def test_no_positives_give_exact_zeros_with_zero_gradient() -> None:
    _, strides = make_points(64, 64)
    box, cls, l1, class_gradient, box_gradient = value_and_gradients(
        three_terms, torch.randn(2, 84, CLASSES), torch.randn(2, 84, 4), strides, random_assignment(0.0)
    )
    assert box == l1 == 0
    assert not box_gradient.any()
    assert cls > 0
    assert class_gradient.all()


def test_doubling_the_stride_halves_l1_alone() -> None:
    _, strides = make_points(64, 64)
    a = random_assignment(0.3)
    logits, boxes = torch.randn(2, 84, CLASSES), a.target_boxes + torch.randn(2, 84, 4)
    box, cls, l1 = three_terms(logits, boxes, strides, a)
    box2, cls2, l12 = three_terms(logits, boxes, 2 * strides, a)
    assert (box2, cls2) == (box, cls)
    assert l12.item() == pytest.approx(l1.item() / 2)


@pytest.mark.parametrize(
    ("pred", "target", "ciou"),
    [
        ((0, 0, 10, 10), (5, 5, 15, 15), 0.031746),
        ((2, 3, 12, 9), (0, 0, 10, 10), 0.407087),
        ((0, 0, 4, 4), (20, 20, 28, 24), -0.651689),
        ((5, 5, 5, 5), (0, 0, 10, 20), -0.056982),
    ],
)
def test_box_loss_of_published_pairs(pred: tuple[int, ...], target: tuple[int, ...], ciou: float) -> None:
    one = torch.ones(1, 1)
    a = Assignment(one > 0, one.long(), one.long(), torch.tensor([[target]]).float(), one)
    boxes = torch.tensor([[pred]]).float().requires_grad_()
    loss = box_loss(boxes, a, torch.tensor(1.0))
    loss.backward()
    assert loss.item() == pytest.approx(1 - ciou, abs=1e-5)
    assert boxes.grad is not None
    assert torch.isfinite(boxes.grad).all()


def batch(rows: int = 3) -> tuple[Tensor, Tensor, Tensor]:
    boxes = torch.tensor([[[4.0, 4, 40, 30], [20, 20, 60, 62], [50, 2, 54, 7]]]).repeat(2, 1, 1)
    boxes[1] += 1
    valid = torch.tensor([[True, True, True], [True, False, False]])
    return boxes[:, :rows], torch.tensor([[0, 3, 1], [2, 0, 0]])[:, :rows], valid[:, :rows]


def head_output(requires_grad: bool = False) -> HeadOutput:
    def branch() -> BranchOutput:
        cls, box = torch.randn(2, 84, CLASSES) - 2, torch.rand(2, 84, 4) * 3
        return BranchOutput(cls.requires_grad_(requires_grad), box.requires_grad_(requires_grad))

    return HeadOutput(branch(), branch())


def test_total_mixes_branches_and_gains() -> None:
    points, strides = make_points(64, 64)
    output = head_output()
    result = DetectionLoss(CLASSES)(output, points, strides, *batch(), alpha=0.8)
    for part in (result.o2m, result.o2o):
        assert part.total.item() == pytest.approx((7.5 * part.box + 0.5 * part.cls + 6 * part.l1).item())
    assert result.total.item() == pytest.approx((0.8 * result.o2m.total + 0.2 * result.o2o.total).item())


def test_branch_parts_follow_their_own_assignment() -> None:
    points, strides = make_points(64, 64)
    output = head_output()
    result = DetectionLoss(CLASSES)(output, points, strides, *batch(), alpha=0.5)
    assert result.o2o_assignment.fg_mask.sum() <= 4 < result.o2m_assignment.fg_mask.sum()
    for part, branch, a in (
        (result.o2m, output.o2m, result.o2m_assignment),
        (result.o2o, output.o2o, result.o2o_assignment),
    ):
        boxes = decode_boxes(branch.box, points, strides)
        expected = indexed_oracle(branch.cls, boxes, strides, a)
        assert torch.allclose(torch.stack(part[:3]), torch.stack(expected), rtol=1e-5)


@pytest.mark.parametrize("alpha", [0.8, 0.1, 0.25])
def test_alpha_as_tensor_gives_the_bytes_of_alpha_as_float(alpha: float) -> None:
    points, strides = make_points(64, 64)
    output, loss = head_output(), DetectionLoss(CLASSES)
    with_float = loss(output, points, strides, *batch(), alpha=alpha).total
    with_tensor = loss(
        output, points, strides, *batch(), alpha=torch.tensor(alpha, dtype=torch.float64)
    ).total
    assert with_tensor.dtype == torch.float32
    assert torch.equal(with_float, with_tensor)


def test_losses_are_float32_under_autocast(detector: Detector) -> None:
    points, strides = make_points(64, 64)
    boxes, labels, valid = batch()
    with torch.autocast("cpu", torch.bfloat16):
        output = detector(torch.rand(2, 3, 64, 64))
        assert output.o2m.cls.dtype == torch.bfloat16
        result = DetectionLoss(3)(output, points, strides, boxes, labels % 3, valid, alpha=0.5)
    assert {t.dtype for t in (result.total, *result.o2m, *result.o2o)} == {torch.float32}
    assert result.o2m_assignment.align_weights.dtype == torch.float32
    result.total.backward()
    assert all(torch.isfinite(p.grad).all() for p in detector.parameters() if p.grad is not None)


@pytest.mark.parametrize("rows", [0, 3])
def test_every_parameter_gets_a_gradient(detector: Detector, rows: int) -> None:
    points, strides = make_points(64, 64)
    boxes, labels, valid = batch(rows)
    output = detector(torch.rand(2, 3, 64, 64))
    DetectionLoss(3)(output, points, strides, boxes, labels % 3, valid, alpha=0.5).total.backward()
    assert all(p.grad is not None and torch.isfinite(p.grad).all() for p in detector.parameters())


def test_fresh_network_starts_with_a_moderate_loss_and_real_overlaps(detector: Detector) -> None:
    points, strides = make_points(64, 64)
    boxes, labels, valid = batch()
    output = detector(torch.rand(2, 3, 64, 64))
    result = DetectionLoss(3)(output, points, strides, boxes, labels % 3, valid, alpha=0.5)
    assert result.total < 100
    assert result.o2m_assignment.align_weights.max() > 0.1


@pytest.mark.parametrize("rows", [0, 3])
def test_network_assignment_and_loss_are_one_graph(detector: Detector, rows: int) -> None:
    points, strides = make_points(64, 64)
    boxes, labels, valid = batch(rows)
    images, loss = torch.rand(2, 3, 64, 64), DetectionLoss(3)
    detector.eval()  # the statistics of a training forward would differ between the two calls

    def step(images: Tensor, boxes: Tensor, labels: Tensor, valid: Tensor, alpha: Tensor) -> Tensor:
        return loss(detector(images), points, strides, boxes, labels, valid, alpha).total

    arguments = (images, boxes, labels % 3, valid, torch.tensor(0.7, dtype=torch.float64))
    compiled = torch.compile(step, fullgraph=True, backend="eager")
    assert torch.equal(compiled(*arguments), step(*arguments))


def test_assignment_and_losses_read_nothing_back_and_copy_nothing_from_the_host(
    host_reads: HostReads,
) -> None:
    points, strides = make_points(64, 64)
    boxes, labels, valid = batch()
    output, loss = head_output(requires_grad=True), DetectionLoss(CLASSES)
    with host_reads() as reads:
        candidates = candidate_mask(points, boxes, valid)
        for branch, rule in ((output.o2m, MANY_RULE), (output.o2o, ONE_RULE)):
            part, _ = loss.branch(branch, points, strides, boxes, labels, candidates, rule)
            part.total.backward()
    assert reads.seen == []


def test_the_guard_above_notices_host_reads(host_reads: HostReads) -> None:
    x = torch.arange(4.0)
    for mutant in (
        lambda: x[x > 1],
        lambda: x.sum().item(),
        lambda: x.new_tensor([1.0]),
        lambda: x.nonzero(),
        lambda: bool(x.any()),
    ):
        with host_reads() as reads:
            mutant()
        assert reads.seen


def test_one_compilation_serves_every_alpha() -> None:
    points, strides = make_points(64, 64)
    output, loss, targets = head_output(), DetectionLoss(CLASSES), batch()
    counter = torch._dynamo.testing.CompileCounter()

    def step(alpha: Tensor) -> BranchLoss:
        return loss(output, points, strides, *targets, alpha).total

    compiled = torch.compile(step, fullgraph=True, backend=counter)
    for alpha in (0.8, 0.45, 0.1):
        alpha_tensor = torch.tensor(alpha, dtype=torch.float64)
        assert torch.equal(compiled(alpha_tensor), step(alpha_tensor))
    assert counter.frame_count == 1


@pytest.mark.parametrize("label", [-1, CLASSES])
def test_labels_outside_the_classes_are_refused_with_their_place(label: int) -> None:
    points, strides = make_points(64, 64)
    boxes, labels, valid = batch()
    labels[0, 2] = label
    with pytest.raises(ValueError, match=rf"label {label} in image 0, row 2 is outside 0..3"):
        DetectionLoss(CLASSES)(head_output(), points, strides, boxes, labels, valid, alpha=0.5)


def test_labels_of_padding_are_not_checked() -> None:
    check_labels(torch.tensor([[99]]), torch.tensor([[False]]), CLASSES)
