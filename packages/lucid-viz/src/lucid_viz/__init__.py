"""Curves, overlays and sheets for lucid detectors. No matplotlib back-end is chosen; figures come back open."""

from lucid_viz.curves import plot_curves, read_metrics
from lucid_viz.files import save_figure, save_image
from lucid_viz.overlay import (
    batch_sheet,
    comparison_sheet,
    draw_ground_truth,
    draw_predictions,
    predict_and_draw,
    show_image,
    show_predictions,
)
from lucid_viz.raster import burn_predictions
from lucid_viz.style import PALETTE, RenderOptions, class_color

__all__ = [
    "PALETTE",
    "RenderOptions",
    "batch_sheet",
    "burn_predictions",
    "class_color",
    "comparison_sheet",
    "draw_ground_truth",
    "draw_predictions",
    "plot_curves",
    "predict_and_draw",
    "read_metrics",
    "save_figure",
    "save_image",
    "show_image",
    "show_predictions",
]
