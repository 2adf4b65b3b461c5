"""When a pass of the assignment runs as a kernel, and when as the expressions that define it.

A pass asked for as a kernel stays native where the kernel does not apply, and says so once. What is kept between
calls is whether a pass works here and with which shapes it already ran, because a recording must not be the first
to compile it.
"""

import os
import warnings
from collections.abc import Callable
from importlib import import_module
from typing import TypeVar

import torch
from torch import Tensor

Result = TypeVar("Result", Tensor, tuple[Tensor, Tensor])

_LARGEST_GRID = 65535
_OLDEST_CAPABILITY = (8, 0)
_DTYPES = (torch.float32, torch.int64, torch.bool)


class FusedPass:
    """One pass: ``kernel`` names its launcher in ``lucid_models.kernels.assignment``.

    ``launches`` and ``natives`` count the calls that asked for the kernel by what they got.
    """

    def __init__(self, kernel: str) -> None:
        self.kernel = kernel
        self.launches = 0
        self.natives = 0
        self._off: str | None = None
        self._ready: set[tuple[object, ...]] = set()
        self._told: set[str] = set()

    def __call__(
        self, native: Callable[[], Result], tensors: tuple[Tensor, ...], *numbers: float, rows: Tensor
    ) -> Result:
        """Return what ``native`` returns, by the kernel of ``tensors`` and ``numbers`` where it applies.

        ``rows`` (B, N, ...) has the grid's extents. A pass whose first launch fails is off from then on; an error
        of one that has worked is raised.
        """
        if torch.compiler.is_compiling():
            return native()
        if reason := self._off or _obstacle(tensors, rows):
            return self._natively(native, reason)
        signature = tuple((t.shape, t.stride(), t.dtype, t.device) for t in tensors) + numbers
        device = tensors[0].device
        if (
            device.type == "cuda"
            and torch.cuda.is_current_stream_capturing()
            and signature not in self._ready
        ):
            return self._natively(native, "a recording began before these shapes ran once")
        try:
            launcher = getattr(import_module("lucid_models.kernels.assignment"), self.kernel)
            result: Result = launcher(*tensors, *numbers)
        except Exception as error:
            if self.launches:
                raise
            self._off = f"its first launch failed: {error}".splitlines()[0]
            return self._natively(native, self._off)
        self.launches += 1
        self._ready.add(signature)
        return result

    def _natively(self, native: Callable[[], Result], reason: str) -> Result:
        self.natives += 1
        if reason not in self._told:
            self._told.add(reason)
            warnings.warn(f"fused_assignment: {self.kernel} runs natively: {reason}", stacklevel=4)
        return native()


def _obstacle(tensors: tuple[Tensor, ...], rows: Tensor) -> str | None:
    """Return why the kernels do not apply, or None."""
    device = tensors[0].device
    if not (device.type == "cuda" and torch.version.cuda) and os.environ.get("TRITON_INTERPRET") != "1":
        return f"it needs an NVIDIA device, the tensors are on {device.type}"
    if device.type == "cuda" and torch.cuda.get_device_capability(device) < _OLDEST_CAPABILITY:
        return "the device is older than compute capability 8.0"
    if any(type(t) is not Tensor for t in tensors):
        return "a tensor is of a subclass"
    if wrong := [t.dtype for t in tensors if t.dtype not in _DTYPES]:
        return f"it does not handle {wrong[0]}"
    if max(rows.shape[:2]) > _LARGEST_GRID or max(t.numel() for t in tensors) >= 1 << 31:
        return "the tensors exceed the grid"
    try:
        version = import_module("triton").__version__
    except ModuleNotFoundError:
        return "Triton is not installed; install lucid-models with its extra 'triton'"
    return None if version.startswith("3.") else f"it needs Triton 3, found {version}"


ALIGNMENT = FusedPass("alignment_planes")
CONTAINMENT = FusedPass("contained_points")
SETTLEMENT = FusedPass("settled_claims")
"""The three passes."""
