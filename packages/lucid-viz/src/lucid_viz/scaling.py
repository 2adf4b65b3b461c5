"""Costs against sizes on two logarithmic axes, each with the power that fits it."""

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
from matplotlib.figure import Figure
from matplotlib.ticker import FuncFormatter, LogLocator, NullFormatter

from lucid_viz.style import PALETTE

_COLUMNS = 3


def plot_scaling(curves: Mapping[str, tuple[Sequence[float], Sequence[float]]]) -> Figure:
    """Return an open figure with one panel per curve: milliseconds by size, and the fitted power as a line.

    Args:
        curves: sizes and milliseconds by title, two or more points each, all of them positive.

    Raises:
        ValueError: no curve, or one of fewer than two points, of unequal lengths or with a number that is not positive.

    Example:
        >>> len(plot_scaling({"a step by batch": ([1, 2, 4, 8], [3.0, 6.1, 11.8, 24.2])}).axes)
        1
    """
    if not curves:
        raise ValueError("nothing to draw; give at least one curve")
    for title, (sizes, costs) in curves.items():
        if len(sizes) != len(costs) or len(sizes) < 2 or min(*sizes, *costs) <= 0:
            raise ValueError(
                f"{title}: need two or more pairs of positive numbers, got {sizes!r} and {costs!r}"
            )
    rows = -(-len(curves) // _COLUMNS)
    columns = min(_COLUMNS, len(curves))
    figure = Figure(figsize=(4.2 * columns, 3.3 * rows), layout="constrained")
    panels: Any = figure.subplots(rows, columns, squeeze=False)
    for ax, (title, (sizes, costs)) in zip(panels.flat, curves.items(), strict=False):
        slope, offset = np.polyfit(np.log(sizes), np.log(costs), 1)
        line = np.geomspace(min(sizes), max(sizes), 50)
        ax.plot(
            line,
            np.exp(offset) * line**slope,
            color="0.6",
            linewidth=1,
            label=f"size to the power {slope:.2f}",
        )
        ax.plot(sizes, costs, color=PALETTE[8], marker="o", linestyle="none")
        for point in zip(sizes, costs, strict=True):
            # the largest size stands at the edge, so its number goes to the left of it
            inward = point[0] == max(sizes)
            ax.annotate(
                _plain(point[1]),
                point,
                xytext=(-6, 3) if inward else (5, -9),
                textcoords="offset points",
                ha="right" if inward else "left",
                fontsize=8,
            )
        # the upright axis spans at least the ratio of the sizes, so that a flat cost looks flat
        half = 1.3 * max(max(sizes) / min(sizes), max(costs) / min(costs)) ** 0.5
        middle = (max(costs) * min(costs)) ** 0.5
        ax.set(title=title, xlabel=title.rpartition(" by ")[2], ylabel="ms", xscale="log", yscale="log")
        ax.set_ylim(middle / half, middle * half)
        ax.set_xticks(list(sizes), [f"{size:g}" for size in sizes])
        ax.xaxis.minorticks_off()
        ax.yaxis.set_major_locator(LogLocator(subs=(1, 2, 5)))
        ax.yaxis.set_major_formatter(FuncFormatter(lambda value, _: _plain(value)))
        ax.yaxis.set_minor_formatter(NullFormatter())
        ax.margins(x=0.14)
        ax.grid(alpha=0.25)
        ax.legend(fontsize=8, frameon=False)
    for ax in panels.flat[len(curves) :]:
        ax.set_axis_off()
    return figure


def _plain(number: float) -> str:
    """Return three significant digits without a power of ten: 0.00123, 45.6, 18,100."""
    if number >= 1000:
        return f"{float(f'{number:.3g}'):,.0f}"
    return np.format_float_positional(number, precision=3, fractional=False, trim="-")
