"""Lines show on any background, and parts that do not belong together are refused."""

from dataclasses import replace

import pytest
import torch
from matplotlib.figure import Figure

from lucid_models import Predictions
from lucid_viz import (
    PALETTE,
    RenderOptions,
    burn_predictions,
    comparison_sheet,
    draw_ground_truth,
    draw_predictions,
    enlarge,
    save_figure,
    save_image,
    show_image,
)
from lucid_viz.marks import highest
from lucid_viz.style import casing, luminance, rgb

BOX = Predictions(
    torch.tensor([[10.0, 12.0, 50.0, 52.0]]), torch.tensor([0.9]), torch.tensor([0]), ("a",), (60, 80)
)


@pytest.mark.parametrize("color", PALETTE)
def test_a_line_and_its_edge_differ_from_every_grey(color):
    """Contrast ratio of WCAG 2.2; black and white alone would reach 4.58 on the worst grey, one hue alone 1."""

    def ratio(one, other):
        return (max(one, other) + 0.05) / (min(one, other) + 0.05)

    both = luminance(color), luminance(casing(color))
    assert min(max(ratio(one, grey / 255) for one in both) for grey in range(256)) > 2.1


def test_luminance_is_that_of_the_standard():
    assert luminance("#000000") == 0
    assert luminance("#808080") == pytest.approx(0.2158605, abs=1e-6)  # published value of sRGB's middle grey


def test_burned_outlines_have_an_inner_edge_and_stay_in_their_box():
    image = torch.full((3, 60, 80), 230, dtype=torch.uint8)
    drawn = burn_predictions(image, BOX, RenderOptions(show_labels=False))
    assert drawn[:, 30, 10].tolist() == list(rgb(PALETTE[0]))
    assert drawn[:, 30, 12].float().mean() < 100
    assert torch.equal(drawn[:, 30, 9], image[:, 30, 9])
    assert torch.equal(drawn[:, 30, 50], image[:, 30, 50])


def test_captions_of_oriented_boxes_stand_at_the_highest_corner():
    axes = Figure().subplots()
    turned = replace(BOX, rboxes=torch.tensor([[30.0, 32.0, 40.0, 10.0, 0.5]]))
    draw_predictions(axes, turned)
    (patch,), (text,) = axes.patches, axes.texts
    top = min(patch.get_xy().tolist(), key=lambda corner: corner[1])
    assert text.get_position() == pytest.approx(tuple(top))
    assert highest([[4, 9], [7, 1], [2, 1]]) == [2, 1]


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"masks": torch.zeros(2, 60, 80, dtype=torch.bool)}, "masks"),
        ({"masks": torch.zeros(1, 30, 40, dtype=torch.bool)}, "masks"),
        ({"rboxes": torch.zeros(1, 4)}, "rboxes"),
        ({"keypoints": torch.zeros(2, 3, 3)}, "keypoints"),
        ({"keypoints": torch.zeros(1, 3, 2)}, "keypoints"),
        ({"labels": torch.zeros(2, dtype=torch.int64)}, "labels"),
        ({"boxes": torch.zeros(1, 5)}, "boxes"),
    ],
)
def test_parts_that_do_not_fit_are_refused(change, message):
    image = torch.zeros(3, 60, 80, dtype=torch.uint8)
    for draw in (lambda p: draw_predictions(Figure().subplots(), p), lambda p: burn_predictions(image, p)):
        with pytest.raises(ValueError, match=rf"predictions\.{message} of shape"):
            draw(replace(BOX, **change))


@pytest.mark.parametrize("draw", [burn_predictions, enlarge, lambda i, p: comparison_sheet([i], [p])])
def test_predictions_of_another_image_are_refused(draw):
    with pytest.raises(ValueError, match=r"image of \(50, 80\)"):
        draw(torch.zeros(3, 50, 80, dtype=torch.uint8), BOX)


@pytest.mark.parametrize(
    "image",
    [
        torch.zeros(3, 60, 80),
        torch.zeros(1, 60, 80, dtype=torch.uint8),
        torch.zeros(3, 80, dtype=torch.uint8),
        torch.zeros(3, 0, 80, dtype=torch.uint8),
    ],
    ids=["float", "grey", "flat", "empty"],
)
@pytest.mark.parametrize(
    "draw",
    [
        lambda image, _: show_image(Figure().subplots(), image),
        lambda image, _: burn_predictions(image, BOX),
        lambda image, _: enlarge(image, BOX),
        lambda image, folder: save_image(image, folder / "new" / "a.png"),
    ],
    ids=["show", "burn", "enlarge", "save"],
)
def test_what_is_no_image_is_refused(draw, image, tmp_path):
    with pytest.raises(ValueError, match=r"image of shape .*: give \(3, H, W\), uint8 RGB"):
        draw(image, tmp_path)
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize(
    ("name", "written"),
    [
        ("two\nlines", "two lines"),
        (" a\r\n\tb ", "a b"),
        ("a\x85b", "a b"),
        ("\x1b[31mred\x00", "[31mred"),
        ("a\u2028b", "a b"),
        ("half \udcff", "half"),
        ("na\u200cme", "na\u200cme"),
        ("", "0"),
        (" \n", "0"),
    ],
)
def test_a_class_name_may_hold_anything_and_is_one_line(name, written, tmp_path):
    named = replace(BOX, names=(name, "other"))
    burn_predictions(torch.zeros(3, 60, 80, dtype=torch.uint8), named)
    figure = comparison_sheet([torch.zeros(3, 60, 80, dtype=torch.uint8)], [named])
    save_figure(figure, tmp_path / "drawn.png", dpi=20)
    assert figure.axes[0].texts[0].get_text() == f"{written} 0.90"


@pytest.mark.parametrize("name", ["box_width", "truth_width", "font_size", "bone_width"])
def test_widths_are_above_zero(name):
    with pytest.raises(ValueError, match=f"{name} = 0"):
        RenderOptions(**{name: 0})


def test_labels_of_every_task_are_unfilled():
    from lucid_data import synthetic

    for task in ("detect", "segment", "pose", "obb"):
        axes = Figure().subplots()
        _, targets = synthetic.scene(seed=3, size=96, task=task)
        draw_ground_truth(axes, targets, task, synthetic.class_names(task))
        assert axes.patches, task
        assert not any(patch.get_fill() for patch in axes.patches), task
        assert not any("0." in text.get_text() for text in axes.texts), task
