"""A recording back-end for the CPU with the semantics of device graphs, for tests and debugging.

Work runs once under a dispatch mode that writes down every operator with its argument and result tensors; a
replay runs the operators again on those very tensors. Python does not run during a replay, arguments are
fixed buffers, and results are overwritten by the next launch, exactly as with CUDA graphs. It makes nothing
faster.
"""

from __future__ import annotations

from collections.abc import Hashable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from enum import Enum
from typing import Any

import torch
from torch import Tensor

from lucid_capture._rules import (
    Operators,
    address,
    host_methods,
    refuse_host_method,
    refuse_illegal,
    tensors_in,
)
from lucid_capture.backend import (
    BackendStats,
    CaptureError,
    Work,
    capture_under_way,
    capturing,
    gradients,
    zeros_where_differentiable,
)

STAGES = ("warmup", "forward", "backward", "replay")


class Poison(Enum):
    """What a forward launch writes over results of earlier launches before it runs."""

    OFF = "off"
    NAN = "nan"
    SENTINEL = "sentinel"


@dataclass(frozen=True)
class _Entry:
    operator: Any
    args: tuple[Any, ...]
    kwargs: dict[str, Any]
    results: list[Tensor]
    grad: bool


class _Recorder(Operators):
    def __init__(self) -> None:
        super().__init__()  # type: ignore[no-untyped-call]
        self.entries: list[_Entry] = []
        self.created: dict[int, Tensor] = {}
        self._known: set[int] = set()

    def __torch_dispatch__(
        self, func: Any, types: Any, args: tuple[Any, ...] = (), kwargs: dict[str, Any] | None = None
    ) -> Any:
        kwargs = kwargs or {}
        if func.namespace == "profiler":
            return func(*args, **kwargs)
        refuse_illegal(func, args, kwargs)
        for tensor in tensors_in((args, kwargs)):
            self._known.add(address(tensor))
        result = func(*args, **kwargs)
        for tensor in tensors_in(result):
            if address(tensor) not in self._known:
                self.created[address(tensor)] = tensor.detach()
                self._known.add(address(tensor))
        # aliases without their autograd history: the tape must not keep graphs alive
        results = [t.detach() for t in tensors_in(result)]
        self.entries.append(
            _Entry(func, _detached(args), _detached(kwargs), results, torch.is_grad_enabled())
        )
        return result


class _Delayed(Operators):
    """Notes the values that work leaves in tensors it did not make, and those they had before."""

    def __init__(self) -> None:
        super().__init__()  # type: ignore[no-untyped-call]
        self.before: dict[int, tuple[Tensor, Tensor]] = {}
        self._made: set[int] = set()

    def __torch_dispatch__(
        self, func: Any, types: Any, args: tuple[Any, ...] = (), kwargs: dict[str, Any] | None = None
    ) -> Any:
        if func._schema.is_mutable:
            for tensor in tensors_in((args, kwargs)):
                if address(tensor) not in self._made and address(tensor) not in self.before:
                    self.before[address(tensor)] = (tensor.detach(), tensor.detach().clone())
        result = func(*args, **(kwargs or {}))
        for tensor in tensors_in(result):
            if address(tensor) not in self.before:
                self._made.add(address(tensor))
        return result


@dataclass
class TapeRecording:
    """A tape and its fixed buffers; see `lucid_capture.Recording` for the contract."""

    inputs: tuple[Tensor, ...]
    outputs: tuple[Tensor, ...]
    output_grads: tuple[Tensor | None, ...]
    input_grads: tuple[Tensor | None, ...]
    parameter_grads: tuple[Tensor | None, ...]
    backend: TapeBackend = field(repr=False)
    stream: Hashable
    forward: list[_Entry] = field(repr=False)
    backward: list[_Entry] = field(repr=False)
    created: dict[int, Tensor] = field(repr=False)

    def launch_forward(self) -> None:
        """Overwrite earlier results with poison, then run the recorded operators.

        Raises CaptureError on a stream other than the recorded one.
        """
        self._submit()
        for tensor in (*self.outputs, *self.input_grads, *self.parameter_grads):
            if tensor is not None and address(tensor) in self.created:
                _fill(tensor, self.backend.poison)
        self.backend.fail("replay")
        _replay(self.forward)
        self.backend.stats.forward_launches += 1

    def launch_backward(self) -> None:
        """Run the recorded operators of the backward pass; raises as `launch_forward` does."""
        self._submit()
        _replay(self.backward)
        self.backend.stats.backward_launches += 1

    def owned_bytes(self) -> int:
        """Return the bytes of every tensor the recorded work created, and of the fixed inputs."""
        tensors = (*self.created.values(), *self.inputs)
        return sum(t.untyped_storage().nbytes() for t in {address(t): t for t in tensors}.values())

    def reset(self) -> None:
        """Forget the tape and its buffers; memory that something else still refers to keeps its values."""
        self.inputs = self.outputs = ()
        self.output_grads = self.input_grads = self.parameter_grads = ()
        self.forward, self.backward, self.created = [], [], {}
        self.backend.stats.resets += 1

    def _submit(self) -> None:
        if self.backend.stream() != self.stream:
            raise CaptureError(
                f"recorded on stream {self.stream!r}, launched on {self.backend.stream()!r}; use one stream"
            )
        # work queued earlier lands before anything launched now
        self.backend.synchronize()


class TapeBackend:
    """Records work on CPU tensors as a tape of operators. Never chosen unless asked for by name.

    ``warmup`` native runs come before the recorded one, as on a device. ``fail_at`` raises CaptureError at
    that stage (``warmup``, ``forward``, ``backward``, ``replay``), to test what a failure leaves behind.
    ``queued`` holds back what warm-up runs write until `synchronize`, as a side stream may.

    >>> backend = TapeBackend()
    >>> recording = backend.record(lambda x: (x[0] + 1,), [torch.zeros(2)], (), differentiable=False)
    >>> _ = recording.inputs[0].fill_(5.0)
    >>> recording.launch_forward()
    >>> recording.outputs[0]
    tensor([6., 6.])
    """

    def __init__(
        self,
        poison: Poison = Poison.NAN,
        warmup: int = 1,
        fail_at: str | None = None,
        *,
        queued: bool = False,
        generators: Sequence[torch.Generator] = (),
    ) -> None:
        if fail_at is not None and fail_at not in STAGES:
            raise ValueError(f"fail_at must be one of {STAGES} or None, got {fail_at!r}")
        self.stats = BackendStats()
        self.poison = poison
        self.warmup = warmup
        self.fail_at = fail_at
        self.queued = queued
        self.generators = tuple(generators)
        self._stream: Hashable = 0
        self._queue: list[tuple[Tensor, Tensor]] = []

    def refusal(self, tensors: Sequence[Tensor]) -> str | None:
        """Return why these tensors cannot take part: another device, a subclass, a sparse layout."""
        for tensor in tensors:
            if tensor.device.type != "cpu":
                return f"the tape records CPU tensors, got one on {tensor.device}"
            if type(tensor) not in (Tensor, torch.nn.Parameter) or tensor.layout != torch.strided:
                return (
                    f"the tape records plain strided tensors, got {type(tensor).__name__} ({tensor.layout})"
                )
        return None

    @torch.no_grad()
    def synchronize(self) -> None:
        """Let queued writes land; everything else has finished when its call returns."""
        queue, self._queue = self._queue, []
        for tensor, value in queue:
            tensor.copy_(value)

    def in_capture(self) -> bool:
        """Return whether a recording is under way."""
        return capture_under_way()

    def stream(self) -> Hashable:
        """Return the identifier of the stream in use, 0 unless `on_stream` says otherwise."""
        return self._stream

    @contextmanager
    def on_stream(self, stream: Hashable) -> Iterator[None]:
        """Submit work to another stream inside the block."""
        before, self._stream = self._stream, stream
        try:
            yield
        finally:
            self._stream = before

    def record(
        self, work: Work, inputs: Sequence[Tensor], parameters: Sequence[Tensor], differentiable: bool
    ) -> TapeRecording:
        """Return a tape of ``work`` and, when ``differentiable``, of its backward pass.

        Raises CaptureError for nested recording, autocast with its weight cache on, a buffer read by the
        host, an operation whose shape depends on values, or a move between devices.
        """
        if torch.is_autocast_enabled("cpu") and torch.is_autocast_cache_enabled():
            raise CaptureError("autocast keeps a cache of cast weights; record with cache_enabled=False")
        try:
            with capturing("a tape recording"), torch.set_grad_enabled(differentiable):
                recording = self._record(work, inputs, parameters)
        except Exception:
            self.stats.failures += 1
            raise
        self.stats.records += 1
        return recording

    def fail(self, stage: str) -> None:
        """Raise CaptureError when a failure was asked for at ``stage``."""
        if self.fail_at == stage:
            raise CaptureError(f"injected failure at {stage}")

    def _record(self, work: Work, inputs: Sequence[Tensor], parameters: Sequence[Tensor]) -> TapeRecording:
        static = tuple(t.detach().clone().requires_grad_(t.requires_grad) for t in inputs)
        for _ in range(self.warmup):
            self._warm_up(work, static, parameters)
            self.fail("warmup")
        forward, backward = _Recorder(), _Recorder()
        with host_methods(refuse_host_method):
            with forward:
                outputs = tuple(work(static))
            self.fail("forward")
            grads = zeros_where_differentiable(outputs)
            with backward:
                reached = gradients(outputs, grads, (*static, *parameters))
            self.fail("backward")
        return TapeRecording(
            inputs=tuple(t.detach() for t in static),
            outputs=tuple(o.detach() for o in outputs),
            output_grads=grads,
            input_grads=tuple(reached[: len(static)]),
            parameter_grads=tuple(reached[len(static) :]),
            backend=self,
            stream=self._stream,
            forward=forward.entries,
            backward=backward.entries,
            created={**forward.created, **backward.created},
        )

    def _warm_up(self, work: Work, static: Sequence[Tensor], parameters: Sequence[Tensor]) -> None:
        if not self.queued:
            outputs = tuple(work(static))
            gradients(outputs, zeros_where_differentiable(outputs), (*static, *parameters))
            return
        with _Delayed() as delayed:
            outputs = tuple(work(static))
            gradients(outputs, zeros_where_differentiable(outputs), (*static, *parameters))
        with torch.no_grad():
            for tensor, value in delayed.before.values():
                self._queue.append((tensor, tensor.clone()))
                tensor.copy_(value)


def _replay(entries: list[_Entry]) -> None:
    # the casts of autocast are on the tape already; the gradient mode of each operator is put back, because
    # some give other results with it, though nothing here has a history
    with torch.autocast("cpu", enabled=False), torch.no_grad():
        for entry in entries:
            if entry.operator.is_view:
                continue
            torch._C._set_grad_enabled(entry.grad)
            fresh = tensors_in(entry.operator(*entry.args, **entry.kwargs))
            for new, recorded in zip(fresh, entry.results, strict=True):
                if new.data_ptr() != recorded.data_ptr():
                    recorded.copy_(new)


def _detached(tree: Any) -> Any:
    if isinstance(tree, Tensor):
        return tree.detach()
    if isinstance(tree, list | tuple):
        return type(tree)([_detached(item) for item in tree])
    if isinstance(tree, dict):
        return {key: _detached(item) for key, item in tree.items()}
    return tree


def _fill(tensor: Tensor, poison: Poison) -> None:
    if poison is Poison.OFF:
        return
    if tensor.is_floating_point() or tensor.is_complex():
        tensor.fill_(float("nan") if poison is Poison.NAN else torch.finfo(tensor.dtype).max)
    elif tensor.dtype == torch.bool:
        tensor.logical_not_()
    else:
        tensor.fill_(torch.iinfo(tensor.dtype).min)
