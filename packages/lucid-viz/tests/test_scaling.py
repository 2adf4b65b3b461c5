"""Curves of costs by size: the power that is named, and numbers that people can read."""

import numpy as np
import pytest

from lucid_viz import plot_scaling

SIZES = [1, 2, 4, 8]


@pytest.mark.parametrize("power", [0.5, 1.0, 2.0])
def test_the_power_that_made_the_costs_is_named_and_drawn(power):
    ax = plot_scaling({"a step by batch": (SIZES, [3.0 * size**power for size in SIZES])}).axes[0]
    line, points = ax.get_lines()
    assert line.get_label() == f"size to the power {power:.2f}"
    np.testing.assert_allclose(line.get_ydata(), 3.0 * line.get_xdata() ** power)
    assert list(points.get_xdata()) == SIZES
    assert (ax.get_xlabel(), ax.get_ylabel()) == ("batch", "ms")


def test_costs_are_written_in_three_digits_without_a_power_of_ten_and_inside_their_panel():
    figure = plot_scaling({"scoring by images": (SIZES, [1.2345, 45.678, 987.65, 18116.7])})
    ax = figure.axes[0]
    assert [text.get_text() for text in ax.texts] == ["1.23", "45.7", "988", "18,100"]
    figure.draw_without_rendering()
    ticks = [text.get_text() for text in ax.get_yticklabels()]
    assert {"1", "10", "200", "50,000"} <= set(ticks)
    frame = ax.get_window_extent()
    assert all(frame.x0 <= text.get_window_extent().x0 <= frame.x1 for text in ax.texts)
    assert all(text.get_window_extent().x1 <= frame.x1 for text in ax.texts)


def test_a_flat_cost_looks_flat():
    low, high = plot_scaling({"a step by objects": ([1, 100], [50.0, 51.0])}).axes[0].get_ylim()
    assert high / low > 100


@pytest.mark.parametrize(
    "curve", [([1], [1.0]), ([1, 2], [1.0]), ([1, 2], [0.0, 1.0]), ([-1, 2], [1.0, 1.0])]
)
def test_what_cannot_be_fitted_is_refused_by_its_title(curve):
    with pytest.raises(ValueError, match="a step by batch: need two or more pairs of positive numbers"):
        plot_scaling({"a step by batch": curve})


def test_nothing_is_refused():
    with pytest.raises(ValueError, match="nothing to draw"):
        plot_scaling({})
