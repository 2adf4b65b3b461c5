"""What a region asks of whatever records and replays for it."""

from __future__ import annotations

from collections.abc import Callable, Hashable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Protocol

import torch
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
    """Records work on tensors of one kind of device.

    ``generators`` are the random generators, besides the default ones, that recorded work may draw from.
    """

    stats: BackendStats
    generators: tuple[torch.Generator, ...]

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
        """Return whether a recording is under way, of this back-end or another."""

    def stream(self) -> Hashable:
        """Return an identifier of the stream that work is submitted to now."""


class RefusingBackend:
    """The back-end of a region that nobody asked to replay: it refuses every tensor, so all calls are native.

    >>> RefusingBackend().refusal([])
    'no recording back-end was chosen'
    """

    def __init__(self) -> None:
        self.stats = BackendStats()
        self.generators: tuple[torch.Generator, ...] = ()

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
        """Return whether some back-end is recording."""
        return capture_under_way()

    def stream(self) -> Hashable:
        """Return 0, the only stream."""
        return 0


_captures: list[str] = []


@contextmanager
def capturing(what: str) -> Iterator[None]:
    """Mark a recording as under way in this process; CaptureError when one is already: they do not nest."""
    if _captures:
        raise CaptureError(f"{what} cannot begin inside {_captures[-1]}; recordings do not nest")
    _captures.append(what)
    try:
        yield
    finally:
        _captures.pop()


def capture_under_way() -> bool:
    """Return whether any back-end of this process is recording."""
    return bool(_captures)


def by_dtype(tensors: Sequence[Tensor]) -> list[list[int]]:
    """Return the indices of ``tensors`` in groups of one dtype, for one foreach launch each.

    >>> by_dtype([torch.zeros(1), torch.zeros(1).long(), torch.zeros(1)])
    [[0, 2], [1]]
    """
    groups: dict[torch.dtype, list[int]] = {}
    for index, tensor in enumerate(tensors):
        groups.setdefault(tensor.dtype, []).append(index)
    return list(groups.values())


def gradients(
    outputs: Sequence[Tensor], grads: Sequence[Tensor | None], targets: Sequence[Tensor], keep: bool = False
) -> list[Tensor | None]:
    """Return the gradient of every target, None where none is wanted or none arrives."""
    roots = [(o, g) for o, g in zip(outputs, grads, strict=True) if g is not None]
    wanted = [t for t in targets if t.requires_grad]
    if not roots or not wanted:
        return [None] * len(targets)
    found = iter(
        torch.autograd.grad(
            [o for o, _ in roots], wanted, [g for _, g in roots], retain_graph=keep, allow_unused=True
        )
    )
    return [next(found) if t.requires_grad else None for t in targets]


def zeros_where_differentiable(outputs: Sequence[Tensor]) -> tuple[Tensor | None, ...]:
    """Return a zero gradient per output, None for an output that requires none."""
    return tuple(torch.zeros_like(o).detach() if o.requires_grad else None for o in outputs)
