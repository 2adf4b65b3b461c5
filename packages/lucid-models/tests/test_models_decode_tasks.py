"""Decoding of oriented boxes, keypoints and masks, and the whole way to the original images."""

import math
from collections.abc import Callable

import pytest
import torch
from torch import Tensor

from lucid_geometry import Letterbox, canonicalize_rboxes, rboxes_to_boxes, rotated_box_iou
from lucid_models import (
    TASKS,
    BranchOutput,
    Detector,
    canvas_masks,
    decode_batch,
    decode_keypoints,
    decode_rboxes,
    end_to_end,
    image_masks,
    make_points,
    with_nms,
)

OfTask = Callable[[str], Detector]
POINTS, STRIDES = make_points(64, 64)
FRAMES = [Letterbox(100, 50, 64, 64), Letterbox(30, 90, 64, 64)]


def oriented(anchors: int = 84) -> BranchOutput:
    cls, box = torch.randn(2, anchors, 3), torch.rand(2, anchors, 4) * 3
    return BranchOutput(cls, box, angle=torch.randn(2, anchors, 1) * 2)


def test_oriented_rows_are_canonical_boxes_with_their_own_angles() -> None:
    output = oriented()
    rows, anchors = end_to_end(output, POINTS, STRIDES, 40)
    assert rows.shape == (2, 40, 7)
    dense = decode_rboxes(output.box, output.angle, POINTS, STRIDES)
    for b in range(2):
        assert torch.equal(rows[b, :, :5], dense[b, anchors[b]])
        labels = rows[b, :, 6].long()
        assert torch.equal(rows[b, :, 5], output.cls[b, anchors[b], labels].sigmoid())
    assert torch.equal(rows[..., :5], canonicalize_rboxes(rows[..., :5]))


@pytest.mark.parametrize("decoder", [end_to_end, with_nms])
def test_oriented_padding_is_zero_with_anchor_minus_one(
    decoder: Callable[..., tuple[Tensor, Tensor]],
) -> None:
    rows, anchors = decoder(oriented(21), *make_points(32, 32), 300)
    assert rows.shape == (2, 300, 7)
    assert (anchors == -1).any()
    assert not rows[anchors == -1].any()


def crossing(angles: tuple[float, ...], scores: tuple[float, ...]) -> BranchOutput:
    """Bars of 20 x 2 px about one anchor point."""
    count = len(angles)
    cls = torch.tensor(scores).logit().view(1, count, 1)
    box = torch.tensor([[10.0, 1, 10, 1]]).repeat(1, count, 1)
    return BranchOutput(cls, box, angle=torch.tensor(angles).view(1, count, 1))


def test_crossing_bars_survive_suppression_and_near_copies_do_not() -> None:
    points, strides = torch.full((3, 2), 32.0), torch.ones(3)
    branch = crossing((0.0, math.pi / 2, 0.01), (0.9, 0.8, 0.7))
    _, anchors = with_nms(branch, points, strides, 3)
    assert anchors.tolist() == [[0, 1, -1]]


def test_oriented_suppression_equals_the_greedy_loop() -> None:
    output = oriented()
    anchors = with_nms(output, POINTS, STRIDES, 84, iou_threshold=0.3)[1]
    scores, labels = output.cls.sigmoid().max(-1)
    for b in range(2):
        boxes = decode_rboxes(output.box[b], output.angle[b], POINTS, STRIDES)
        overlap, kept = rotated_box_iou(boxes, boxes), []
        for a in scores[b].argsort(descending=True).tolist():
            if all(overlap[a, k] <= 0.3 or labels[b, a] != labels[b, k] for k in kept):
                kept.append(a)
        assert anchors[b, : len(kept)].tolist() == kept
        assert (anchors[b, len(kept) :] == -1).all()


@pytest.mark.parametrize("box", [[math.nan, 1, 1, 1], [-1, 1, 0.5, 1], [math.inf, 1, 1, 1]])
def test_oriented_boxes_that_are_none_are_dropped_before_suppression(box: list[float]) -> None:
    branch = crossing((0.0, 1.0), (0.9, 0.8))
    branch.box[0, 0] = torch.tensor(box)
    assert with_nms(branch, torch.full((2, 2), 32.0), torch.ones(2), 2)[1].tolist() == [[1, -1]]


def test_keypoints_follow_the_decoders_anchors() -> None:
    offsets, logits = torch.randn(2, 84, 4, 2), torch.randn(2, 84, 4)
    branch = BranchOutput(logits[..., :1], offsets, keypoints=offsets, keypoint_visibility=logits)
    anchors = torch.tensor([[5, 70, -1], [83, 5, 5]])
    got = decode_keypoints(branch, POINTS, STRIDES, anchors)
    for b in range(2):
        for k, a in enumerate(anchors[b].tolist()):
            expected = torch.cat(
                (POINTS[a] + offsets[b, a] * STRIDES[a], logits[b, a].sigmoid()[:, None]), -1
            )
            assert torch.allclose(got[b, k], expected if a >= 0 else torch.zeros(4, 3), atol=1e-5)


def test_a_branch_without_keypoints_is_refused() -> None:
    with pytest.raises(ValueError, match="predicts no keypoints"):
        decode_keypoints(oriented(), POINTS, STRIDES, torch.zeros(2, 1).long())


def bilinear(grid: Tensor, y: float, x: float) -> float:
    """The value of an h x w grid at continuous cell coordinates, clamped at the border."""
    h, w = grid.shape
    y, x = min(max(y - 0.5, 0), h - 1), min(max(x - 0.5, 0), w - 1)
    i, j = int(y), int(x)
    i2, j2 = min(i + 1, h - 1), min(j + 1, w - 1)
    top = grid[i, j] * (1 - (x - j)) + grid[i, j2] * (x - j)
    return (top * (1 - (y - i)) + (grid[i2, j] * (1 - (x - j)) + grid[i2, j2] * (x - j)) * (y - i)).item()


def test_canvas_masks_equal_the_scalar_form() -> None:
    coeff, prototypes = torch.randn(1, 2, 3), torch.randn(1, 3, 4, 4)
    boxes = torch.tensor([[[1.0, 2.5, 14.2, 11], [-3, -3, 30, 30]]])
    got = canvas_masks(coeff, prototypes, boxes, 16, 16)[0]
    for n in range(2):
        p = (coeff[0, n, :, None, None] * prototypes[0]).sum(0).sigmoid()
        x1, y1, x2, y2 = boxes[0, n].tolist()
        for i in range(16):
            for j in range(16):
                inside = x1 <= j + 0.5 < x2 and y1 <= i + 0.5 < y2
                value = bilinear(p, (i + 0.5) / 4, (j + 0.5) / 4)
                assert abs(value - 0.5) < 1e-5 or got[n, i, j] == (inside and value > 0.5)


@pytest.mark.parametrize("size", [(37, 23), (9, 64), (200, 130)])
def test_image_pixels_take_the_canvas_pixel_their_centre_falls_into(size: tuple[int, int]) -> None:
    coeff, prototypes = torch.randn(2, 3), torch.randn(3, 16, 16)
    boxes, frame = torch.tensor([[5.0, 8, 60, 50], [0, 0, 64, 64]]), Letterbox(*size, 64, 64)
    canvas = canvas_masks(coeff[None], prototypes[None], boxes[None], 64, 64)[0]
    got = image_masks(coeff, prototypes, boxes, frame)
    assert got.shape == (2, *size)
    for i in range(0, size[0], 3):
        for j in range(0, size[1], 3):
            x, y = frame.forward_points(torch.tensor([j + 0.5, i + 0.5]).double()).tolist()
            assert torch.equal(got[:, i, j], canvas[:, min(int(y), 63), min(int(x), 63)])


def test_masks_do_not_depend_on_how_many_are_made_at_once(monkeypatch: pytest.MonkeyPatch) -> None:
    coeff, prototypes, frame = torch.randn(7, 3), torch.randn(3, 16, 16), Letterbox(40, 50, 64, 64)
    boxes = torch.tensor([4.0, 4, 60, 50]).expand(7, 4)
    expected, seen = image_masks(coeff, prototypes, boxes, frame), []
    original = torch.Tensor.index_select

    def watched(tensor: Tensor, *arguments: object) -> Tensor:
        seen.append(len(tensor))
        return original(tensor, *arguments)  # type: ignore[arg-type]

    monkeypatch.setattr("lucid_models.decode.masks._PIXELS", 2 * 64 * 64)
    monkeypatch.setattr(torch.Tensor, "index_select", watched)
    assert torch.equal(image_masks(coeff, prototypes, boxes, frame), expected)
    assert max(seen) == 2


@pytest.mark.parametrize("task", TASKS)
@pytest.mark.parametrize("decoder", [end_to_end, with_nms])
def test_a_batch_becomes_predictions_on_its_images(
    task: str, decoder: Callable[..., tuple[Tensor, Tensor]], of_task: OfTask
) -> None:
    with torch.no_grad():
        output = of_task(task).eval()(torch.rand(2, 3, 64, 64)).o2o
    results = decode_batch(
        output, POINTS, STRIDES, FRAMES, ("a", "b", "c"), decoder=decoder, max_detections=6
    )
    rows, anchors = decoder(output, POINTS, STRIDES, 6)
    for b, (result, frame) in enumerate(zip(results, FRAMES, strict=True)):
        count = int((anchors[b] >= 0).sum())
        assert len(result) == count > 0
        assert result.image_size == (frame.height, frame.width)
        fields = (result.masks, result.keypoints, result.rboxes)
        present = (TASKS[task].masks, task == "pose", task == "obb")
        assert tuple(field is not None for field in fields) == present
        low, high = result.boxes[:, :2], result.boxes[:, 2:]
        assert low.min() >= 0
        assert (high <= torch.tensor([frame.width, frame.height])).all()
        kept, chosen = rows[b, :count], anchors[b, :count]
        if result.masks is not None:
            coeff = output.coeff[b, chosen]
            assert torch.equal(result.masks, image_masks(coeff, output.prototypes[b], kept[:, :4], frame))
        if result.keypoints is not None:
            canvas = decode_keypoints(output, POINTS, STRIDES, anchors)[b, :count]
            back = frame.forward_points(result.keypoints[..., :2])
            assert torch.allclose(back, canvas[..., :2], atol=1e-3)
            assert torch.equal(result.keypoints[..., 2], canvas[..., 2])
        if result.rboxes is not None:
            assert torch.allclose(frame.forward_rboxes(result.rboxes), kept[:, :5], atol=1e-3)
            envelope = frame.forward_boxes(rboxes_to_boxes(result.rboxes))
            assert torch.allclose(envelope, rboxes_to_boxes(kept[:, :5]), atol=1e-3)


@pytest.mark.parametrize("task", TASKS)
def test_predictions_of_a_training_output_carry_no_gradient(task: str, of_task: OfTask) -> None:
    output = of_task(task)(torch.rand(2, 3, 64, 64)).o2o
    for result in decode_batch(output, POINTS, STRIDES, FRAMES, ("a",) * 3, max_detections=3):
        for field in (result.boxes, result.scores, result.keypoints, result.rboxes):
            assert field is None or not field.requires_grad


def test_weak_detections_are_dropped_before_their_masks_are_made(
    of_task: OfTask, monkeypatch: pytest.MonkeyPatch
) -> None:
    with torch.no_grad():
        output = of_task("segment").eval()(torch.rand(2, 3, 64, 64)).o2o
    made: list[int] = []
    monkeypatch.setattr(
        "lucid_models.decode.results.image_masks",
        lambda coeff, *_: made.append(len(coeff)) or torch.zeros(len(coeff), 1, 1) > 0,
    )
    scores = end_to_end(output, POINTS, STRIDES, 20)[0][..., 4]
    threshold = scores.quantile(0.7).item()
    decode_batch(output, POINTS, STRIDES, FRAMES, ("a",) * 3, max_detections=20, confidence=threshold)
    assert made == (scores.double() > threshold).sum(1).tolist()


def test_oriented_end_to_end_decoding_is_one_graph() -> None:
    compiled = torch.compile(end_to_end, fullgraph=True, backend="eager")
    output = oriented()
    for got, expected in zip(
        compiled(output, POINTS, STRIDES, 9), end_to_end(output, POINTS, STRIDES, 9), strict=True
    ):
        assert torch.allclose(got.float(), expected.float(), atol=1e-5)
