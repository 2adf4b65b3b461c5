"""A recording back-end on CUDA graphs: forward and backward captured apart, in one shared pool and stream.

Recordings of one back-end may replay in any order between each other's forward and backward passes. What has
to survive between launches (static inputs, results, saved values, gradients) is kept alive by its recording,
so the pool hands only memory of temporaries to several graphs.
"""

from __future__ import annotations

import inspect
from collections.abc import Hashable, Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass, field
from typing import Any

import torch
from torch import Tensor

from lucid_capture.backend import (
    BackendStats,
    CaptureError,
    Work,
    capture_under_way,
    capturing,
    gradients,
    zeros_where_differentiable,
)


@dataclass
class CudaRecording:
    """Two graphs and their fixed buffers; see `lucid_capture.Recording` for the contract."""

    inputs: tuple[Tensor, ...]
    outputs: tuple[Tensor, ...]
    output_grads: tuple[Tensor | None, ...]
    input_grads: tuple[Tensor | None, ...]
    parameter_grads: tuple[Tensor | None, ...]
    stats: BackendStats = field(repr=False)
    forward: torch.cuda.CUDAGraph | None = field(repr=False)
    backward: torch.cuda.CUDAGraph | None = field(repr=False)
    kept: tuple[Any, ...] = field(repr=False)
    nbytes: int = 0

    def launch_forward(self) -> None:
        """Submit the forward graph to the current stream; RuntimeError after `reset`."""
        if self.forward is None:
            raise RuntimeError("the recording was reset and cannot be launched")
        self.forward.replay()
        self.stats.forward_launches += 1

    def launch_backward(self) -> None:
        """Submit the backward graph to the current stream; RuntimeError after `reset` or without one."""
        if self.backward is None:
            raise RuntimeError("the recording has no backward pass to launch")
        self.backward.replay()
        self.stats.backward_launches += 1

    def owned_bytes(self) -> int:
        """Return how much device memory making the recording took."""
        return self.nbytes

    def reset(self) -> None:
        """Free both graphs and forget the buffers."""
        for graph in (self.backward, self.forward):
            if graph is not None:
                graph.reset()
        self.forward = self.backward = None
        self.inputs = self.outputs = ()
        self.output_grads = self.input_grads = self.parameter_grads = ()
        self.kept, self.nbytes = (), 0
        self.stats.resets += 1


class CudaBackend:
    """Records work on the tensors of one CUDA device, by default after three warm-up runs on a side stream.

    All recordings share a memory pool and a capture stream; they replay on the stream they were made under.
    Captures fail on illegal calls of their own thread only, so data loaders and communication may go on.
    ``generators`` are random generators besides the default one that recorded work draws from. ``debug``
    asks torch to check that static inputs are alive at each launch, where its release can.

    Nothing touches the device before the first recording, so it can be built anywhere.

    >>> CudaBackend().refusal([torch.zeros(1)])
    'CUDA graphs record CUDA tensors, got one on cpu'
    """

    def __init__(
        self, warmup: int = 3, *, generators: Sequence[torch.Generator] = (), debug: bool = False
    ) -> None:
        self.stats = BackendStats()
        self.warmup = warmup
        self.generators = tuple(generators)
        self.debug = debug
        self._pool: Any = None
        self._side: torch.cuda.Stream | None = None

    def refusal(self, tensors: Sequence[Tensor]) -> str | None:
        """Return why these tensors cannot take part: another device than the current one, a subclass."""
        for tensor in tensors:
            if tensor.device.type != "cuda":
                return f"CUDA graphs record CUDA tensors, got one on {tensor.device}"
            if tensor.device.index != torch.cuda.current_device():
                return f"got a tensor on {tensor.device}, the current device is {torch.cuda.current_device()}"
            if type(tensor) not in (Tensor, torch.nn.Parameter) or tensor.layout != torch.strided:
                return (
                    f"a recording takes plain strided tensors, got {type(tensor).__name__} ({tensor.layout})"
                )
        return None if torch.cuda.is_available() else "no CUDA device is available"

    def synchronize(self) -> None:
        """Wait for everything submitted to the current device."""
        if _in_use():
            torch.cuda.synchronize()

    def in_capture(self) -> bool:
        """Return whether a back-end is recording, or anybody captures on the current stream."""
        return capture_under_way() or (_in_use() and torch.cuda.is_current_stream_capturing())

    def stream(self) -> Hashable:
        """Return the current device and the handle of its current stream."""
        if not _in_use():
            return 0
        return torch.cuda.current_device(), torch.cuda.current_stream().cuda_stream

    def record(
        self, work: Work, inputs: Sequence[Tensor], parameters: Sequence[Tensor], differentiable: bool
    ) -> CudaRecording:
        """Return graphs of ``work`` and, when ``differentiable``, of its backward pass.

        Raises CaptureError for nested recording, autocast with its weight cache on, or a capture that CUDA
        refuses; `lucid_capture.doctor` names the line. After a refused capture the device may be unusable.
        """
        if torch.is_autocast_enabled("cuda") and torch.is_autocast_cache_enabled():
            raise CaptureError("autocast keeps a cache of cast weights; record with cache_enabled=False")
        try:
            with capturing("a CUDA recording"), torch.set_grad_enabled(differentiable):
                recording = self._record(work, inputs, parameters)
        except Exception:
            self.stats.failures += 1
            raise
        self.stats.records += 1
        return recording

    def _record(self, work: Work, inputs: Sequence[Tensor], parameters: Sequence[Tensor]) -> CudaRecording:
        before = torch.cuda.memory_allocated()
        static = tuple(t.detach().clone().requires_grad_(t.requires_grad) for t in inputs)
        targets = (*static, *parameters)
        self._warm_up(work, static, targets)
        forward, backward = self._graph(), None
        try:
            with self._capture(forward):
                outputs = tuple(work(static))
            grads = zeros_where_differentiable(outputs)
            reached: list[Tensor | None] = [None] * len(targets)
            if any(g is not None for g in grads):
                backward = self._graph()
                with self._capture(backward):
                    # the graph is kept: freed saved values would become other recordings' temporaries
                    reached = gradients(outputs, grads, targets, keep=True)
        except RuntimeError as error:
            if isinstance(error, CaptureError):
                raise
            raise CaptureError(
                f"the work cannot be captured ({error}); lucid_capture.doctor names the line"
            ) from error
        torch.cuda.synchronize()
        return CudaRecording(
            inputs=tuple(t.detach() for t in static),
            outputs=tuple(o.detach() for o in outputs),
            output_grads=grads,
            input_grads=tuple(reached[: len(static)]),
            parameter_grads=tuple(reached[len(static) :]),
            stats=self.stats,
            forward=forward,
            backward=backward,
            kept=outputs,
            nbytes=torch.cuda.memory_allocated() - before,
        )

    def _warm_up(self, work: Work, static: Sequence[Tensor], targets: Sequence[Tensor]) -> None:
        """Run forward and backward on the capture stream, so that lazy initialisation happens now."""
        if self._side is None:
            self._side = torch.cuda.Stream()  # type: ignore[no-untyped-call]
        current = torch.cuda.current_stream()
        self._side.wait_stream(current)
        with torch.cuda.stream(self._side):
            for _ in range(self.warmup):
                outputs = tuple(work(static))
                gradients(outputs, zeros_where_differentiable(outputs), targets)
                del outputs
        current.wait_stream(self._side)
        torch.cuda.synchronize()

    def _graph(self) -> torch.cuda.CUDAGraph:
        graph = torch.cuda.CUDAGraph()
        for generator in self.generators:
            graph.register_generator_state(generator)
        return graph

    def _capture(self, graph: torch.cuda.CUDAGraph) -> AbstractContextManager[Any]:
        if self._pool is None:
            self._pool = torch.cuda.graph_pool_handle()
        options: dict[str, Any] = {"capture_error_mode": "thread_local"}
        if self.debug and "check_input_liveness" in inspect.signature(torch.cuda.graph).parameters:
            options["check_input_liveness"] = True
        return torch.cuda.graph(graph, pool=self._pool, stream=self._side, **options)


def _in_use() -> bool:
    return bool(torch.cuda.is_initialized())  # type: ignore[no-untyped-call]
