"""Drawn things are where the numbers say, in the colours promised, and the caller keeps control of matplotlib."""

import math
import subprocess
import sys

import pytest
import torch
from matplotlib.colors import to_hex
from matplotlib.figure import Figure

from lucid_data import Targets, read_image
from lucid_models import Predictions, Predictor, build_detector
from lucid_viz import (
    PALETTE,
    RenderOptions,
    batch_sheet,
    burn_predictions,
    class_color,
    comparison_sheet,
    draw_ground_truth,
    draw_predictions,
    plot_curves,
    predict_and_draw,
    read_metrics,
    save_figure,
    save_image,
    show_image,
)
from lucid_viz.style import rgb, text_color


def labels(*rows, classes=None) -> Targets:
    boxes = torch.tensor(rows, dtype=torch.float32).reshape(-1, 4)
    return Targets.of(boxes, torch.tensor(classes or [0] * len(rows), dtype=torch.int64))


def found(*rows, scores, classes=None, names=("cat", "dog")) -> Predictions:
    boxes = torch.tensor(rows, dtype=torch.float32).reshape(-1, 4)
    return Predictions(
        boxes,
        torch.tensor(scores),
        torch.tensor(classes or [0] * len(rows), dtype=torch.int64),
        names,
        (60, 80),
    )


@pytest.fixture
def image():
    return torch.full((3, 60, 80), 40, dtype=torch.uint8)


@pytest.fixture
def axes():
    return Figure().subplots()


def rectangle(ax, position=0):
    patch = ax.patches[position]
    return patch.get_x(), patch.get_y(), patch.get_x() + patch.get_width(), patch.get_y() + patch.get_height()


def test_labels_are_dashed_unfilled_and_without_scores(axes):
    draw_ground_truth(axes, labels((5, 6, 25, 36)), names=("cat",))
    assert rectangle(axes) == (5, 6, 25, 36)
    assert axes.patches[0].get_linestyle() == "--"
    assert not axes.patches[0].get_fill()
    assert [text.get_text() for text in axes.texts] == ["cat"]


def test_predictions_are_solid_with_class_and_score(axes):
    draw_predictions(axes, found((5, 6, 25, 36), scores=[0.876], classes=[1]))
    assert rectangle(axes) == (5, 6, 25, 36)
    assert axes.patches[0].get_linestyle() == "-"
    assert [text.get_text() for text in axes.texts] == ["dog 0.88"]


def test_predictions_at_or_below_the_confidence_are_left_out(axes):
    draw_predictions(
        axes, found((0, 0, 9, 9), (1, 1, 8, 8), scores=[0.5, 0.25]), RenderOptions(confidence=0.25)
    )
    assert len(axes.patches) == 1


@pytest.mark.parametrize("name", [r"price $\frac3$", "$x_1$", "a_b^c$"])
def test_class_names_are_text_and_not_mathematics(axes, image, name, tmp_path):
    show_image(axes, image)
    draw_predictions(axes, found([10, 20, 30, 40], scores=[0.5], names=(name,)))
    draw_ground_truth(axes, labels([10, 20, 30, 40]), names=[name])
    save_figure(axes.figure, tmp_path / "drawn.png")
    assert not any(text.get_parse_math() for text in axes.texts)


def test_a_class_has_one_colour_in_every_drawing(axes):
    draw_ground_truth(axes, labels((0, 0, 9, 9), classes=[1]))
    draw_predictions(axes, found((0, 0, 9, 9), scores=[0.9], classes=[1]))
    colors = {to_hex(patch.get_edgecolor()).upper() for patch in axes.patches}
    assert colors == {class_color(1).upper()}
    assert class_color(1) == class_color(11)


def test_the_palette_keeps_its_hues_apart_for_dichromats():
    """Simulated protanopia and deuteranopia (Viénot et al. 1999) leave every pair of hues at a distance."""
    simulations = (
        ((0.11238, 0.88762, 0.0), (0.11238, 0.88762, 0.0), (0.00401, -0.00401, 1.0)),
        ((0.29275, 0.70725, 0.0), (0.29275, 0.70725, 0.0), (-0.02234, 0.02234, 1.0)),
    )
    for matrix in simulations:
        seen = [
            [
                sum(weight * (value / 255) ** 2.2 for weight, value in zip(row, rgb(color), strict=True))
                for row in matrix
            ]
            for color in PALETTE
        ]
        for first in range(len(seen)):
            for second in range(first):
                distance = math.dist(
                    [abs(v) ** (1 / 2.2) for v in seen[first]], [abs(v) ** (1 / 2.2) for v in seen[second]]
                )
                assert distance > 0.05, (PALETTE[first], PALETTE[second])


def test_text_reads_on_every_class_colour():
    for color in PALETTE:
        assert text_color(color) in ("#000000", "#FFFFFF")
    assert text_color("#F0E442") == "#000000"
    assert text_color("#0072B2") == "#FFFFFF"


def test_images_are_shown_in_the_edge_frame(axes, image):
    show_image(axes, image)
    assert axes.get_xlim() == (0, 80)
    assert axes.get_ylim() == (60, 0)
    with pytest.raises(ValueError, match="give \\(3, H, W\\)"):
        show_image(axes, image[:1])


def test_an_unknown_task_is_refused(axes):
    with pytest.raises(ValueError, match="choose: detect, segment, pose, obb"):
        draw_ground_truth(axes, labels((0, 0, 1, 1)), "boxes")


def test_burned_boxes_cover_their_edge_pixels_and_leave_the_rest(image):
    options = RenderOptions(show_labels=False)
    drawn = burn_predictions(image, found((10, 20, 40, 50), scores=[0.9]), options)
    color = torch.tensor(rgb(class_color(0)), dtype=torch.uint8)
    for row, column in ((20, 10), (20, 39), (49, 10), (49, 39)):
        assert torch.equal(drawn[:, row, column], color)
    for row, column in ((19, 9), (50, 40), (35, 25)):
        assert torch.equal(drawn[:, row, column], image[:, row, column])
    assert image.unique().tolist() == [40]


def test_burning_nothing_returns_an_equal_copy(image):
    drawn = burn_predictions(image, found(scores=[]), RenderOptions(show_labels=False))
    assert torch.equal(drawn, image)
    assert drawn.data_ptr() != image.data_ptr()


@pytest.mark.parametrize("suffix", [".png", ".jpg"])
def test_red_stays_red_on_disk(tmp_path, suffix):
    red = torch.zeros(3, 16, 16, dtype=torch.uint8)
    red[0] = 255
    save_image(red, tmp_path / f"red{suffix}")
    back = read_image(tmp_path / f"red{suffix}").float().mean((1, 2))
    assert back[0] > 250
    assert back[1:].max() < 5
    assert not list(tmp_path.glob("*.tmp"))


def test_unknown_suffixes_are_refused(image, tmp_path):
    with pytest.raises(ValueError, match="unknown image suffix"):
        save_image(image, tmp_path / "a.xyz")
    with pytest.raises(ValueError, match="unknown picture format"):
        save_figure(Figure(), tmp_path / "a.xyz")
    assert list(tmp_path.iterdir()) == []


def test_sheets_have_a_cell_per_image_and_blank_the_rest(image):
    figure = batch_sheet([image] * 5, [labels((1, 1, 9, 9))] * 5, ("cat",))
    assert len(figure.axes) == 8
    assert [len(ax.images) for ax in figure.axes] == [1] * 5 + [0] * 3
    with pytest.raises(ValueError, match="as many of each"):
        batch_sheet([image], [], ("cat",))


def test_comparison_puts_labels_left_and_predictions_right(image):
    figure = comparison_sheet([image], [found((1, 1, 9, 9), scores=[0.9])], [labels((2, 2, 9, 9))])
    left, right = figure.axes
    assert rectangle(left) == (2, 2, 9, 9)
    assert rectangle(right) == (1, 1, 9, 9)
    assert (left.get_title(), right.get_title()) == ("labels", "predictions")


def test_predict_and_draw_returns_what_it_drew(axes, image):
    predictor = Predictor(build_detector("detect", "n", num_classes=2), image_size=64, confidence=0.0)
    predictions = predict_and_draw(predictor, image, RenderOptions(confidence=0.0), axes=axes)
    assert len(axes.patches) == int((predictions.scores > 0).sum())


@pytest.mark.parametrize(
    ("terms", "scale", "drawn"),
    [
        (["mask", "semantic"], "linear", ["train/mask", "val/mask", "train/semantic", "val/semantic"]),
        (["rle", "oks"], "linear", ["train/rle", "val/rle", "train/oks", "val/oks"]),
        (["angle"], "log", ["train/o2o_box", "train/o2o_l1", "train/angle", "val/angle"]),
    ],
)
def test_the_terms_of_a_task_have_a_panel_of_their_own(terms, scale, drawn):
    names = ["loss", "o2m_box", "o2o_box", "o2o_l1", *terms]
    figure = plot_curves(
        {"epoch": [0, 1]} | {f"{side}/{n}": [3.0, 2.0] for side in ("train", "val") for n in names}
    )
    assert [line.get_label() for line in figure.axes[3].get_lines()] == drawn
    assert figure.axes[3].get_yscale() == scale
    assert [line.get_label() for line in figure.axes[2].get_lines()] == ["train/o2o_box", "train/o2o_l1"]


def test_a_likelihood_below_zero_is_inside_its_panel():
    ax = plot_curves({"epoch": [0, 1], "train/rle": [2.0, -1.5], "val/rle": [1.0, 0.5]}).axes[3]
    assert ax.get_ylim()[0] < -1.5


def test_a_total_below_zero_is_drawn():
    ax = plot_curves({"epoch": [0, 1, 2], "train/loss": [30.0, 0.5, -2.0]}).axes[1]
    assert list(ax.lines[0].get_ydata()) == [30.0, 0.5, -2.0]
    assert ax.get_ylim()[0] < -2.0
    assert plot_curves({"epoch": [0, 1], "train/loss": [30.0, 0.5]}).axes[1].get_yscale() == "log"


def test_one_value_beyond_all_bounds_does_not_flatten_the_others():
    ax = plot_curves(
        {"epoch": [0, 1, 2, 3], "train/rle": [4.0, 3.0, 2.0, 1.0], "val/rle": [1e11, 3.0, 2.0, 2.0]}
    ).axes[3]
    assert ax.get_ylim() == pytest.approx((0.0, 4.2))


def test_a_score_that_was_tiny_for_long_is_inside_its_panel():
    ax = plot_curves({"epoch": list(range(6)), "val/mAP": [0.0, 0.0, 1e-7, 1e-6, 1e-6, 0.5]}).axes[0]
    assert ax.get_ylim()[1] > 0.5


def test_epochs_are_whole_numbers():
    ax = plot_curves({"epoch": [0, 1], "val/mAP": [0.1, 0.2]}).axes[0]
    assert all(float(tick).is_integer() for tick in ax.get_xticks())


def test_a_run_without_terms_of_its_task_has_three_panels():
    assert len(plot_curves({"epoch": [0], "train/o2o_box": [1.0], "train/loss": [1.0]}).axes) == 3


def test_curves_show_what_was_logged_and_say_what_was_not():
    figure = plot_curves({"epoch": [0, 1], "val/mAP": [0.1, 0.2], "val/mAP50": [math.nan, 0.5]}, mark_epoch=1)
    first, second, third = figure.axes
    assert [line.get_label() for line in first.lines[:2]] == ["val/mAP", "val/mAP50"]
    assert list(first.lines[1].get_xdata()) == [2]  # counted from 1, as on the console
    assert "not logged" in [text.get_text() for text in second.texts]
    assert "not logged" in [text.get_text() for text in third.texts]


def test_legends_of_curves_are_words_and_name_the_dotted_line():
    names = [
        "val/mAP",
        "val/segm_mAP50",
        "val/nms_mAP",
        "train/loss",
        "val/loss",
        "train/o2o_l1",
        "train/angle",
    ]
    figure = plot_curves({"epoch": [0, 1, 2]} | {name: [3.0, 2.0, 1.0] for name in names}, mark_epoch=1)
    legends = [[text.get_text() for text in ax.get_legend().get_texts()] for ax in figure.axes]
    assert legends == [
        ["box AP50-95", "mask AP50", "box AP50-95 after suppression", "mosaic ends"],
        ["training", "validation", "mosaic ends"],
        ["box distance, training", "mosaic ends"],
        ["box distance, training", "angle, training", "mosaic ends"],
    ]
    # the table's epoch 1 is the second one
    assert {tuple(ax.lines[-1].get_xdata()) for ax in figure.axes} == {(2, 2)}


@pytest.mark.parametrize(("first_without", "lines"), [(2, 1), (3, 0)])
def test_mosaic_that_did_not_end_before_the_run_stopped_is_not_marked(first_without, lines):
    """The last epoch of three is the table's epoch 2."""
    (ax, *_) = plot_curves({"epoch": [0, 1, 2], "val/mAP": [0.1, 0.2, 0.3]}, mark_epoch=first_without).axes
    assert len([line for line in ax.lines if line.get_label() == "mosaic ends"]) == lines


def test_metrics_tables_are_read_and_faults_named(tmp_path):
    with pytest.raises(FileNotFoundError, match="no metrics table"):
        read_metrics(tmp_path)
    table = tmp_path / "metrics.csv"
    table.write_text("epoch,val/mAP\n")
    with pytest.raises(ValueError, match="no finished epoch"):
        read_metrics(tmp_path)
    table.write_text("epoch,val/mAP\n0,\n1,x\n")
    with pytest.raises(ValueError, match="val/mAP"):
        read_metrics(table)
    table.write_text("epoch,val/mAP\n0,\n1,0.5\n")
    columns = read_metrics(tmp_path)
    assert columns["epoch"] == [0, 1]
    assert math.isnan(columns["val/mAP"][0])


@pytest.mark.parametrize("row", ["1,2,3", "1"])
def test_a_ragged_metrics_table_is_named_with_its_line(tmp_path, row):
    (tmp_path / "metrics.csv").write_text(f"epoch,val/mAP\n0,0.5\n{row}\n")
    with pytest.raises(ValueError, match=r"metrics.csv:3: \d cells? under 2 column names") as caught:
        read_metrics(tmp_path)
    assert "\n" not in str(caught.value)


def test_a_picture_that_cannot_take_its_place_leaves_nothing(image, tmp_path):
    (tmp_path / "taken.png").mkdir()
    with pytest.raises(OSError, match=r"taken.png"):
        save_image(image, tmp_path / "taken.png")
    with pytest.raises(OSError, match=r"taken.png"):
        save_figure(Figure(), tmp_path / "taken.png")
    assert [entry.name for entry in tmp_path.iterdir()] == ["taken.png"]


def test_confidence_out_of_range_is_refused():
    with pytest.raises(ValueError, match=r"confidence = 1\.5"):
        RenderOptions(confidence=1.5)


def test_no_back_end_is_chosen():
    code = "import lucid_viz, matplotlib, sys; assert 'matplotlib.pyplot' not in sys.modules"
    assert subprocess.run([sys.executable, "-c", code]).returncode == 0
