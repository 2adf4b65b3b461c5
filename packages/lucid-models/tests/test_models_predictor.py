"""The predictor: preprocessing, frames, selection, and the forms of its results."""

import json
from pathlib import Path

import pytest
import torch
from torch.nn.functional import interpolate, pad

from lucid_geometry import Letterbox
from lucid_models import (
    Detector,
    Predictions,
    Predictor,
    checkpoint_header,
    end_to_end,
    letterbox_image,
    make_points,
    to_predictions,
    with_nms,
)


def image(height: int, width: int) -> torch.Tensor:
    return torch.randint(0, 256, (3, height, width), dtype=torch.uint8)


def test_letterbox_resizes_antialiased_and_pads_with_grey() -> None:
    source, letterbox = image(100, 250), Letterbox(100, 250, 64, 64)
    resized = interpolate(source[None].float(), size=(26, 64), mode="bilinear", antialias=True)[0]
    canvas = letterbox_image(source, letterbox)
    assert canvas.dtype == torch.uint8
    assert torch.all(canvas[:, :19] == 114)
    assert torch.all(canvas[:, 45:] == 114)
    assert (canvas[:, 19:45].float() - resized).abs().max() <= 1.5


def test_letterbox_of_a_fitting_image_is_the_image() -> None:
    source = image(64, 40)
    canvas = letterbox_image(source, Letterbox(64, 40, 64, 64))
    assert torch.equal(canvas, pad(source, (12, 12), value=114))


@pytest.mark.parametrize("path", ["e2e", "nms"])
def test_results_equal_the_unfolded_detector_step_by_step(lively: Detector, path: str) -> None:
    lively.eval()
    images = [image(64, 96), image(50, 30), image(96, 96)]
    predictor = Predictor(lively, image_size=96, confidence=0.0, max_detections=20, path=path, batch_size=2)
    results = predictor(images)
    assert len(results) == 3
    points, strides = make_points(96, 96)
    for source, result in zip(images, results, strict=True):
        letterbox = Letterbox(source.shape[1], source.shape[2], 96, 96)
        with torch.no_grad():
            output = lively(letterbox_image(source, letterbox)[None].float() / 255)
        decoded = (
            end_to_end(output.o2o, points, strides, 20)
            if path == "e2e"
            else with_nms(output.o2m, points, strides, 20)
        )
        expected = to_predictions(decoded[0], [letterbox], lively.names)[0]
        assert torch.allclose(result.scores, expected.scores, atol=1e-4)
        assert result.image_size == tuple(source.shape[1:])
        assert len(result) == len(expected)


def test_boxes_return_to_the_original_frame_and_stay_inside() -> None:
    letterbox = Letterbox(500, 333, 640, 640)
    truth = torch.tensor([[10.0, 20, 200, 300], [-30, 400, 400, 600]])
    rows = torch.cat((letterbox.forward_boxes(truth), torch.tensor([[0.9, 1], [0.8, 0]])), 1)
    result = to_predictions(rows[None], [letterbox], ("a", "b"))[0]
    assert torch.allclose(result.boxes, torch.tensor([[10.0, 20, 200, 300], [0, 400, 333, 500]]), atol=1e-3)
    assert result.labels.tolist() == [1, 0]


@pytest.mark.parametrize(("confidence", "kept"), [(0.0, 3), (0.49, 2), (0.5, 1), (1.0, 0)])
def test_padding_weak_and_non_finite_rows_are_dropped(confidence: float, kept: int) -> None:
    box = [1.0, 1, 5, 5]
    nan = float("nan")
    rows = torch.tensor([[*box, 0.9, 0], [*box, 0.5, 0], [nan, 1, 5, 5, 0.4, 0], [*box, 0.1, 0], [0] * 6])
    assert len(to_predictions(rows[None], [Letterbox(8, 8, 32, 32)], ("a",), confidence)[0]) == kept


def test_results_are_ordinary_tensors(detector: Detector) -> None:
    result = Predictor(detector, image_size=64, confidence=0.0)([image(64, 64)])[0]
    assert not any(t.is_inference() for t in (result.boxes, result.scores, result.labels))


def test_results_are_sorted_by_score(lively: Detector) -> None:
    scores = Predictor(lively, image_size=64, confidence=0.0)([image(64, 64)])[0].scores
    assert torch.equal(scores, scores.sort(descending=True).values)


def test_batch_size_does_not_change_results(lively: Detector) -> None:
    images = [image(40 + 8 * i, 64) for i in range(3)]
    one, many = (Predictor(lively, image_size=64, confidence=0.0, batch_size=b)(images) for b in (1, 3))
    for a, b in zip(one, many, strict=True):
        assert torch.allclose(a.scores, b.scores, atol=1e-5)


def test_no_images_give_no_results(detector: Detector) -> None:
    assert Predictor(detector, image_size=64)([]) == []


def test_predicting_leaves_the_detector_in_training_mode(detector: Detector) -> None:
    detector.train()
    Predictor(detector, image_size=64)([image(64, 64)])
    assert detector.training
    assert all(p.requires_grad for p in detector.parameters())


def test_a_checkpoint_path_brings_its_image_size(detector: Detector, tmp_path: Path) -> None:
    torch.save({"lucid": checkpoint_header(detector, image_size=96)}, tmp_path / "a.ckpt")
    predictor = Predictor(tmp_path / "a.ckpt")
    assert predictor.image_size == 96
    assert predictor.names == detector.names


@pytest.mark.parametrize(
    ("images", "error", "message"),
    [
        ([torch.zeros(3, 8, 8)], TypeError, "image 0 must be uint8, got torch.float32"),
        ([image(8, 8), image(8, 8)[0]], ValueError, r"image 1 must be \(3, H, W\)"),
        ([image(8, 8)[:1]], ValueError, "image 0"),
        ([image(8, 0)], ValueError, "image 0"),
    ],
)
def test_wrong_images_are_refused_with_their_position(
    detector: Detector, images: list[torch.Tensor], error: type[Exception], message: str
) -> None:
    with pytest.raises(error, match=message):
        Predictor(detector, image_size=64)(images)


@pytest.mark.parametrize(
    "arguments",
    [{"path": "both"}, {"batch_size": 0}, {"max_detections": 0}, {"image_size": 65}, {"image_size": 0}],
)
def test_wrong_settings_are_refused(detector: Detector, arguments: dict[str, object]) -> None:
    with pytest.raises(ValueError, match=r"path|batch_size|max_detections must be at least 1|canvas"):
        Predictor(detector, **arguments)  # type: ignore[arg-type]


def test_the_highest_score_is_known_whatever_was_dropped() -> None:
    rows = torch.zeros(3, 4, 6)
    rows[0, :, 4] = torch.tensor([0.5, 0.25, 0.0, 0.0])
    rows[1, 0, 4] = 0.0625
    rows[1, 1, 4] = float("nan")
    found = to_predictions(rows, [Letterbox(64, 64, 64, 64)] * 3, ("a",), confidence=0.25)
    assert [len(one) for one in found] == [1, 0, 0]
    assert [one.highest_score for one in found] == [0.5, 0.0625, 0.0]


def two() -> Predictions:
    boxes = torch.tensor([[1.0, 2, 5, 9], [0, 0, 3, 3]])
    return Predictions(boxes, torch.tensor([0.75, 0.5]), torch.tensor([1, 0]), ("a", "b"), (10, 12))


def test_coco_entries_use_the_files_ids_and_corner_extent_boxes() -> None:
    assert two().to_coco(42, [7, 90]) == [
        {"image_id": 42, "category_id": 90, "bbox": [1.0, 2.0, 4.0, 7.0], "score": 0.75},
        {"image_id": 42, "category_id": 7, "bbox": [0.0, 0.0, 3.0, 3.0], "score": 0.5},
    ]
    assert [entry["category_id"] for entry in two().to_coco(1)] == [2, 1]


def test_coco_refuses_ids_that_do_not_fit_the_names() -> None:
    with pytest.raises(ValueError, match="3 category ids for 2 names"):
        two().to_coco(1, [1, 2, 3])


def test_plain_form_survives_json() -> None:
    plain = two().to_dict()
    assert json.loads(json.dumps(plain)) == plain
    assert plain["detections"][0] == {"box": [1.0, 2.0, 5.0, 9.0], "score": 0.75, "label": 1, "name": "b"}
