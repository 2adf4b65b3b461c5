"""Loss and AP curves of a run."""

import csv
import math
import statistics
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.ticker import MaxNLocator

from lucid_viz.style import PALETTE

Columns = Mapping[str, Sequence[float]]

# one hue per series, dark enough on white: the palette's yellow is for images
_HUES = (0, 8, 2, 7, 5, 4)
_TOTALS = ("train/loss", "val/loss")
_PARTS, _OTHER_BRANCH = "train/o2o_", "train/o2m_"
_SIDES = {"train": "training", "val": "validation"}
_TERMS = {
    "o2o_box": "box overlap",
    "o2o_cls": "class",
    "o2o_l1": "box distance",
    "mask": "mask",
    "semantic": "mask of a class",
    "rle": "likelihood of points",
    "oks": "distance of points",
    "visibility": "visibility of points",
    "angle": "angle",
}
_SCORES = {"": "box ", "segm_": "mask ", "oks_": "keypoint ", "rotated_": "rotated "}


def read_metrics(path: str | Path) -> dict[str, list[float]]:
    """Return the columns of a run's ``metrics.csv``; empty cells are NaN.

    Args:
        path: the file, or the folder of a run.

    Raises:
        FileNotFoundError: no such table.
        ValueError: a table without rows, with a row of another length than its header, or with a cell that is no
            number.
    """
    path = Path(path)
    path = path / "metrics.csv" if path.is_dir() else path
    if not path.is_file():
        raise FileNotFoundError(f"{path}: no metrics table; give a run's folder or its metrics.csv")
    with path.open(newline="", encoding="utf-8") as stream:
        reader = csv.reader(stream)
        lines = [(reader.line_num, cells) for cells in reader if cells]
    if len(lines) < 2:
        raise ValueError(f"{path}: no finished epoch yet")
    (_, header), *rows = lines
    for number, cells in rows:
        if len(cells) != len(header):
            raise ValueError(
                f"{path}:{number}: {len(cells)} cells under {len(header)} column names; correct or remove the row"
            )
    columns: dict[str, list[float]] = {}
    for position, name in enumerate(header):
        try:
            columns[name] = [
                float(cells[position]) if cells[position] != "" else math.nan for _, cells in rows
            ]
        except ValueError as error:
            raise ValueError(
                f"{path}: column {name!r} holds something that is no number ({error})"
            ) from error
    return columns


def plot_curves(metrics: Columns | str | Path, mark_epoch: int | None = None) -> Figure:
    """Return an open figure of a run's curves: AP, total loss, one-to-one parts and, where there are any, task terms.

    Args:
        metrics: columns by name, or where :func:`read_metrics` finds them.
        mark_epoch: the first epoch without mosaic, counted from 0 as in the table: a dotted line, named in the legend,
            once the run has got there.

    Epochs are counted from 1 on the axis, as on the console. Losses are on log axes. The terms of masks and keypoints
    are on a linear one, in training and validation; the angle is beside the rotated overlap and distance that it
    belongs to. A panel says "not logged" where its columns are missing.
    """
    columns = read_metrics(metrics) if isinstance(metrics, str | Path) else metrics
    scores = [name for name in columns if name.startswith("val/") and "mAP" in name]
    parts = [name for name in columns if name.startswith(_PARTS)]
    known = ("train/loss", _PARTS, _OTHER_BRANCH)
    terms = [name for name in columns if name.startswith("train/") and not name.startswith(known)]
    figure = Figure(figsize=(4.5 * (4 if terms else 3), 3.9), layout="constrained")
    panels: Any = figure.subplots(1, 4 if terms else 3)
    _panel(panels[0], columns, scores[: len(_HUES)], "average precision (end-to-end)", log=False)
    _panel(panels[1], columns, _TOTALS, "loss", log=True)
    _panel(panels[2], columns, parts[: len(_HUES)], "one-to-one parts", log=True)
    if "train/angle" in terms:
        turned = [f"{_PARTS}box", f"{_PARTS}l1", "train/angle", "val/angle"]
        _panel(panels[3], columns, turned, "rotated overlap, distance and angle", log=True)
    elif terms:
        both = [side + name.removeprefix("train/") for name in terms for side in ("train/", "val/")]
        _panel(panels[3], columns, both[: len(_HUES)], "terms of the task", log=False)
    for ax in panels:
        if not (lines := ax.get_lines()):
            continue
        if mark_epoch is not None and mark_epoch <= columns["epoch"][-1]:
            mark = ax.axvline(mark_epoch + 1, color="0.4", linewidth=1.0, linestyle=":", label="mosaic ends")
            lines = [*lines, mark]
        ax.legend(lines, [_readable(line.get_label()) for line in lines], fontsize=8, frameon=False)
    return figure


def _readable(column: str) -> str:
    """Return the words for a column in a legend: 'box AP50', 'angle, training'; any other name as it is."""
    side, _, term = column.partition("/")
    if side not in _SIDES:
        return column
    if term == "loss":
        return _SIDES[side]
    if "mAP" in term:
        kind, _, overlap = term.removeprefix("nms_").partition("mAP")
        after = " after suppression" if term.startswith("nms_") else ""
        return f"{_SCORES.get(kind, kind)}AP{overlap or '50-95'}{after}"
    return f"{_TERMS.get(term, term)}, {_SIDES[side]}"


def _panel(ax: Axes, columns: Columns, names: Sequence[str], title: str, *, log: bool) -> None:
    ax.set_title(title)
    ax.set_xlabel("epoch")
    ax.xaxis.set_major_locator(MaxNLocator(integer=True, min_n_ticks=1))
    epochs = columns.get("epoch", [])
    drawn: list[float] = []
    for position, name in enumerate(names):
        points = [
            (epoch + 1, value)
            for epoch, value in zip(epochs, columns.get(name, []), strict=False)
            if math.isfinite(value)
        ]
        if not points:
            continue
        drawn += [value for _, value in points]
        color = PALETTE[_HUES[position]]
        ax.plot(*zip(*points, strict=True), color=color, label=name, marker="." if len(points) < 40 else None)
        ax.annotate(
            f"{points[-1][1]:.3g}",
            points[-1],
            xytext=(4, 0),
            textcoords="offset points",
            color=color,
            fontsize=8,
        )
    if not drawn:
        ax.text(0.5, 0.5, "not logged", ha="center", va="center", transform=ax.transAxes, color="0.5")
        return
    # a likelihood, and so the total of a pose run, may be below zero
    if log and min(drawn) > 0:
        ax.set_yscale("log")
    elif log:
        ax.set_yscale("symlog", linthresh=0.1)
    else:
        # the first validation of a run may be beyond all bounds, which a score never is
        bound = max(100.0, 50 * statistics.median(map(abs, drawn)))
        usual = [value for value in drawn if abs(value) <= bound] or drawn
        low, high = min(0.0, min(usual)), max(usual)
        ax.set_ylim(low - 0.05 * (high - low) * (low < 0), high + 0.05 * (high - low) or None)
    # from the first epoch, which is 1, and with room for the last value to the right of its point
    first, last = epochs[0] + 1, epochs[-1] + 1
    ax.set_xlim(first - 0.5, last + 0.5 + 0.12 * (last - first))
    ax.grid(alpha=0.25)
