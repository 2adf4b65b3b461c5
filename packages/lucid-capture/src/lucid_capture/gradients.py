"""Replay as one autograd node whose results and gradients belong to the caller, not to the recording.

A recording writes gradients into buffers that its next launch overwrites. Handing those out lets autograd
install them as ``.grad``, and accumulation over two batches then sums the wrong values (pytorch issue
181723). Here every result and every gradient is copied to fresh memory after its launch, so nothing outside
ever aliases a recording.
"""

from __future__ import annotations

import weakref
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor
from torch.autograd.function import once_differentiable

from lucid_capture.backend import Recording, Work, by_dtype


class Hold:
    """Lives as long as a replay's autograd graph whose backward pass has not run."""


@dataclass
class Launches:
    """How many times recordings were launched."""

    forward: int = 0
    backward: int = 0


class Replayer:
    """Calls a recording with live tensors and owns what comes out.

    ``reach[o][t]`` says whether output o passes gradient to target t (inputs, then parameters): a target
    that no used output reaches gets no gradient at all, as natively, rather than zeros.
    """

    def __init__(self, recording: Recording, reach: Sequence[Sequence[bool]], launches: Launches) -> None:
        self.recording = recording
        self.reach = reach
        self.launches = launches
        self.generation = 0
        self._awaited = False
        self._hold: weakref.ref[Hold] | None = None

    @property
    def held(self) -> bool:
        """Whether a backward pass of the last replay may still come."""
        return self._awaited and self._alive()

    def release(self) -> None:
        """Give up waiting for a backward pass; running it after the next replay raises RuntimeError."""
        self._awaited = False

    def forget(self) -> None:
        """Give the recording's memory up, unless a backward pass may still need it: then with its graph."""
        if not self._alive():
            self.recording.reset()

    def __call__(self, inputs: Sequence[Tensor], parameters: Sequence[Tensor]) -> list[Tensor]:
        """Return owned results of a replay; differentiable when the recording has a backward pass."""
        if not any(g is not None for g in self.recording.output_grads):
            return self.forward(inputs)
        outputs = _Replay.apply(self, len(inputs), *inputs, *parameters)
        return list(outputs)

    @torch.no_grad()
    def forward(self, inputs: Sequence[Tensor]) -> list[Tensor]:
        """Copy the inputs in, launch, and return copies of the results."""
        pairs = zip(self.recording.inputs, inputs, strict=True)
        _copy([(static, live) for static, live in pairs if static.data_ptr() != live.data_ptr()])
        self.recording.launch_forward()
        self.launches.forward += 1
        self.generation += 1
        return _owned(self.recording.outputs)

    def hold(self) -> Hold:
        """Return a token; the region is held until the token dies or the backward pass ran."""
        token = Hold()
        self._hold = weakref.ref(token)
        self._awaited = True
        return token

    def backward(self, generation: int, grads: Sequence[Tensor | None]) -> list[Tensor | None]:
        """Copy the incoming gradients in, launch, and return owned gradients of inputs and parameters."""
        if generation != self.generation:
            raise RuntimeError(
                "backward of an earlier replay: a later replay has overwritten its saved values; "
                "run each backward before the next forward"
            )
        used = [g is not None for g in grads]
        incoming = []
        for static, live in zip(self.recording.output_grads, grads, strict=True):
            if static is not None and live is None:
                static.zero_()
            elif static is not None and live is not None:
                incoming.append((static, live))
        _copy(incoming)
        self.recording.launch_backward()
        self.launches.backward += 1
        self.release()
        found = (*self.recording.input_grads, *self.recording.parameter_grads)
        kept = [
            g
            if g is not None and any(u and row[t] for u, row in zip(used, self.reach, strict=True))
            else None
            for t, g in enumerate(found)
        ]
        fresh = iter(_owned([g for g in kept if g is not None]))
        return [None if g is None else next(fresh) for g in kept]

    def _alive(self) -> bool:
        return self._hold is not None and self._hold() is not None


def reach_of(
    work: Work, inputs: Sequence[Tensor], parameters: Sequence[Tensor]
) -> tuple[tuple[bool, ...], ...]:
    """Return, per output and target, whether a gradient arrives; runs the work once."""
    static = [t.detach().clone().requires_grad_(t.requires_grad) for t in inputs]
    targets = (*static, *parameters)
    wanted = [i for i, t in enumerate(targets) if t.requires_grad]
    rows = []
    with torch.enable_grad():
        for output in work(static):
            arrives = [False] * len(targets)
            if output.requires_grad and wanted:
                found = torch.autograd.grad(
                    output,
                    [targets[i] for i in wanted],
                    torch.zeros_like(output),
                    retain_graph=True,
                    allow_unused=True,
                )
                for i, grad in zip(wanted, found, strict=True):
                    arrives[i] = grad is not None
            rows.append(tuple(arrives))
    return tuple(rows)


class _Replay(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, replayer: Replayer, count: int, *tensors: Tensor) -> tuple[Tensor, ...]:
        outputs = replayer.forward(tensors[:count])
        ctx.set_materialize_grads(False)
        ctx.mark_non_differentiable(
            *(o for o, g in zip(outputs, replayer.recording.output_grads, strict=True) if g is None)
        )
        ctx.replayer, ctx.generation, ctx.hold = replayer, replayer.generation, replayer.hold()
        return tuple(outputs)

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, *grads: Tensor | None) -> tuple[Tensor | None, ...]:
        return (None, None, *ctx.replayer.backward(ctx.generation, grads))


def _owned(tensors: Sequence[Tensor]) -> list[Tensor]:
    """Return copies in fresh memory with the same layout, one launch per dtype."""
    fresh = [torch.empty_like(t) for t in tensors]
    _copy(list(zip(fresh, tensors, strict=True)))
    return fresh


@torch.no_grad()
def _copy(pairs: Sequence[tuple[Tensor, Tensor]]) -> None:
    """Copy the second tensor of every pair into the first, one launch per dtype."""
    for indices in by_dtype([target for target, _ in pairs]):
        torch._foreach_copy_([pairs[i][0] for i in indices], [pairs[i][1] for i in indices])
