"""Real-time detectors: network, assignment, losses, decoding, prediction."""

from lucid_models.counting import Count, count
from lucid_models.deploy import Deployed, deployed, fuse
from lucid_models.detector import Detector, build_detector
from lucid_models.heads import BranchOutput, HeadOutput
from lucid_models.registry import SIZES, STRIDES, TASKS, SizeSpec, TaskSpec

__all__ = [
    "SIZES",
    "STRIDES",
    "TASKS",
    "BranchOutput",
    "Count",
    "Deployed",
    "Detector",
    "HeadOutput",
    "SizeSpec",
    "TaskSpec",
    "build_detector",
    "count",
    "deployed",
    "fuse",
]
