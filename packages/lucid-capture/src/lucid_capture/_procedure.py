"""How a recording is made without leaving a trace when it fails."""

from __future__ import annotations

import gc
from collections.abc import Iterator, Sequence
from contextlib import contextmanager

import torch
from torch import Tensor, nn

from lucid_capture._random import RandomState
from lucid_capture.backend import RecorderBackend


@contextmanager
def collected() -> Iterator[None]:
    """Collect garbage, then keep collection off: freeing a graph during a capture is an error."""
    enabled = gc.isenabled()
    gc.collect()
    gc.disable()
    try:
        yield
    finally:
        if enabled:
            gc.enable()


@contextmanager
def uncached_autocast() -> Iterator[None]:
    """Turn the weight cache of autocast off: a cached cast would freeze the weights into the recording."""
    cache = torch.is_autocast_cache_enabled()
    torch.set_autocast_cache_enabled(False)
    try:
        yield
    finally:
        torch.set_autocast_cache_enabled(cache)


@contextmanager
def stand_ins(modules: Sequence[nn.Module], parameters: Sequence[Tensor]) -> Iterator[list[Tensor]]:
    """Let modules hold fresh leaves on the memory of ``parameters``; yield those, in the parameters' order.

    The node that adds to a parameter's gradient belongs to the stream it was born on and lives as long as
    any graph over the parameter does, such as that of a loss somebody kept. With leaves of its own a recording
    neither meets such nodes of the caller's stream nor leaves nodes of its own to later backward passes
    (pytorch issue 180090).
    """
    wanted = {id(p) for p in parameters if isinstance(p, nn.Parameter)}
    places = [
        (module, name, parameter)
        for module in modules
        for name, parameter in module._parameters.items()
        if id(parameter) in wanted and parameter is not None
    ]
    placed = {id(p): p for _, _, p in places}
    fresh = {key: nn.Parameter(p.detach()) for key, p in placed.items()}
    try:
        for module, name, parameter in places:
            setattr(module, name, fresh[id(parameter)])
        yield [fresh.get(id(p), p) for p in parameters]
    finally:
        for module, name, parameter in places:
            setattr(module, name, parameter)


class Saved:
    """Buffers and random generators as they were, to be put back in place."""

    def __init__(self, buffers: Sequence[Tensor], backend: RecorderBackend) -> None:
        self._backend = backend
        self._buffers = [(b, b.detach().clone()) for b in buffers]
        self._random = RandomState(backend.generators)

    @torch.no_grad()
    def restore(self) -> None:
        """Wait for the back-end, then put everything back."""
        # first: side-stream work still running would overwrite what is restored
        self._backend.synchronize()
        for buffer, value in self._buffers:
            buffer.copy_(value)
        self._random.restore()
