"""Curves, overlays and sheets for lucid detectors. No matplotlib back-end is chosen; figures come back open."""

from lucid_viz.curves import plot_curves, read_metrics
from lucid_viz.enlarging import enlarge
from lucid_viz.files import save_figure, save_image
from lucid_viz.overlay import (
    batch_sheet,
    comparison_sheet,
    draw_predictions,
    predict_and_draw,
    show_image,
    show_predictions,
)
from lucid_viz.raster import burn_predictions
from lucid_viz.report import ReportFigure, ReportSection, ReportTable, report
from lucid_viz.scaling import plot_scaling
from lucid_viz.scores import plot_confusion, plot_precision_recall, plot_stats
from lucid_viz.skeletons import COCO_PERSON, skeleton_of
from lucid_viz.style import PALETTE, RenderOptions, class_color
from lucid_viz.truth import draw_ground_truth
from lucid_viz.words import nothing_above

__all__ = [
    "COCO_PERSON",
    "PALETTE",
    "RenderOptions",
    "ReportFigure",
    "ReportSection",
    "ReportTable",
    "batch_sheet",
    "burn_predictions",
    "class_color",
    "comparison_sheet",
    "draw_ground_truth",
    "draw_predictions",
    "enlarge",
    "nothing_above",
    "plot_confusion",
    "plot_curves",
    "plot_precision_recall",
    "plot_scaling",
    "plot_stats",
    "predict_and_draw",
    "read_metrics",
    "report",
    "save_figure",
    "save_image",
    "show_image",
    "show_predictions",
    "skeleton_of",
]
