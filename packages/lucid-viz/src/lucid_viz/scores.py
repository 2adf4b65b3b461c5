"""What scoring and counting found, drawn: precision against recall, confusions, the make-up of a data set."""

from collections.abc import Mapping
from typing import Any

import numpy as np
from matplotlib.axes import Axes
from matplotlib.figure import Figure

from lucid_data import ConfusionMatrix, Curves, Stats
from lucid_viz.style import PALETTE, class_color
from lucid_viz.words import plain_name

_NAMED = 10
_BARS = 25


def plot_precision_recall(curves: Curves) -> Figure:
    """Return an open figure of precision against recall: by threshold, and at the lowest threshold by class.

    More than ten classes are drawn as thin grey lines behind their mean.
    """
    figure = Figure(figsize=(11, 4.4), layout="constrained")
    panels: Any = figure.subplots(1, 2)
    scored = np.flatnonzero((curves.precision[0] >= 0).all(0))
    thresholds = [
        t for t, value in enumerate(curves.thresholds) if t % 2 == 0 or value == curves.thresholds[-1]
    ]
    for t in thresholds:
        precision = curves.precision[t][:, scored]
        shade = 0.15 + 0.7 * t / max(1, len(curves.thresholds) - 1)
        label = f"{curves.thresholds[t]:.2f}: {precision.mean():.3f}" if len(scored) else "nothing to score"
        if len(scored):
            panels[0].plot(curves.recall, precision.mean(1), color=str(shade), label=label)
    _finish(panels[0], "mean over classes, by overlap threshold", len(scored) > 0, "overlap: mean AP")
    named = len(scored) <= _NAMED
    for c in scored:
        precision = curves.precision[0][:, c]
        style: dict[str, Any] = (
            {
                "color": class_color(int(c)),
                "label": f"{plain_name(curves.class_names[c])} {precision.mean():.3f}",
            }
            if named
            else {"color": "0.8", "linewidth": 0.7}
        )
        panels[1].plot(curves.recall, precision, **style)
    if not named:
        mean = curves.precision[0][:, scored].mean(1)
        panels[1].plot(
            curves.recall, mean, color=PALETTE[8], label=f"mean of {len(scored)}: {mean.mean():.3f}"
        )
    _finish(panels[1], f"by class, at overlap {curves.thresholds[0]:.2f}", len(scored) > 0, "class, AP")
    return figure


def _finish(ax: Axes, title: str, drawn: bool, legend: str) -> None:
    ax.set(title=title, xlabel="recall", ylabel="precision", xlim=(0, 1), ylim=(0, 1.02))
    ax.grid(alpha=0.25)
    if drawn:
        drawn_names = ax.legend(
            title=legend,
            title_fontsize=8,
            alignment="left",
            fontsize=8,
            framealpha=0.85,
            edgecolor="none",
            loc="lower left",
        )
        for text in drawn_names.get_texts():
            text.set_parse_math(False)
    else:
        ax.text(0.5, 0.5, "nothing to score", ha="center", va="center", transform=ax.transAxes, color="0.5")


def plot_confusion(matrix: ConfusionMatrix) -> Figure:
    """Return an open figure of a confusion matrix, coloured by share of the true class."""
    counts = matrix.counts.astype(np.float64)
    shares = counts / np.maximum(counts.sum(0, keepdims=True), 1.0)
    names = [*map(plain_name, matrix.class_names), "background"]
    side = float(np.clip(2.5 + 0.45 * len(names), 4.0, 14.0))
    figure = Figure(figsize=(side + 0.8, side), layout="constrained")
    ax: Any = figure.subplots()
    picture = ax.imshow(shares, cmap="Blues", vmin=0, vmax=1)
    figure.colorbar(picture, ax=ax, label="share of the true class", shrink=0.8)
    ax.set(xlabel="true", ylabel="predicted")
    if len(names) <= 31:
        ax.set_xticks(range(len(names)), names, rotation=90, parse_math=False)
        ax.set_yticks(range(len(names)), names, parse_math=False)
        for (row, column), count in np.ndenumerate(matrix.counts):
            if count:
                dark = shares[row, column] > 0.5
                ax.text(
                    column, row, str(count), ha="center", va="center", fontsize=8, color="w" if dark else "k"
                )
    return figure


def plot_stats(stats: Stats) -> Figure:
    """Return an open figure of a data set's make-up: classes, box sides in octaves, commonest picture sizes."""
    figure = Figure(figsize=(13.5, 4.4), layout="constrained")
    panels: Any = figure.subplots(1, 3)
    classes = dict(sorted(stats.per_class.items(), key=lambda item: -item[1]))
    _bars(panels[0], classes, "objects per class")
    _bars(panels[1], stats.box_sides, "box sides (square root of the area), px")
    _bars(panels[2], stats.image_sizes, "picture sizes, px")
    figure.suptitle(
        f"{stats.images} pictures ({stats.background} without objects), {stats.instances} objects"
    )
    return figure


def _bars(ax: Axes, counts: Mapping[str, int], title: str) -> None:
    shown = dict(list(counts.items())[:_BARS])
    more = len(counts) - len(shown)
    ax.set_title(title)
    places = range(len(shown))
    bars = ax.barh(places, list(shown.values()), color=PALETTE[1])
    ax.bar_label(bars, padding=3, fontsize=8)
    ax.set_yticks(places, [*map(plain_name, shown)], fontsize=8, parse_math=False)
    # the first one on top, and a single bar no wider than others
    ax.set_ylim(max(len(shown), 6) - 0.5, -0.5)
    if more:
        rest = sum(counts.values()) - sum(shown.values())
        ax.set_xlabel(f"and {more} more with {rest} together", fontsize=8)
    ax.margins(x=0.15)
    ax.spines[["top", "right"]].set_visible(False)
