"""Fixtures shared by this package's tests."""

from collections.abc import Callable

import pytest
import torch

from lucid_models import TASKS, Detector, build_detector


@pytest.fixture(autouse=True)
def _seed() -> None:
    torch.manual_seed(0)


@pytest.fixture
def detector() -> Detector:
    return build_detector("detect", "n", num_classes=3)


def enliven(detector: Detector) -> Detector:
    """Give every BatchNorm statistics and affines that no fresh network has."""
    for module in detector.modules():
        if isinstance(module, torch.nn.BatchNorm2d):
            torch.nn.init.uniform_(module.weight, 0.5, 1.5)
            torch.nn.init.uniform_(module.bias, -0.5, 0.5)
            torch.nn.init.uniform_(module.running_mean, -0.2, 0.2)
            torch.nn.init.uniform_(module.running_var, 0.5, 1.5)
    return detector


@pytest.fixture
def lively(detector: Detector) -> Detector:
    """A detector whose BatchNorm statistics and affines are those of no fresh network."""
    return enliven(detector)


@pytest.fixture
def of_task() -> Callable[[str], Detector]:
    """A function that builds the lively detector of a task: size n, 3 classes, 5 keypoints where there are any."""

    def build(task: str) -> Detector:
        points = None if TASKS[task].num_keypoints is None else 5
        return enliven(build_detector(task, "n", num_classes=3, num_keypoints=points))

    return build
