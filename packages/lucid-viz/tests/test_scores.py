"""Score and data set figures show the numbers they are given."""

from dataclasses import replace

import numpy as np

from lucid_data import ConfusionMatrix, Curves, Stats, open_catalog, stats, synthetic
from lucid_viz import plot_confusion, plot_precision_recall, plot_stats, save_figure


def curves(classes: int) -> Curves:
    recall = np.linspace(0, 1, 101)
    precision = np.broadcast_to((recall <= 0.5).astype(float)[None, :, None], (2, 101, classes)).copy()
    precision[:, :, 0] = -1.0  # a class without objects
    return Curves(recall, precision, precision, np.array([0.5, 0.75]), tuple(f"c{i}" for i in range(classes)))


def test_the_legend_states_average_precision_over_scored_classes():
    figure = plot_precision_recall(curves(3))
    left, right = figure.axes
    # 51 of 101 recalls have precision one
    assert [text.get_text() for text in left.get_legend().get_texts()] == ["0.50: 0.505", "0.75: 0.505"]
    assert [text.get_text() for text in right.get_legend().get_texts()] == ["c1 0.505", "c2 0.505"]
    titles = [ax.get_legend().get_title().get_text() for ax in (left, right)]
    assert titles == ["overlap: mean AP", "class, AP"]


def test_names_of_classes_are_text_on_one_line(tmp_path):
    names = ("a", "two\nlines \udcff", r"$\frac3$")
    plain = ["two lines", r"$\frac3$"]
    figure = plot_precision_recall(replace(curves(3), class_names=names))
    legend = figure.axes[1].get_legend().get_texts()
    assert [text.get_text() for text in legend] == [f"{name} 0.505" for name in plain]
    save_figure(figure, tmp_path / "curves.png", dpi=20)
    matrix = plot_confusion(ConfusionMatrix(np.eye(4, dtype=np.int64), names)).axes[0]
    assert [tick.get_text() for tick in matrix.get_yticklabels()] == ["a", *plain, "background"]
    counted = Stats(1, 0, 3, dict.fromkeys(names, 1), 1, 1, 1, 0, 0, {}, {"8-16": 3}, {"9 x 9": 1})
    assert [tick.get_text() for tick in plot_stats(counted).axes[0].get_yticklabels()] == ["a", *plain]


def test_many_classes_are_lines_behind_their_mean():
    right = plot_precision_recall(curves(30)).axes[1]
    assert len(right.lines) == 30
    assert [text.get_text() for text in right.get_legend().get_texts()] == ["mean of 29: 0.505"]


def test_nothing_to_score_is_said():
    for ax in plot_precision_recall(curves(1)).axes:
        assert ax.texts[0].get_text() == "nothing to score"


def test_a_confusion_matrix_is_coloured_by_share_of_the_true_class():
    matrix = ConfusionMatrix(np.array([[3, 0, 1], [1, 0, 0], [0, 2, 0]]), ("a", "b"))
    ax = plot_confusion(matrix).axes[0]
    assert ax.images[0].get_array().tolist() == [[0.75, 0, 1], [0.25, 0, 0], [0, 1, 0]]
    assert sorted(text.get_text() for text in ax.texts) == ["1", "1", "2", "3"]
    assert [tick.get_text() for tick in ax.get_xticklabels()] == ["a", "b", "background"]


def test_the_make_up_of_a_data_set_is_drawn_as_counted(tmp_path):
    synthetic.write_coco(tmp_path, splits={"train": 3}, size=64, seed=2)
    counted = stats(open_catalog(tmp_path))
    classes, sides, pictures = plot_stats(counted).axes
    assert sorted(bar.get_width() for bar in classes.patches) == sorted(counted.per_class.values())
    assert [bar.get_width() for bar in sides.patches] == list(counted.box_sides.values())
    assert [bar.get_width() for bar in pictures.patches] == [3]


def test_rows_that_are_left_out_are_counted():
    sizes = {f"{n} x 9": 100 - n for n in range(30)}
    counted = Stats(2565, 0, 3, {"a": 3}, 1, 1, 1, 0, 0, {}, {"8-16": 3}, sizes)
    classes, _, pictures = plot_stats(counted).axes
    assert len(pictures.patches) == 25
    assert pictures.get_xlabel() == f"and 5 more with {75 + 74 + 73 + 72 + 71} together"
    assert classes.get_xlabel() == ""
