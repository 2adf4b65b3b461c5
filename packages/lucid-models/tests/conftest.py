"""Fixtures shared by this package's tests."""

import pytest
import torch

from lucid_models import Detector, build_detector


@pytest.fixture(autouse=True)
def _seed() -> None:
    torch.manual_seed(0)


@pytest.fixture
def detector() -> Detector:
    return build_detector("detect", "n", num_classes=3)


@pytest.fixture
def lively(detector: Detector) -> Detector:
    """A detector whose BatchNorm statistics and affines are those of no fresh network."""
    for module in detector.modules():
        if isinstance(module, torch.nn.BatchNorm2d):
            torch.nn.init.uniform_(module.weight, 0.5, 1.5)
            torch.nn.init.uniform_(module.bias, -0.5, 0.5)
            torch.nn.init.uniform_(module.running_mean, -0.2, 0.2)
            torch.nn.init.uniform_(module.running_var, 0.5, 1.5)
    return detector
