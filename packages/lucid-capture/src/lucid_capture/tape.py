"""A recording back-end for the CPU with the semantics of device graphs, for tests and debugging.

Work runs once under a dispatch mode that writes down every operator with its argument and result tensors; a
replay runs the operators again on those very tensors. Python does not run during a replay, arguments are
fixed buffers, and results are overwritten by the next launch, exactly as with CUDA graphs. It makes nothing
faster.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from enum import Enum
from typing import Any

import torch
from torch import Tensor
from torch.utils._python_dispatch import TorchDispatchMode

from lucid_capture.backend import BackendStats, CaptureError, Work

_aten = torch.ops.aten

# operators whose result or shape depends on values the host would have to read
_HOST_READS = frozenset(
    {
        "aten::_local_scalar_dense",
        "aten::_unique",
        "aten::_unique2",
        "aten::allclose",
        "aten::equal",
        "aten::is_nonzero",
        "aten::masked_select",
        "aten::nonzero",
        "aten::nonzero_numpy",
        "aten::repeat_interleave",
        "aten::unique_consecutive",
        "aten::unique_dim",
        "aten::unique_dim_consecutive",
    }
)
_INDEXING = frozenset({"aten::index", "aten::index_put", "aten::index_put_", "aten::_index_put_impl_"})
_HOST_METHODS = ("numpy", "tolist", "__array__")


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


class _Recorder(TorchDispatchMode):  # type: ignore[no-untyped-call]
    def __init__(self) -> None:
        super().__init__()  # type: ignore[no-untyped-call]
        self.entries: list[_Entry] = []
        self.created: dict[int, Tensor] = {}
        self._known: set[int] = set()

    def __torch_dispatch__(
        self, func: Any, types: Any, args: tuple[Any, ...] = (), kwargs: dict[str, Any] | None = None
    ) -> Any:
        kwargs = kwargs or {}
        _refuse_illegal(func, args, kwargs)
        for tensor in _tensors((args, kwargs)):
            self._known.add(_address(tensor))
        result = func(*args, **kwargs)
        for tensor in _tensors(result):
            if _address(tensor) not in self._known:
                self.created[_address(tensor)] = tensor.detach()
                self._known.add(_address(tensor))
        # aliases without their autograd history: the tape must not keep graphs alive
        self.entries.append(
            _Entry(func, _detached(args), _detached(kwargs), [t.detach() for t in _tensors(result)])
        )
        return result


@dataclass
class TapeRecording:
    """A tape and its fixed buffers; see `lucid_capture.Recording` for the contract."""

    inputs: tuple[Tensor, ...]
    outputs: tuple[Tensor, ...]
    output_grads: tuple[Tensor | None, ...]
    input_grads: tuple[Tensor | None, ...]
    parameter_grads: tuple[Tensor | None, ...]
    stats: BackendStats
    poison: Poison
    forward: list[_Entry]
    backward: list[_Entry]
    created: dict[int, Tensor] = field(repr=False)

    def launch_forward(self) -> None:
        """Overwrite earlier results with poison, then run the recorded operators."""
        for tensor in (*self.outputs, *self.input_grads, *self.parameter_grads):
            if tensor is not None and _address(tensor) in self.created:
                _fill(tensor, self.poison)
        _replay(self.forward)
        self.stats.forward_launches += 1

    def launch_backward(self) -> None:
        """Run the recorded operators of the backward pass."""
        _replay(self.backward)
        self.stats.backward_launches += 1

    def owned_bytes(self) -> int:
        """Return the bytes of every tensor the recorded work created, and of the fixed inputs."""
        tensors = (*self.created.values(), *self.inputs)
        return sum(t.untyped_storage().nbytes() for t in {_address(t): t for t in tensors}.values())

    def reset(self) -> None:
        """Forget the tape and its buffers."""
        self.inputs = self.outputs = ()
        self.output_grads = self.input_grads = self.parameter_grads = ()
        self.forward, self.backward, self.created = [], [], {}
        self.stats.resets += 1


class TapeBackend:
    """Records work on CPU tensors as a tape of operators. Never chosen unless asked for by name.

    ``warmup`` native runs come before the recorded one, as on a device. ``fail_at`` raises CaptureError at
    that stage, to test what a failed recording leaves behind.

    >>> backend = TapeBackend()
    >>> recording = backend.record(lambda x: (x[0] + 1,), [torch.zeros(2)], (), differentiable=False)
    >>> _ = recording.inputs[0].fill_(5.0)
    >>> recording.launch_forward()
    >>> recording.outputs[0]
    tensor([6., 6.])
    """

    def __init__(self, poison: Poison = Poison.NAN, warmup: int = 1, fail_at: str | None = None) -> None:
        stages = (None, "warmup", "forward", "backward")
        if fail_at not in stages:
            raise ValueError(f"fail_at must be one of {stages}, got {fail_at!r}")
        self.stats = BackendStats()
        self.poison = poison
        self.warmup = warmup
        self.fail_at = fail_at
        self._capturing = False

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

    def synchronize(self) -> None:
        """Return at once: CPU work has finished when its call returns."""

    def in_capture(self) -> bool:
        """Return whether a recording is under way."""
        return self._capturing

    def record(
        self, work: Work, inputs: Sequence[Tensor], parameters: Sequence[Tensor], differentiable: bool
    ) -> TapeRecording:
        """Return a tape of ``work`` and, when ``differentiable``, of its backward pass.

        Raises CaptureError for nested recording, autocast with its weight cache on, a buffer read by the
        host, an operation whose shape depends on values, or a move between devices.
        """
        if self._capturing:
            raise CaptureError("a recording is already under way; recordings do not nest")
        if torch.is_autocast_enabled("cpu") and torch.is_autocast_cache_enabled():
            raise CaptureError("autocast keeps a cache of cast weights; record with cache_enabled=False")
        self._capturing = True
        try:
            with torch.set_grad_enabled(differentiable):
                recording = self._record(work, inputs, parameters)
        except Exception:
            self.stats.failures += 1
            raise
        finally:
            self._capturing = False
        self.stats.records += 1
        return recording

    def _record(self, work: Work, inputs: Sequence[Tensor], parameters: Sequence[Tensor]) -> TapeRecording:
        static = tuple(t.detach().clone().requires_grad_(t.requires_grad) for t in inputs)
        for _ in range(self.warmup):
            self._fail("warmup")
            outputs = tuple(work(static))
            _gradients(outputs, [_zeros(o) for o in outputs], (*static, *parameters))
        forward, backward = _Recorder(), _Recorder()
        with _no_host_methods():
            with forward:
                outputs = tuple(work(static))
            self._fail("forward")
            grads = tuple(_zeros(o) for o in outputs)
            with backward:
                reached = _gradients(outputs, grads, (*static, *parameters))
            self._fail("backward")
        return TapeRecording(
            inputs=tuple(t.detach() for t in static),
            outputs=tuple(o.detach() for o in outputs),
            output_grads=grads,
            input_grads=tuple(reached[: len(static)]),
            parameter_grads=tuple(reached[len(static) :]),
            stats=self.stats,
            poison=self.poison,
            forward=forward.entries,
            backward=backward.entries,
            created={**forward.created, **backward.created},
        )

    def _fail(self, stage: str) -> None:
        if self.fail_at == stage:
            raise CaptureError(f"injected failure at {stage}")


def _gradients(
    outputs: Sequence[Tensor], grads: Sequence[Tensor | None], targets: Sequence[Tensor]
) -> list[Tensor | None]:
    """Return the gradient of every target, None where none is wanted or none arrives."""
    roots = [(o, g) for o, g in zip(outputs, grads, strict=True) if g is not None]
    wanted = [t for t in targets if t.requires_grad]
    if not roots or not wanted:
        return [None] * len(targets)
    found = iter(torch.autograd.grad([o for o, _ in roots], wanted, [g for _, g in roots], allow_unused=True))
    return [next(found) if t.requires_grad else None for t in targets]


def _zeros(output: Tensor) -> Tensor | None:
    return torch.zeros_like(output).detach() if output.requires_grad else None


@torch.no_grad()
def _replay(entries: list[_Entry]) -> None:
    # the casts of autocast are on the tape already
    with torch.autocast("cpu", enabled=False):
        for entry in entries:
            if entry.operator.is_view:
                continue
            fresh = _tensors(entry.operator(*entry.args, **entry.kwargs))
            for new, recorded in zip(fresh, entry.results, strict=True):
                if new.data_ptr() != recorded.data_ptr():
                    recorded.copy_(new)


def _refuse_illegal(func: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> None:
    name = func._schema.name
    if name in _HOST_READS:
        raise CaptureError(f"{name} needs a value on the host or has a shape that depends on values")
    if name in _INDEXING and any(t.dtype in (torch.bool, torch.uint8) for t in _tensors(args[1])):
        raise CaptureError(f"{name} with a mask has a shape that depends on values; use torch.where")
    target = kwargs.get("device")
    if name == "aten::_to_copy" and target is not None and torch.device(target).type != args[0].device.type:
        raise CaptureError(f"a copy from {args[0].device} to {target} cannot be recorded")


@contextmanager
def _no_host_methods() -> Iterator[None]:
    """Make ``tolist`` and ``numpy`` raise, which read memory without passing the dispatcher."""

    def refuse(name: str) -> Any:
        def method(*args: Any, **kwargs: Any) -> Any:
            raise CaptureError(f"Tensor.{name} reads values on the host")

        return method

    own = {name: torch.Tensor.__dict__[name] for name in _HOST_METHODS if name in torch.Tensor.__dict__}
    for name in _HOST_METHODS:
        setattr(torch.Tensor, name, refuse(name))
    try:
        yield
    finally:
        for name in _HOST_METHODS:
            if name in own:
                setattr(torch.Tensor, name, own[name])
            else:
                delattr(torch.Tensor, name)


def _tensors(tree: Any) -> list[Tensor]:
    if isinstance(tree, Tensor):
        return [tree]
    if isinstance(tree, list | tuple):
        return [t for item in tree for t in _tensors(item)]
    if isinstance(tree, dict):
        return [t for item in tree.values() for t in _tensors(item)]
    return []


def _detached(tree: Any) -> Any:
    if isinstance(tree, Tensor):
        return tree.detach()
    if isinstance(tree, list | tuple):
        return type(tree)([_detached(item) for item in tree])
    if isinstance(tree, dict):
        return {key: _detached(item) for key, item in tree.items()}
    return tree


def _address(tensor: Tensor) -> int:
    return tensor.untyped_storage().data_ptr()


def _fill(tensor: Tensor, poison: Poison) -> None:
    if poison is Poison.OFF:
        return
    if tensor.is_floating_point() or tensor.is_complex():
        tensor.fill_(float("nan") if poison is Poison.NAN else torch.finfo(tensor.dtype).max)
    elif tensor.dtype == torch.bool:
        tensor.logical_not_()
    else:
        tensor.fill_(torch.iinfo(tensor.dtype).min)
