"""The pictures of a run: curves, training batches with their labels, predictions beside labels."""

from pathlib import Path

from lucid_data import collate, epoch_order
from lucid_models import Predictor
from lucid_train import DetectionDataModule, stored_config
from lucid_viz import RenderOptions, batch_sheet, comparison_sheet, plot_curves
from matplotlib.figure import Figure
