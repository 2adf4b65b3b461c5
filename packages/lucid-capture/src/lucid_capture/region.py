"""A guarded region: work of fixed shape that is recorded once and replayed while its guards hold."""

from __future__ import annotations

import warnings
from collections import Counter
from collections.abc import Callable, Hashable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from enum import Enum
from typing import Any

import torch
from torch import Tensor

from lucid_capture._bindings import first_difference
from lucid_capture._procedure import Saved, collected, stand_ins, uncached_autocast
from lucid_capture._rules import address, overlapping
from lucid_capture._tree import Structure, flatten, unflatten
from lucid_capture.backend import CaptureError, RecorderBackend, Recording, RefusingBackend
from lucid_capture.certificate import Certificate, FunctionCertificate, modules_of, refresh
from lucid_capture.gradients import Launches, Replayer, reach_of
from lucid_capture.probe import ExecutionProbe
from lucid_capture.reason import POLICY, Outcome, Reason
from lucid_capture.signature import Signature, signature


class State(Enum):
    """Where a region stands between calls."""

    IDLE = "idle"
    RECORDING = "recording"
    ACTIVE = "active"
    HELD = "held"
    RETIRED = "retired"
    CLOSED = "closed"


class ReplayWarning(UserWarning):
    """A region gave up replaying for good; the message names the first cause."""


class _Entry:
    """One recording, the parameters it feeds, what it was taken under, and the storages it reads."""

    def __init__(
        self,
        replayer: Replayer,
        parameters: Sequence[Tensor],
        structure: Structure,
        facts: Mapping[Reason, Hashable],
        stream: Hashable,
        surface: frozenset[int],
    ) -> None:
        self.replayer = replayer
        self.parameters = parameters
        self.structure = structure
        self.facts = facts
        self.stream = stream
        self.surface = surface


class GuardedRegion:
    """Calls ``native`` or replays a recording of it, with the same values and gradients either way.

    ``native`` takes nested tensors and host scalars and returns nested tensors. ``certificate`` names the
    parameters and buffers it reads and the facts a recording depends on. A ``differentiable`` region
    replays its backward pass too and is recorded and replayed with gradients enabled; another one only
    where no gradient is wanted.

    A signature is recorded at its sighting number ``record_after`` + 1, up to ``capacity`` of them. With
    ``growth``, a signature whose tensors are nowhere smaller replaces a recording that it covers.
    ``admit(*args)`` is a condition of the region's own: where it is false the call is native.
    ``policy`` overrides what single reasons lead to. A transient reason makes one call native; one that
    breaks the contract retires the region with a single `ReplayWarning`. ``counts`` says how many calls
    went by each reason. ``debug`` takes the certificate's full walk at every call.

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
        growth: bool = False,
        admit: Callable[..., bool] | None = None,
        probe: ExecutionProbe | None = None,
        debug: bool = False,
    ) -> None:
        self.name = name
        self.native = native
        self.backend: RecorderBackend = RefusingBackend() if backend is None else backend
        self.certificate: Certificate = FunctionCertificate() if certificate is None else certificate
        self.differentiable = differentiable
        self.policy = {**POLICY, **(policy or {})}
        self.record_after = record_after
        self.capacity = capacity
        self.growth = growth
        self.admit = admit
        self.probe = ExecutionProbe() if probe is None else probe
        self.debug = debug
        self.counts: Counter[Reason] = Counter()
        self.launches = Launches()
        self.retired_by: Reason | None = None
        self._closed = False
        self._paused = 0
        self._recording = False
        self._detail = ""
        self._entries: dict[Signature, _Entry] = {}
        self._sightings: Counter[Signature] = Counter()

    @property
    def state(self) -> State:
        """Where the region stands."""
        if self._closed:
            return State.CLOSED
        if self.retired_by is not None:
            return State.RETIRED
        if self._recording:
            return State.RECORDING
        if any(entry.replayer.held for entry in self._entries.values()):
            return State.HELD
        return State.ACTIVE if self._entries else State.IDLE

    def __call__(self, *args: Any) -> Any:
        """Return what ``native(*args)`` returns."""
        self._detail = ""
        reason = self._standing()
        if reason is not None:
            return self._native(reason, args)
        leaves, _ = flatten(args)
        tensors = [leaf for leaf in leaves if isinstance(leaf, Tensor)]
        reason = self._transient(args, tensors)
        if reason is not None:
            return self._act(reason, args)
        facts = self._facts()
        key = signature(args)
        entry = self._entries.get(key)
        if entry is None:
            reason = self._recordable(key, tensors, facts)
        else:
            reason = self._replayable(entry, tensors, facts)
        if reason is Reason.RECORDED:
            return self._record_and_replay(key, args, tensors)
        if reason is not Reason.REPLAYED or entry is None:
            return self._act(reason, args)
        self.counts[reason] += 1
        return unflatten(entry.structure, entry.replayer(tensors, entry.parameters))

    @contextmanager
    def paused(self) -> Iterator[None]:
        """Run natively inside the block, keeping the recordings."""
        self._paused += 1
        try:
            yield
        finally:
            self._paused -= 1

    def release(self) -> None:
        """Stop waiting for backward passes that were skipped; call at the start of a batch."""
        for entry in self._entries.values():
            entry.replayer.release()

    def refresh(self) -> None:
        """Let the next call take the certificate's full walk; call at the start of an epoch."""
        refresh(self.certificate)

    def drop(self) -> None:
        """Forget every recording; the next calls may record again."""
        for key in list(self._entries):
            self._forget(key)
        self._sightings.clear()

    def close(self) -> None:
        """Forget every recording and run natively from here on."""
        self.drop()
        self._closed = True

    def owned_bytes(self) -> int:
        """Return the memory that the region's recordings keep."""
        return sum(entry.replayer.recording.owned_bytes() for entry in self._entries.values())

    def __getstate__(self) -> dict[str, Any]:
        fresh: dict[str, Any] = {
            "_entries": {},
            "_sightings": Counter(),
            "_paused": 0,
            "_recording": False,
            "counts": Counter(),
            "launches": Launches(),
            "retired_by": None,
        }
        return {**self.__dict__, **fresh}

    def _parameters(self) -> tuple[Tensor, ...]:
        return self.certificate.parameters() if self.differentiable else ()

    def _facts(self) -> Mapping[Reason, Hashable]:
        if self.debug:
            refresh(self.certificate)
        return {Reason.PRECISION: self.probe.precision(), **self.certificate.facts()}

    def _standing(self) -> Reason | None:
        """Return why the region as it stands replays nothing."""
        if self._closed:
            return Reason.CLOSED
        if self.retired_by is not None:
            return Reason.RETIRED
        return Reason.PAUSED if self._paused else None

    def _transient(self, args: tuple[Any, ...], tensors: Sequence[Tensor]) -> Reason | None:
        """Return why this call may touch no recording, whichever there is."""
        if self.backend.in_capture():
            return Reason.IN_CAPTURE
        if self.probe.global_hooks():
            return Reason.GLOBAL_HOOKS
        if self.probe.mode() is not None:
            return Reason.MODE
        if self.differentiable and not torch.is_grad_enabled():
            return Reason.GRAD_MODE
        if not self.differentiable and torch.is_grad_enabled() and self._wants_gradient(tensors):
            return Reason.GRAD_MODE
        if self.state is State.HELD:
            return Reason.HELD
        if self.admit is not None and not self.admit(*args):
            return Reason.DECLINED
        return None

    def _wants_gradient(self, tensors: Sequence[Tensor]) -> bool:
        return any(t.requires_grad for t in (*tensors, *self.certificate.parameters()))

    def _replayable(
        self, entry: _Entry, tensors: Sequence[Tensor], facts: Mapping[Reason, Hashable]
    ) -> Reason:
        """Return REPLAYED when everything recorded still holds, else the reason of the first that does not."""
        for reason, recorded in entry.facts.items():
            found = facts.get(reason)
            if found is not recorded and found != recorded:
                self._detail = first_difference(recorded, found)
                return reason
        if self.backend.stream() != entry.stream:
            return Reason.STREAM
        if not entry.surface.isdisjoint(map(address, tensors)):
            return Reason.ALIASED
        return Reason.REPLAYED

    def _recordable(
        self, key: Signature, tensors: Sequence[Tensor], facts: Mapping[Reason, Hashable]
    ) -> Reason:
        """Return RECORDED when a new signature is to be recorded now, else why not."""
        if facts.get(Reason.HOOKS):
            return Reason.HOOKS
        state = [*self.certificate.parameters(), *self.certificate.buffers()]
        refusal = self.backend.refusal([*tensors, *state])
        if refusal is None and self.probe.processes() > 1:
            refusal = "several processes train together, where replay was never verified"
        if refusal is not None:
            self._detail = refusal
            return Reason.UNSUPPORTED
        if len(self._entries) >= self.capacity and self._covered(key) is None:
            return Reason.SIGNATURE
        self._sightings[key] += 1
        if self._sightings[key] <= self.record_after:
            return Reason.FIRST_SIGHTING
        surface = _surface(state)
        if overlapping(state) or not surface.isdisjoint(map(address, tensors)):
            return Reason.ALIASED
        return Reason.RECORDED

    def _covered(self, key: Signature) -> Signature | None:
        """Return the recorded signature that ``key`` may replace."""
        return next((old for old in self._entries if old.grows_into(key)), None) if self.growth else None

    def _forget(self, key: Signature) -> None:
        self._entries.pop(key).replayer.forget()

    def _act(self, reason: Reason, args: tuple[Any, ...]) -> Any:
        outcome = self.policy[reason]
        if outcome is Outcome.RAISE:
            self.counts[reason] += 1
            raise CaptureError(f"region {self.name!r}: {reason.value}")
        if outcome is Outcome.RETIRE:
            self._retire(reason)
        if outcome is Outcome.DROP:
            self.drop()
        return self._native(reason, args)

    def _native(self, reason: Reason, args: tuple[Any, ...]) -> Any:
        self.counts[reason] += 1
        return self.native(*args)

    def _retire(self, reason: Reason) -> None:
        self.drop()
        self.retired_by = reason
        detail = f" ({self._detail})" if self._detail else ""
        message = f"region {self.name!r} runs natively from here on: {reason.value}{detail}"
        warnings.warn(message, ReplayWarning, stacklevel=4)

    def _record_and_replay(self, key: Signature, args: tuple[Any, ...], tensors: list[Tensor]) -> Any:
        with collected():
            self._recording = True
            try:
                entry, results = self._recorded(args, tensors)
            except Exception:
                if self.policy[Reason.RECORDING_FAILED] is Outcome.RAISE:
                    self.counts[Reason.RECORDING_FAILED] += 1
                    raise
                return self._act(Reason.RECORDING_FAILED, args)
            finally:
                self._recording = False
            replaced = self._covered(key)
            if replaced is not None and len(self._entries) >= self.capacity:
                self._forget(replaced)
            self._entries[key] = entry
            self.counts[Reason.RECORDED] += 1
            return unflatten(entry.structure, results)

    def _recorded(self, args: tuple[Any, ...], tensors: list[Tensor]) -> tuple[_Entry, list[Tensor]]:
        """Return a new recording and the results of its first replay; on failure nothing has changed."""
        leaves, structure = flatten(args)
        results: list[Structure] = []

        def work(flat: Sequence[Tensor]) -> Sequence[Tensor]:
            live, versions = iter(flat), [t._version for t in flat]
            filled = [next(live) if isinstance(leaf, Tensor) else leaf for leaf in leaves]
            outputs, result = flatten(self.native(*unflatten(structure, filled)))
            self._check_work(flat, versions, outputs)
            results.append(result)
            return outputs

        parameters, buffers = self._parameters(), self.certificate.buffers()
        saved = Saved(buffers, self.backend)
        try:
            with uncached_autocast():
                reach = reach_of(work, tensors, parameters) if self.differentiable else ()
                with stand_ins(modules_of(self.certificate), parameters) as leaves_of_its_own:
                    recording = self.backend.record(work, tensors, leaves_of_its_own, self.differentiable)
            self._check_gradients(reach, recording)
        finally:
            saved.restore()
        replayer = Replayer(recording, reach, self.launches)
        try:
            replayed = replayer(tensors, parameters)
        except Exception:
            saved.restore()
            raise
        # taken after the warm-up runs, which may have touched what the facts describe
        surface = _surface([*parameters, *buffers])
        facts, stream = self._facts(), self.backend.stream()
        return _Entry(replayer, parameters, results[-1], facts, stream, surface), replayed

    def _check_gradients(self, reach: Sequence[Sequence[bool]], recording: Recording) -> None:
        """Raise CaptureError when a gradient that arrives natively is not part of the recording."""
        found = (*recording.input_grads, *recording.parameter_grads)
        for position, gradient in enumerate(found):
            if gradient is None and any(row[position] for row in reach):
                raise CaptureError(
                    f"region {self.name!r} reads parameter {position - len(recording.input_grads)} from outside "
                    "the modules of its certificate; read it through the module that holds it"
                )

    def _check_work(self, flat: Sequence[Tensor], versions: list[int], outputs: list[Any]) -> None:
        """Raise CaptureError for work whose effect a replay could not give."""
        for output in outputs:
            if not isinstance(output, Tensor):
                kind = type(output).__name__
                raise CaptureError(f"region {self.name!r} returns a {kind}; a recording gives tensors only")
        for position, (tensor, version) in enumerate(zip(flat, versions, strict=True)):
            if tensor._version != version:
                raise CaptureError(
                    f"region {self.name!r} writes into tensor {position} of its arguments; "
                    "a replay works on a copy: write to a clone, or keep the tensor in the certificate"
                )


def _surface(tensors: Sequence[Tensor]) -> frozenset[int]:
    return frozenset(address(t) for t in tensors if t.numel())
