"""How a recording is made without leaving a trace when it fails."""

from __future__ import annotations

import gc
from collections.abc import Iterator, Sequence
from contextlib import contextmanager

import torch
from torch import Tensor

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


class Saved:
    """Buffers and random generators as they were, to be put back in place."""

    def __init__(self, buffers: Sequence[Tensor], backend: RecorderBackend) -> None:
        self._backend = backend
        self._buffers = [(b, b.detach().clone()) for b in buffers]
        self._host = torch.get_rng_state()
        self._devices = torch.cuda.get_rng_state_all() if torch.cuda.is_initialized() else None  # type: ignore[no-untyped-call]
        self._generators = [(g, g.get_state()) for g in backend.generators]

    @torch.no_grad()
    def restore(self) -> None:
        """Wait for the back-end, then put everything back."""
        # first: side-stream work still running would overwrite what is restored
        self._backend.synchronize()
        for buffer, value in self._buffers:
            buffer.copy_(value)
        torch.set_rng_state(self._host)
        if self._devices is not None:
            torch.cuda.set_rng_state_all(self._devices)
        for generator, state in self._generators:
            generator.set_state(state)
