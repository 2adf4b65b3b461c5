"""Fixtures shared by this package's tests."""

from collections.abc import Callable

import pytest
import torch
from torch import Tensor
from torch.utils._python_dispatch import TorchDispatchMode

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


@pytest.fixture(scope="session")
def enlivening() -> Callable[[Detector], Detector]:
    """The function `enliven`, for fixtures that outlive a test."""
    return enliven


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


HOST_READS = {"_local_scalar_dense", "nonzero", "masked_select", "_unique2", "is_nonzero", "lift_fresh"}


class HostReads(TorchDispatchMode):
    """Collects operations that wait for the device, copy from the host or choose shapes by values."""

    def __init__(self) -> None:
        super().__init__()
        self.seen: list[str] = []

    def __torch_dispatch__(self, func, types, args=(), kwargs=None):  # type: ignore[no-untyped-def]
        name = func.overloadpacket.__name__
        boolean_index = name.startswith("index") and any(
            isinstance(i, Tensor) and i.dtype == torch.bool
            for arg in args
            if isinstance(arg, list | tuple)
            for i in arg
        )
        if name in HOST_READS or boolean_index:
            self.seen.append(name)
        return func(*args, **(kwargs or {}))


@pytest.fixture
def host_reads() -> type[HostReads]:
    """The dispatch mode that collects reads of values by the host in ``seen``."""
    return HostReads
