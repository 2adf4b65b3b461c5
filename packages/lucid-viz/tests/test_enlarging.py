"""Small pictures are drawn large enough to read, and where nothing was found that is said."""

import pytest
import torch

from lucid_models import Predictions
from lucid_viz import RenderOptions, burn_predictions, comparison_sheet, enlarge, nothing_above, raster


def found(height, width, scores=(0.9,), **fields) -> Predictions:
    boxes = torch.tensor([[2.0, 3.0, 10.0, 12.0]] * len(scores)).reshape(-1, 4)
    return Predictions(
        boxes,
        torch.tensor(scores),
        torch.zeros(len(scores), dtype=torch.int64),
        ("a", "b"),
        (height, width),
        **fields,
    )


@pytest.mark.parametrize(
    ("side", "factor"), [(48, 13), (128, 5), (299, 3), (300, 2), (599, 2), (600, 1), (1920, 1)]
)
def test_the_longer_side_gets_at_least_600_px_by_the_least_whole_factor(side, factor):
    image, predictions = enlarge(torch.zeros(3, 16, side, dtype=torch.uint8), found(16, side))
    assert image.shape == (3, 16 * factor, side * factor)
    assert predictions.image_size == (16 * factor, side * factor)


def test_an_image_that_is_large_enough_is_the_same():
    image, predictions = torch.zeros(3, 4, 640, dtype=torch.uint8), found(4, 640)
    assert enlarge(image, predictions) == (image, predictions)


def test_pixels_become_squares_and_all_parts_scale_exactly():
    image = torch.arange(3 * 20 * 100).reshape(3, 20, 100).to(torch.uint8)
    mask = torch.zeros(1, 20, 100, dtype=torch.bool)
    mask[0, 5, 7] = True
    parts = found(
        20,
        100,
        masks=mask,
        keypoints=torch.tensor([[[4.5, 6.0, 0.25]]]),
        rboxes=torch.tensor([[6.0, 7.0, 8.0, 4.0, 0.5]]),
    )
    large, scaled = enlarge(image, parts)
    for y, x in ((0, 0), (5, 7), (19, 99)):
        square = large[:, 6 * y : 6 * y + 6, 6 * x : 6 * x + 6]
        assert torch.equal(square, image[:, y, x, None, None].expand(3, 6, 6))
    assert scaled.boxes.tolist() == [[12, 18, 60, 72]]
    assert scaled.rboxes.tolist() == [[36, 42, 48, 24, 0.5]]
    assert scaled.keypoints.tolist() == [[[27, 36, 0.25]]]
    assert scaled.masks.nonzero().tolist() == [[0, y, x] for y in range(30, 36) for x in range(42, 48)]
    assert scaled.scores is parts.scores
    with pytest.raises(ValueError, match="image of shape"):
        enlarge(image[:, :0], parts)


def test_a_sheet_says_that_nothing_is_above_the_confidence_and_what_was_highest():
    image = torch.zeros(3, 32, 40, dtype=torch.uint8)
    several = [
        found(32, 40, (), highest_score=0.07),
        found(32, 40, (0.5,)),
        found(32, 40, (0.2,)),
        found(32, 40, ()),
    ]
    figure = comparison_sheet([image] * 4, several, options=RenderOptions(confidence=0.25))
    assert [ax.get_title() for ax in figure.axes] == [
        "predictions: nothing above 0.25; highest 0.07",
        "",
        "nothing above 0.25; highest 0.2",
        "nothing above 0.25",
    ]


def test_a_drawing_says_it_in_its_corner_unless_captions_are_left_out():
    image = torch.full((3, 60, 640), 200, dtype=torch.uint8)
    nothing = found(60, 640, (), highest_score=0.07)
    drawn = burn_predictions(image, nothing)
    changed = (drawn != image).any(0).nonzero()
    assert changed.amin(0).tolist() == [0, 0]
    assert changed.amax(0)[0] < 30
    assert torch.equal(burn_predictions(image, nothing, RenderOptions(show_labels=False)), image)


@pytest.mark.parametrize(
    ("scores", "fields"), [((), {}), ((), {"highest_score": 0.07}), ((0.2,), {}), ((0.2, 0.9), {})]
)
def test_a_drawing_says_what_the_title_of_a_sheet_says(monkeypatch, scores, fields):
    image, said = torch.zeros(3, 32, 640, dtype=torch.uint8), []
    plate = raster._plate
    monkeypatch.setattr(raster, "_plate", lambda text, *rest: said.append(text) or plate(text, *rest))
    predictions = found(32, 640, scores, **fields)
    burn_predictions(image, predictions)
    title = comparison_sheet([image], [predictions]).axes[0].get_title().removeprefix("predictions")
    assert [f": {text}" for text in said if "nothing" in text] == ([title] if title else [])


def test_scores_are_said_with_two_digits():
    assert nothing_above(0.25, 0.00451) == "nothing above 0.25; highest 0.0045"
    assert nothing_above(0.5, 0.0) == "nothing above 0.5; highest 0"


@pytest.mark.parametrize(
    ("confidence", "highest", "said"),
    [
        (0.3, 0.299, "0.29"),
        (0.255, 0.255, "0.25"),
        (1, 0.999, "0.99"),
        (0.7, 0.7, "0.7"),
        (0.3, 0.2849, "0.28"),
    ],
)
def test_rounding_does_not_lift_the_highest_score_to_the_confidence(confidence, highest, said):
    assert nothing_above(confidence, highest) == f"nothing above {confidence}; highest {said}"


def test_a_score_above_the_confidence_that_was_dropped_before_is_not_denied():
    image = torch.zeros(3, 32, 40, dtype=torch.uint8)
    dropped = found(32, 40, (), highest_score=0.4)  # as a predictor with confidence 0.5 leaves it
    figure = comparison_sheet([image], [dropped], options=RenderOptions(confidence=0.25))
    assert figure.axes[0].get_title() == "predictions: nothing kept; highest 0.4"


def test_plates_are_equally_high_whatever_their_letters():
    assert (
        len({raster._plate(text, "#000000", 13).height for text in ("ace", "Ag", "square 0.91", "0.50")}) == 1
    )
