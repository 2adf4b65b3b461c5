"""Predictions of every task are drawn where they are, on axes and into pixels."""

import math

import pytest
import torch
from matplotlib.figure import Figure

from lucid_models import Predictions
from lucid_viz import RenderOptions, burn_predictions, class_color, draw_predictions
from lucid_viz.overlay import task_of
from lucid_viz.style import rgb

QUIET = RenderOptions(show_labels=False)


def one(**fields) -> Predictions:
    return Predictions(
        torch.tensor([[20.0, 10.0, 40.0, 30.0]]),
        torch.tensor([0.9]),
        torch.tensor([0]),
        ("a",),
        (60, 80),
        **fields,
    )


def square(rows, columns):
    mask = torch.zeros(1, 60, 80, dtype=torch.bool)
    mask[:, rows, columns] = True
    return mask


@pytest.fixture
def axes():
    return Figure().subplots()


@pytest.fixture
def image():
    return torch.full((3, 60, 80), 40, dtype=torch.uint8)


def test_masks_tint_exactly_their_pixels(image):
    drawn = burn_predictions(image, one(masks=square(slice(10, 30), slice(20, 40))), QUIET)
    inside = drawn[:, 15:25, 25:35].flatten(1)
    expected = [round(40 * 0.55 + channel * 0.45) for channel in rgb(class_color(0))]
    assert (inside == torch.tensor(expected)[:, None]).all()
    assert (drawn[:, :8] == 40).all()
    assert (drawn[:, :, 45:] == 40).all()


def test_on_axes_masks_are_one_picture_with_opacity_where_they_are(axes):
    draw_predictions(axes, one(masks=square(slice(10, 30), slice(20, 40))), QUIET)
    (picture,) = axes.images
    opacity = torch.tensor(picture.get_array()[..., 3])
    assert torch.equal(opacity > 0, square(slice(10, 30), slice(20, 40))[0])
    assert picture.get_extent() == [0, 80, 60, 0]


def test_the_surest_mask_is_on_top(axes):
    masks = torch.cat((square(slice(0, 30), slice(0, 30)), square(slice(10, 40), slice(10, 40))))
    boxes = torch.tensor([[0.0, 0, 30, 30], [10, 10, 40, 40]])
    both = Predictions(
        boxes, torch.tensor([0.9, 0.5]), torch.tensor([0, 1]), ("a", "b"), (60, 80), masks=masks
    )
    draw_predictions(axes, both, QUIET)
    picture = axes.images[0].get_array()
    for (row, column), label in (((5, 5), 0), ((20, 20), 0), ((35, 35), 1)):
        assert [round(255 * float(v)) for v in picture[row, column, :3]] == list(rgb(class_color(label)))


def test_predictions_under_the_confidence_leave_no_mask(axes):
    draw_predictions(axes, one(masks=square(slice(0, 9), slice(0, 9))), RenderOptions(confidence=0.95))
    assert not axes.images[0].get_array()[..., 3].any()


def test_oriented_boxes_are_drawn_by_their_corners(axes, image):
    found = one(rboxes=torch.tensor([[30.0, 20.0, 20.0, 10.0, math.pi / 2]]))
    draw_predictions(axes, found, QUIET)
    (patch,) = axes.patches
    corners = sorted((round(x), round(y)) for x, y in patch.get_xy()[:4])
    assert corners == [(25, 10), (25, 30), (35, 10), (35, 30)]
    drawn = burn_predictions(image, found, QUIET)
    changed = (drawn != 40).any(0).nonzero()
    assert changed.amin(0).tolist() == pytest.approx([10, 25], abs=2)
    assert changed.amax(0).tolist() == pytest.approx([30, 35], abs=2)
    # an outline, not a filled box
    assert (drawn[:, 18:22, 29:31] == 40).all()


def test_points_are_full_where_they_are_thought_visible(axes, image):
    found = one(keypoints=torch.tensor([[[25.0, 15.0, 0.9], [35.0, 25.0, 0.2]]]))
    draw_predictions(axes, found, QUIET)
    assert [(line.get_xydata().tolist(), line.get_markerfacecolor()) for line in axes.lines] == [
        ([[25, 15]], class_color(0)),
        ([[35, 25]], "none"),
    ]
    drawn = burn_predictions(image, found, QUIET)
    assert drawn[:, 15, 25].tolist() == list(rgb(class_color(0)))
    assert drawn[:, 25, 35].tolist() == [40, 40, 40]


def test_the_task_is_told_from_what_is_predicted():
    assert task_of(one()) == "detect"
    assert task_of(one(masks=square(slice(0, 1), slice(0, 1)))) == "segment"
    assert task_of(one(keypoints=torch.zeros(1, 2, 3))) == "pose"
    assert task_of(one(rboxes=torch.zeros(1, 5))) == "obb"
