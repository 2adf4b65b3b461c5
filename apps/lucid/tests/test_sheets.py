"""Curves are marked where mosaic ends, and drawn from a table alone too."""

import pytest

from lucid_app import plot
from lucid_app.report import _curves
from lucid_app.sheets import mosaic_end
from lucid_train import load_config
from lucid_viz import plot_curves

TABLE = "epoch,val/mAP\n0,0.1\n1,0.2\n"


@pytest.mark.parametrize(
    ("augment", "end"),
    [
        ({"close_mosaic": 3}, 7),
        ({"close_mosaic": 3, "mosaic": 0.5}, 7),
        ({"close_mosaic": 3, "mosaic": 0.0}, None),  # never there
        ({"close_mosaic": 0, "mosaic": 1.0}, None),  # never ends
        ({"mosaic": 1.0}, None),
        ({"close_mosaic": 10, "mosaic": 1.0}, None),  # ended before it began
    ],
)
def test_mosaic_ends_where_there_was_mosaic_before(augment, end):
    settings = {f"augment.{name}": value for name, value in augment.items()}
    assert mosaic_end(load_config("detect", {"run.epochs": 10, **settings})) == end


@pytest.mark.parametrize(
    ("given", "config"),
    [("other/metrics.csv", None), ("other/metrics.csv", "name: other\n"), ("other", "a: [")],
)
def test_a_table_is_drawn_whatever_lies_beside_it(lucid, given, config):
    folder = lucid.folder / "other"
    folder.mkdir()
    (folder / "metrics.csv").write_text(TABLE)
    if config is not None:
        (folder / "config.yaml").write_text(config)
    status, out, err = lucid("plot", given, "--output", "curves.png")
    assert (status, out.strip(), err) == (0, "curves.png", "")


def test_the_table_of_a_run_is_marked_as_the_run_is(lucid, monkeypatch):
    (lucid.folder / "metrics.csv").write_text(TABLE)
    (lucid.folder / "config.yaml").write_text("run: {epochs: 2}\naugment: {close_mosaic: 1}\n")
    marks = []

    def noted(run, mark_epoch):
        marks.append(mark_epoch)
        return plot_curves(run, mark_epoch=mark_epoch)

    monkeypatch.setattr(plot, "plot_curves", noted)
    for given in (".", "metrics.csv"):
        assert lucid("plot", given, "--output", "curves.png")[0] == 0
    assert marks == [1, 1]


@pytest.mark.parametrize("end", [1, 2])
def test_words_below_curves_hold_with_and_without_the_mark(tmp_path, end):
    """A run that stopped early has not got to where mosaic would have ended: the legend names the line it has."""
    (tmp_path / "metrics.csv").write_text(TABLE)
    (figure,) = _curves(tmp_path, end).figures
    assert figure.caption == "Scores and losses by epoch"
    legend = figure.figure.axes[0].get_legend().get_texts()
    assert ("mosaic ends" in [text.get_text() for text in legend]) == (end == 1)
