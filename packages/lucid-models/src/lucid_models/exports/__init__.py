"""Exported files: writing them, running them, and holding them to the detector they came from."""

from lucid_models.exports.exporting import export
from lucid_models.exports.formats import FORMATS
from lucid_models.exports.info import ExportInfo
from lucid_models.exports.parity import Parity, parity
from lucid_models.exports.predictor import ExportedPredictor

__all__ = ["FORMATS", "ExportInfo", "ExportedPredictor", "Parity", "export", "parity"]
