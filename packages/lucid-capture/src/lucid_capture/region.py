"""A guarded region: work of fixed shape that is recorded once and replayed while its guards hold."""

from __future__ import annotations

import gc
import warnings
from collections import Counter
from collections.abc import Callable, Hashable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from enum import Enum
from typing import Any

import torch
from torch import Tensor

from lucid_capture._tree import Structure, flatten, unflatten
from lucid_capture.backend import CaptureError, RecorderBackend, RefusingBackend
from lucid_capture.certificate import (
    Certificate,
    FunctionCertificate,
    global_hooks_installed,
    precision_facts,
)
from lucid_capture.gradients import Replayer, reach_of
from lucid_capture.reason import POLICY, Outcome, Reason
from lucid_capture.signature import Signature, signature


class State(Enum):
    """Where a region stands between calls."""

    IDLE = "idle"
    ACTIVE = "active"
    HELD = "held"
    RETIRED = "retired"
    CLOSED = "closed"


class ReplayWarning(UserWarning):
    """A region gave up replaying for good; the message names the first cause."""


class _Entry:
    """One recording, what it was taken under, and how its results are nested."""

    def __init__(self, replayer: Replayer, structure: Structure, facts: Mapping[Reason, Hashable]) -> None:
        self.replayer = replayer
        self.structure = structure
        self.facts = facts


class GuardedRegion:
    """Calls ``native`` or replays a recording of it, with the same values and gradients either way.

    ``native`` takes nested tensors and host scalars and returns nested tensors. ``certificate`` names the
    parameters and buffers it reads and the facts a recording depends on. A ``differentiable`` region
    replays its backward pass too and is recorded and replayed with gradients enabled; another one only
    where no gradient is wanted.

    A signature is recorded at its sighting number ``record_after`` + 1, up to ``capacity`` of them.
    ``policy`` overrides what single reasons lead to. A transient reason makes one call native; one that
    breaks the contract retires the region with a single `ReplayWarning`. ``counts`` says how many calls
    went by each reason.

    Results and gradients are the caller's own memory. Copies and pickles of a region carry no recording.

    >>> from lucid_capture import TapeBackend
    >>> region = GuardedRegion("double", lambda x: x * 2, backend=TapeBackend())
    >>> [region(torch.full((1,), float(i))).item() for i in range(4)]
    [0.0, 2.0, 4.0, 6.0]
    >>> region.counts[Reason.REPLAYED]
    2
    """

    def __init__(
        self,
        name: str,
        native: Callable[..., Any],
        *,
        backend: RecorderBackend | None = None,
        certificate: Certificate | None = None,
        differentiable: bool = False,
        policy: Mapping[Reason, Outcome] | None = None,
        record_after: int = 1,
        capacity: int = 1,
    ) -> None:
        self.name = name
        self.native = native
        self.backend: RecorderBackend = RefusingBackend() if backend is None else backend
        self.certificate: Certificate = FunctionCertificate() if certificate is None else certificate
        self.differentiable = differentiable
        self.policy = {**POLICY, **(policy or {})}
        self.record_after = record_after
        self.capacity = capacity
        self.counts: Counter[Reason] = Counter()
        self.retired_by: Reason | None = None
        self._closed = False
        self._entries: dict[Signature, _Entry] = {}
        self._sightings: Counter[Signature] = Counter()

    @property
    def state(self) -> State:
        """Where the region stands."""
        if self._closed:
            return State.CLOSED
        if self.retired_by is not None:
            return State.RETIRED
        if any(entry.replayer.held for entry in self._entries.values()):
            return State.HELD
        return State.ACTIVE if self._entries else State.IDLE

    def __call__(self, *args: Any) -> Any:
        """Return what ``native(*args)`` returns."""
        if self._closed:
            return self._native(Reason.CLOSED, args)
        if self.retired_by is not None:
            return self._native(Reason.RETIRED, args)
        leaves, _ = flatten(args)
        tensors = [leaf for leaf in leaves if isinstance(leaf, Tensor)]
        reason = self._transient(tensors)
        if reason is not None:
            return self._act(reason, args)
        facts = self._facts()
        key = signature(args)
        entry = self._entries.get(key)
        reason = self._recordable(key, tensors, facts) if entry is None else _changed(entry, facts)
        if reason is Reason.RECORDED:
            return self._record_and_replay(key, args, tensors)
        if reason is not Reason.REPLAYED or entry is None:
            return self._act(reason, args)
        self.counts[reason] += 1
        return unflatten(entry.structure, entry.replayer(tensors, self._parameters()))

    def release(self) -> None:
        """Stop waiting for backward passes that were skipped; call at the start of a batch."""
        for entry in self._entries.values():
            entry.replayer.release()

    def drop(self) -> None:
        """Forget every recording; the next calls may record again."""
        for entry in self._entries.values():
            entry.replayer.recording.reset()
        self._entries.clear()
        self._sightings.clear()

    def close(self) -> None:
        """Forget every recording and run natively from here on."""
        self.drop()
        self._closed = True

    def __getstate__(self) -> dict[str, Any]:
        fresh: dict[str, Any] = {
            "_entries": {},
            "_sightings": Counter(),
            "counts": Counter(),
            "retired_by": None,
        }
        return {**self.__dict__, **fresh}

    def _parameters(self) -> tuple[Tensor, ...]:
        return self.certificate.parameters() if self.differentiable else ()

    def _facts(self) -> Mapping[Reason, Hashable]:
        return {Reason.PRECISION: precision_facts(), **self.certificate.facts()}

    def _transient(self, tensors: Sequence[Tensor]) -> Reason | None:
        """Return why this call may touch no recording, whichever there is."""
        if self.backend.in_capture():
            return Reason.IN_CAPTURE
        if global_hooks_installed():
            return Reason.GLOBAL_HOOKS
        if torch.is_inference_mode_enabled() or torch.is_anomaly_enabled() or torch.compiler.is_compiling():
            return Reason.MODE
        if self.differentiable and not torch.is_grad_enabled():
            return Reason.GRAD_MODE
        if not self.differentiable and torch.is_grad_enabled() and any(t.requires_grad for t in tensors):
            return Reason.GRAD_MODE
        if self.state is State.HELD:
            return Reason.HELD
        return None

    def _recordable(
        self, key: Signature, tensors: Sequence[Tensor], facts: Mapping[Reason, Hashable]
    ) -> Reason:
        """Return RECORDED when a new signature is to be recorded now, else why not."""
        if facts.get(Reason.HOOKS):
            return Reason.HOOKS
        if (
            self.backend.refusal([*tensors, *self.certificate.parameters(), *self.certificate.buffers()])
            is not None
        ):
            return Reason.UNSUPPORTED
        if len(self._entries) >= self.capacity:
            return Reason.SIGNATURE
        self._sightings[key] += 1
        return Reason.RECORDED if self._sightings[key] > self.record_after else Reason.FIRST_SIGHTING

    def _act(self, reason: Reason, args: tuple[Any, ...]) -> Any:
        outcome = self.policy[reason]
        if outcome is Outcome.RAISE:
            self.counts[reason] += 1
            raise CaptureError(f"region {self.name!r}: {reason.value}")
        if outcome is Outcome.RETIRE:
            self._retire(reason)
        return self._native(reason, args)

    def _native(self, reason: Reason, args: tuple[Any, ...]) -> Any:
        self.counts[reason] += 1
        return self.native(*args)

    def _retire(self, reason: Reason) -> None:
        self.drop()
        self.retired_by = reason
        message = f"region {self.name!r} runs natively from here on: {reason.value}"
        warnings.warn(message, ReplayWarning, stacklevel=4)

    def _record_and_replay(self, key: Signature, args: tuple[Any, ...], tensors: list[Tensor]) -> Any:
        with _collected():
            try:
                entry = self._record(args, tensors)
            except Exception:
                if self.policy[Reason.RECORDING_FAILED] is Outcome.RAISE:
                    self.counts[Reason.RECORDING_FAILED] += 1
                    raise
                return self._act(Reason.RECORDING_FAILED, args)
            self._entries[key] = entry
            self.counts[Reason.RECORDED] += 1
            return unflatten(entry.structure, entry.replayer(tensors, self._parameters()))

    def _record(self, args: tuple[Any, ...], tensors: list[Tensor]) -> _Entry:
        leaves, structure = flatten(args)
        results: list[Structure] = []

        def work(flat: Sequence[Tensor]) -> Sequence[Tensor]:
            live = iter(flat)
            filled = [next(live) if isinstance(leaf, Tensor) else leaf for leaf in leaves]
            outputs, result = flatten(self.native(*unflatten(structure, filled)))
            for output in outputs:
                if not isinstance(output, Tensor):
                    kind = type(output).__name__
                    raise CaptureError(
                        f"region {self.name!r} returns a {kind}; a recording gives tensors only"
                    )
            results.append(result)
            return outputs

        parameters = self._parameters()
        with _restored(self.certificate.buffers(), self.backend), _uncached_autocast():
            reach = reach_of(work, tensors, parameters) if self.differentiable else ()
            recording = self.backend.record(work, tensors, parameters, self.differentiable)
        # taken after the warm-up runs, which may have touched what the facts describe
        return _Entry(Replayer(recording, reach), results[-1], self._facts())


def _changed(entry: _Entry, facts: Mapping[Reason, Hashable]) -> Reason:
    """Return REPLAYED when every recorded fact still holds, else the reason of the first that does not."""
    return next((r for r, recorded in entry.facts.items() if facts.get(r) != recorded), Reason.REPLAYED)


@contextmanager
def _collected() -> Iterator[None]:
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
def _uncached_autocast() -> Iterator[None]:
    """Turn the weight cache of autocast off: a cached cast would freeze the weights into the recording."""
    cache = torch.is_autocast_cache_enabled()
    torch.set_autocast_cache_enabled(False)
    try:
        yield
    finally:
        torch.set_autocast_cache_enabled(cache)


@contextmanager
def _restored(buffers: Sequence[Tensor], backend: RecorderBackend) -> Iterator[None]:
    """Put buffers and random generators back as they were, after the back-end has finished its work."""
    saved = [b.detach().clone() for b in buffers]
    host = torch.get_rng_state()
    devices = torch.cuda.get_rng_state_all() if torch.cuda.is_initialized() else None  # type: ignore[no-untyped-call]
    try:
        yield
    finally:
        # first: side-stream work still running would overwrite what is restored
        backend.synchronize()
        with torch.no_grad():
            for buffer, value in zip(buffers, saved, strict=True):
                buffer.copy_(value)
        torch.set_rng_state(host)
        if devices is not None:
            torch.cuda.set_rng_state_all(devices)
