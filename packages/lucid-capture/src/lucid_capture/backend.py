"""What a region asks of whatever records and replays for it."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Protocol

from torch import Tensor

Work = Callable[[Sequence[Tensor]], Sequence[Tensor]]


class CaptureError(RuntimeError):
    """The work cannot be recorded; the message names the operation."""


@dataclass
class BackendStats:
    """What a back-end has done so far."""

    records: int = 0
    forward_launches: int = 0
    backward_launches: int = 0
    resets: int = 0
    failures: int = 0


class Recording(Protocol):
    """Fixed buffers and the launches that run between them; nothing here is owned by the caller.

    The caller fills ``inputs``, launches forward and reads ``outputs``; then fills ``output_grads``,
    launches backward and reads ``input_grads`` and ``parameter_grads``. The next launch overwrites what the
    last one wrote. An entry is None where there is no gradient: an output that requires none, an input or
    parameter that none reaches.
    """

    inputs: tuple[Tensor, ...]
    outputs: tuple[Tensor, ...]
    output_grads: tuple[Tensor | None, ...]
    input_grads: tuple[Tensor | None, ...]
    parameter_grads: tuple[Tensor | None, ...]

    def launch_forward(self) -> None:
        """Run the recorded work on ``inputs``."""

    def launch_backward(self) -> None:
        """Run the recorded backward pass of the last forward launch."""

    def owned_bytes(self) -> int:
        """Return how much memory the recording keeps."""

    def reset(self) -> None:
        """Forget the recording and its buffers."""


class RecorderBackend(Protocol):
    """Records work on tensors of one kind of device."""

    stats: BackendStats

    def refusal(self, tensors: Sequence[Tensor]) -> str | None:
        """Return why these tensors cannot take part in a recording, or None when they can."""

    def record(
        self, work: Work, inputs: Sequence[Tensor], parameters: Sequence[Tensor], differentiable: bool
    ) -> Recording:
        """Return a recording of ``work`` on clones of ``inputs``; CaptureError when that is impossible.

        Really runs the work, so buffers and random generators move; the caller puts them back after
        `synchronize`.
        """

    def synchronize(self) -> None:
        """Wait until everything submitted so far has finished."""

    def in_capture(self) -> bool:
        """Return whether a recording is under way."""


class RefusingBackend:
    """The back-end of a region that nobody asked to replay: it refuses every tensor, so all calls are native.

    >>> RefusingBackend().refusal([])
    'no recording back-end was chosen'
    """

    def __init__(self) -> None:
        self.stats = BackendStats()

    def refusal(self, tensors: Sequence[Tensor]) -> str | None:
        """Return the refusal."""
        return "no recording back-end was chosen"

    def record(
        self, work: Work, inputs: Sequence[Tensor], parameters: Sequence[Tensor], differentiable: bool
    ) -> Recording:
        """Raise CaptureError."""
        raise CaptureError("no recording back-end was chosen")

    def synchronize(self) -> None:
        """Return at once: nothing was submitted."""

    def in_capture(self) -> bool:
        """Return False."""
        return False
