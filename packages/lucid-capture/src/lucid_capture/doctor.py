"""Names the lines of a function that no device graph can hold, and what to do about each."""

from __future__ import annotations

import linecache
import random
import sys
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager, nullcontext
from dataclasses import dataclass
from enum import Enum
from pathlib import Path
from types import FrameType
from typing import Any

import torch
from torch import Tensor
from torch.overrides import TorchFunctionMode

from lucid_capture._rules import (
    HOST_READS,
    Operators,
    address,
    has_dynamic_shape,
    has_mask_index,
    host_methods,
    moves_between_devices,
    tensors_in,
)
from lucid_capture._tree import flatten


class Fault(Enum):
    """Why an operation cannot be part of a recording, and the usual remedy."""

    HOST_READ = (
        "the host reads a value",
        "keep it on the device: torch.where for a branch, a 0-d tensor for a number; read after the region",
    )
    HOST_COPY = ("a copy between devices", "make the tensor on its device, or move it before the region")
    DYNAMIC_SHAPE = (
        "the shape of the result depends on values",
        "use a fixed size with a mask: topk, torch.where, scatter, or output_size=",
    )
    BOOLEAN_INDEX = (
        "indexing with a boolean mask has a shape that depends on values",
        "use torch.where or masked_fill, or multiply by the mask",
    )
    HOST_BUILT = (
        "a tensor is built from host values",
        "build it once outside and pass it in, or use torch.full, zeros, arange on the device",
    )
    HOST_RANDOM = (
        "a random number of the host is frozen into the recording",
        "draw on the device with torch.rand, or pass the number in as a tensor",
    )
    UNKNOWN_GENERATOR = (
        "a random generator of its own would repeat its numbers",
        "give it to the back-end: CudaBackend(generators=(generator,))",
    )
    SYNCHRONISATION = ("the host waits for the device", "synchronise outside the region")
    FOREIGN_STREAM = (
        "work moves to another stream",
        "stay on the current stream; a recording is made and replayed on one",
    )
    ARGUMENT_WRITTEN = (
        "an argument is written in place, and a replay works on a copy",
        "write to a clone and return it, or keep the tensor in the certificate",
    )

    @property
    def cause(self) -> str:
        """What is wrong."""
        return self.value[0]

    @property
    def remedy(self) -> str:
        """What usually helps."""
        return self.value[1]


@dataclass(frozen=True)
class Finding:
    """One line that cannot be recorded: the fault, the operation, where it is, and the library line inside it."""

    fault: Fault
    operation: str
    file: str
    line: int
    code: str
    via: str | None = None

    def __str__(self) -> str:
        inside = f" (in {self.via})" if self.via else ""
        return (
            f"{self.file}:{self.line}: {self.fault.name.lower()}: {self.operation}{inside}: {self.fault.cause}\n"
            f"    {self.code}\n    remedy: {self.fault.remedy}"
        )


@dataclass(frozen=True)
class Diagnosis:
    """Everything `doctor` found, in the order in which it ran; true when there is nothing."""

    findings: tuple[Finding, ...]

    def __bool__(self) -> bool:
        return not self.findings

    def __str__(self) -> str:
        return "\n".join(map(str, self.findings)) or "nothing stands in the way of a recording"


def doctor(fn: Callable[..., Any], *args: Any, generators: tuple[torch.Generator, ...] = ()) -> Diagnosis:
    """Return what in ``fn(*args)`` cannot be recorded, by file and line; runs it once, for real, on any device.

    Gradients taken inside are looked at too; a `GraphedStep` or a region may be passed, after one ordinary
    call, so that lazily built state exists. ``generators`` are the ones the back-end knows. An operation that
    does nothing on a CPU and waits on a device (``.cpu()``, ``torch.cuda.synchronize``) counts everywhere.

    >>> print(doctor(lambda x: x.relu(), torch.ones(2)))
    nothing stands in the way of a recording
    >>> [finding.fault.name for finding in doctor(lambda x: x.nonzero(), torch.ones(2)).findings]
    ['DYNAMIC_SHAPE']
    """
    notes = _Notes(fn)
    leaves, _ = flatten(args)
    written = frozenset(address(leaf) for leaf in leaves if isinstance(leaf, Tensor))
    with ExitStack() as stack:
        stack.enter_context(host_methods(notes.host_method))
        stack.enter_context(_hooked_calls(notes))
        stack.enter_context(_Calls(notes))
        stack.enter_context(_Operators(notes, written, generators))
        fn(*args)
    return Diagnosis(tuple(notes.findings.values()))


class _Notes:
    """Collects findings, one per fault and line."""

    def __init__(self, fn: Callable[..., Any]) -> None:
        self.findings: dict[tuple[Fault, str, int], Finding] = {}
        code = getattr(fn, "__code__", None)
        self._fallback = (code.co_filename, code.co_firstlineno) if code is not None else ("?", 0)

    def add(self, fault: Fault, operation: str) -> None:
        """Note that ``operation`` is running now."""
        file, line, via = _place(sys._getframe(1), self._fallback)
        code = linecache.getline(file, line).strip()
        self.findings.setdefault((fault, file, line), Finding(fault, operation, file, line, code, via))

    def host_method(self, name: str, original: Any) -> Any:
        """Return ``original`` so that its calls are noted."""

        def method(*args: Any, **kwargs: Any) -> Any:
            self.add(Fault.HOST_READ, f"Tensor.{name}")
            return original(*args, **kwargs)

        return method


class _Operators(Operators):
    """Looks at every operator, those of a backward pass included."""

    def __init__(
        self, notes: _Notes, written: frozenset[int], generators: tuple[torch.Generator, ...]
    ) -> None:
        super().__init__()  # type: ignore[no-untyped-call]
        self._notes = notes
        self._written = written
        # the dispatcher wraps a generator anew each time
        self._generators = {known._cdata for known in generators}  # type: ignore[attr-defined]

    def __torch_dispatch__(
        self, func: Any, types: Any, args: tuple[Any, ...] = (), kwargs: dict[str, Any] | None = None
    ) -> Any:
        kwargs = kwargs or {}
        name = func._schema.name
        if name in HOST_READS:
            self._notes.add(Fault.HOST_READ, name)
        elif has_dynamic_shape(func, args, kwargs):
            self._notes.add(Fault.DYNAMIC_SHAPE, name)
        elif has_mask_index(func, args):
            self._notes.add(Fault.BOOLEAN_INDEX, name)
        elif moves_between_devices(func, args, kwargs):
            self._notes.add(Fault.HOST_COPY, name)
        elif name == "aten::lift_fresh":
            self._notes.add(Fault.HOST_BUILT, "torch.tensor")
        generator = kwargs.get("generator")
        if generator is not None and generator._cdata not in self._generators:
            self._notes.add(Fault.UNKNOWN_GENERATOR, name)
        if func._schema.is_mutable and self._writes(func, args, kwargs):
            self._notes.add(Fault.ARGUMENT_WRITTEN, name)
        return func(*args, **kwargs)

    def _writes(self, func: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> bool:
        for position, argument in enumerate(func._schema.arguments):
            if argument.alias_info is None or not argument.alias_info.is_write:
                continue
            value = args[position] if position < len(args) else kwargs.get(argument.name)
            if any(address(t) in self._written for t in tensors_in(value)):
                return True
        return False


class _Calls(TorchFunctionMode):
    """Looks at calls that are no operator on a CPU, but a copy or a wait on a device."""

    def __init__(self, notes: _Notes) -> None:
        super().__init__()
        self._notes = notes

    def __torch_function__(
        self, func: Any, types: Any, args: tuple[Any, ...] = (), kwargs: dict[str, Any] | None = None
    ) -> Any:
        kwargs = kwargs or {}
        targets = [a for a in (*args[1:], kwargs.get("device")) if isinstance(a, str)]
        if func is Tensor.cpu or (func is Tensor.to and "cpu" in targets):
            self._notes.add(Fault.HOST_COPY, f"Tensor.{func.__name__}")
        elif func in (Tensor.cuda, Tensor.to) and not torch.cuda.is_available():
            rest = [a for a in args[1:] if not _names_cuda(a)]
            named = {name: value for name, value in kwargs.items() if not _names_cuda(value)}
            if func is Tensor.cuda or len(rest) + len(named) < len(args) - 1 + len(kwargs):
                # there is no such device here: go on where the tensor is
                self._notes.add(Fault.HOST_COPY, f"Tensor.{func.__name__}")
                return (
                    Tensor.to(args[0], *rest, **named) if func is Tensor.to and (rest or named) else args[0]
                )
        return func(*args, **kwargs)


def _names_cuda(value: Any) -> bool:
    return isinstance(value, str | torch.device) and torch.device(value).type == "cuda"


_DRAWS = ("random", "uniform", "randint", "randrange", "choice", "choices", "sample", "shuffle", "gauss")


@contextmanager
def _hooked_calls(notes: _Notes) -> Iterator[None]:
    """Note calls that wait, change the stream or draw on the host; without a device they do nothing."""
    device = torch.cuda.is_available()
    hooks: list[tuple[Any, str, Any]] = []

    def hook(owner: Any, name: str, fault: Fault, label: str, stand_in: Callable[..., Any] | None) -> None:
        original = getattr(owner, name)

        def noted(*args: Any, **kwargs: Any) -> Any:
            notes.add(fault, label)
            return (original if stand_in is None else stand_in)(*args, **kwargs)

        hooks.append((owner, name, noted))

    nothing = None if device else _nothing
    no_block = None if device else _no_block
    hook(torch.cuda, "synchronize", Fault.SYNCHRONISATION, "torch.cuda.synchronize", nothing)
    hook(torch.accelerator, "synchronize", Fault.SYNCHRONISATION, "torch.accelerator.synchronize", nothing)
    hook(torch.cuda, "stream", Fault.FOREIGN_STREAM, "torch.cuda.stream", no_block)
    hook(torch.cuda, "set_stream", Fault.FOREIGN_STREAM, "torch.cuda.set_stream", nothing)
    hook(torch, "from_numpy", Fault.HOST_BUILT, "torch.from_numpy", None)
    for name in _DRAWS:
        hook(random, name, Fault.HOST_RANDOM, f"random.{name}", None)
    waiting: tuple[tuple[Any, str], ...] = (
        (torch.cuda.Stream, "synchronize"),
        (torch.cuda.Event, "synchronize"),
        (torch.cuda.Event, "query"),
    )
    for owner, name in waiting:
        label = f"torch.cuda.{owner.__name__}.{name}"
        hook(owner, name, Fault.SYNCHRONISATION, label, nothing)
    if not device:
        # without a device these cannot be made at all, and the code behind them would never be seen
        hooks += [
            (torch.cuda, "Stream", _StandIn),
            (torch.cuda, "Event", _waiting_stand_in(notes)),
            (torch.cuda, "current_stream", _StandIn),
        ]
    saved = [(owner, name, getattr(owner, name)) for owner, name, _ in hooks]
    for owner, name, noted in hooks:
        setattr(owner, name, noted)
    try:
        yield
    finally:
        for owner, name, original in saved:
            setattr(owner, name, original)


class _StandIn:
    """A stream or event where there is no device: whatever is asked of it does nothing."""

    def __init__(self, *args: Any, **kwargs: Any) -> None: ...

    def __getattr__(self, name: str) -> Callable[..., None]:
        return _nothing


def _waiting_stand_in(notes: _Notes) -> type[_StandIn]:
    class Event(_StandIn):
        def synchronize(self) -> None:
            notes.add(Fault.SYNCHRONISATION, "torch.cuda.Event.synchronize")

        def query(self) -> bool:
            notes.add(Fault.SYNCHRONISATION, "torch.cuda.Event.query")
            return True

    return Event


def _nothing(*args: Any, **kwargs: Any) -> None:
    return None


def _no_block(*args: Any, **kwargs: Any) -> Any:
    return nullcontext()


_OWN = str(Path(__file__).parent)
_TORCH = str(Path(torch.__file__).parent)
_STDLIB = str(Path(random.__file__).parent)
# frames of torch that lead to the modes here, and say nothing about the operation
_PLUMBING = ("overrides.py", "_python_dispatch.py", "_dynamo", "_ops.py", "_compile.py", "_contextlib.py")


def _place(frame: FrameType | None, fallback: tuple[str, int]) -> tuple[str, int, str | None]:
    """Return file and line of the innermost frame that is the user's, and the torch line that it led to."""
    library: tuple[str, int] | None = None
    while frame is not None:
        file, line = frame.f_code.co_filename, frame.f_lineno
        if frame.f_code is doctor.__code__:
            break
        if file.startswith(_TORCH):
            inside = not any(part in file for part in _PLUMBING)
            library = library or ((file, line) if inside else None)
        elif not file.startswith((_OWN, "<")) and not _is_standard(file):
            via = f"{Path(library[0]).relative_to(Path(_TORCH).parent)}:{library[1]}" if library else None
            return file, line, via
        frame = frame.f_back
    return (*(library or fallback), None)


def _is_standard(file: str) -> bool:
    return file.startswith(_STDLIB) and "site-packages" not in file
