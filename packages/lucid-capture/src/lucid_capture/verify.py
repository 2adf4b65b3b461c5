"""Whether replay gives the bytes of eager execution, asked so that the answer cannot be empty."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor

from lucid_capture._tree import flatten
from lucid_capture.reason import Reason
from lucid_capture.region import GuardedRegion
from lucid_capture.snapshot import Holder, Snapshot, named_tensors
from lucid_capture.step import GraphedStep
from lucid_capture.testing import Comparison, same_bytes

Batch = tuple[Any, ...]
Moment = dict[str, Any]


@dataclass(frozen=True)
class Verdict:
    """What `verify` found; true when replay was proven equal.

    ``control`` compares two eager runs, ``replay`` an eager run with a replayed one; both name the first
    tensor that differs. ``launches`` are the forward launches of the replayed run, by region. ``problem`` says
    in one line why the verdict is not a proof, None when it is one.
    """

    control: Comparison
    replay: Comparison
    launches: Mapping[str, int]
    problem: str | None

    def __bool__(self) -> bool:
        return self.problem is None

    def __str__(self) -> str:
        count = sum(self.launches.values())
        return self.problem or f"replay gives the bytes of eager execution ({count} launches)"


def verify(
    step: Callable[..., Any],
    batches: Sequence[Batch],
    *,
    regions: Sequence[GuardedRegion] | None = None,
    state: Mapping[str, Holder] | None = None,
) -> Verdict:
    """Return whether ``step(*batch)`` leaves the same bytes with its regions replayed as without.

    From one snapshot of ``state`` and the random generators the batches run eagerly twice, which must agree
    (else nothing can be judged), and once with ``regions`` at work. After each batch results and state are
    compared. So that it cannot pass for nothing: the first two batches must give different results, every
    region must have launched for two different batches, and a replayed moment must not equal the eager moment
    of another batch.

    ``step`` may be a `GraphedStep` or a `GuardedRegion` (which is run forward and, when differentiable,
    backward); any other callable needs ``regions`` and ``state``: modules, optimizers and mappings of
    tensors by name. At the end state, generators and the regions' recordings are what they were before.
    Raises ValueError for fewer than two batches, TypeError for a step whose state is not known.

    >>> from lucid_capture import TapeBackend
    >>> region = GuardedRegion("double", lambda x: x * 2, backend=TapeBackend())
    >>> print(verify(region, [(torch.zeros(2),), (torch.ones(2),)]))
    replay gives the bytes of eager execution (3 launches)
    """
    if len(batches) < 2:
        raise ValueError(f"verify needs two batches that differ, got {len(batches)}")
    run, regions, state = _resolved(step, regions, state)
    generators = tuple({id(g): g for r in regions for g in r.backend.generators}.values())
    before = Snapshot(state, generators)
    # enough turns for every region to see each signature, record it, and replay two batches
    turns = max(len(batches), max(r.record_after for r in regions) + 3)
    order = [batches[i % len(batches)] for i in range(turns)]

    def history(eager: bool) -> list[Moment]:
        with ExitStack() as stack:
            if eager:
                for region in regions:
                    stack.enter_context(region.paused())
            try:
                return [_moment(run(*batch), state) for batch in order]
            finally:
                before.restore()

    with _fresh(regions):
        first, second = history(eager=True), history(eager=True)
        replayed = history(eager=False)
        launches = {region.name: region.launches.forward for region in regions}
        native = {region.name: dict(region.counts) for region in regions}
    control, replay = same_bytes(first, second), same_bytes(first, replayed)
    return Verdict(control, replay, launches, _problem(control, replay, launches, native, first, replayed))


def _problem(
    control: Comparison,
    replay: Comparison,
    launches: Mapping[str, int],
    native: Mapping[str, Any],
    eager: list[Moment],
    replayed: list[Moment],
) -> str | None:
    if not control:
        return f"eager execution does not reproduce itself, nothing can be judged: {control}"
    if same_bytes(eager[0]["results"], eager[1]["results"]):
        return "the first two batches give the same results: give batches that differ"
    idle = [name for name, count in launches.items() if count < 2]
    if idle:
        reasons = ", ".join(
            f"{r.name.lower()} {n}" for r, n in native[idle[0]].items() if r is not Reason.PAUSED
        )
        return f"region {idle[0]!r} replayed fewer than two batches, nothing was tested: {reasons}"
    if not replay:
        return f"replay differs from eager execution: {replay}"
    if same_bytes(eager[-2], replayed[-1]):
        return "the replay of one batch equals the eager run of another: the comparison proves nothing"
    return None


def _moment(results: Any, state: Mapping[str, Holder]) -> Moment:
    """Return copies of a step's results and of all state after it."""
    leaves, _ = flatten(results)
    copies = [leaf.detach().clone() if isinstance(leaf, Tensor) else leaf for leaf in leaves]
    kept = {name: _copied(named_tensors(holder)) for name, holder in state.items()}
    return {"results": copies, **kept, "random": torch.get_rng_state()}


def _copied(tensors: Mapping[str, Tensor]) -> dict[str, Tensor]:
    return {name: tensor.detach().clone() for name, tensor in tensors.items()}


def _resolved(
    step: Callable[..., Any],
    regions: Sequence[GuardedRegion] | None,
    state: Mapping[str, Holder] | None,
) -> tuple[Callable[..., Any], Sequence[GuardedRegion], Mapping[str, Holder]]:
    if isinstance(step, GraphedStep):
        return step, regions or [step.region], {**step.state(), **(state or {})}
    if isinstance(step, GuardedRegion):
        return _exercise(step), [step], {"region": _reads(step), **(state or {})}
    if not regions or state is None:
        raise TypeError("verify needs the regions and the state of a step that is a plain callable")
    return step, regions, state


def _reads(region: GuardedRegion) -> dict[str, Tensor]:
    """Return the tensors in a region's certificate, by name where it has names."""
    names = getattr(region.certificate, "named", None)
    if names is not None:
        named: dict[str, Tensor] = names()
        return named
    both = (*region.certificate.parameters(), *region.certificate.buffers())
    return {f"tensor[{number}]": tensor for number, tensor in enumerate(both)}


def _exercise(region: GuardedRegion) -> Callable[..., Any]:
    """Return a step around a bare region: its results and the gradients of half their squared sum."""

    def step(*batch: Any) -> Any:
        with torch.set_grad_enabled(region.differentiable):
            results = region(*batch)
        outputs = [t for t in flatten(results)[0] if isinstance(t, Tensor) and t.requires_grad]
        inputs = [t for t in flatten(batch)[0] if isinstance(t, Tensor) and t.requires_grad]
        targets = [*inputs, *region.certificate.parameters()]
        if not outputs or not targets:
            return results
        # with its own outputs as incoming gradients: that of half their squared sum
        found = torch.autograd.grad(outputs, targets, [o.detach() for o in outputs], allow_unused=True)
        return results, list(found)

    return step


@contextmanager
def _fresh(regions: Sequence[GuardedRegion]) -> Iterator[None]:
    """Let regions start without recordings and counters inside the block, and have their own back after it."""
    kept = [dict(region.__dict__) for region in regions]
    for region in regions:
        region.__dict__.update(region.__getstate__())
    try:
        yield
    finally:
        for region, own in zip(regions, kept, strict=True):
            region.drop()
            region.__dict__.clear()
            region.__dict__.update(own)
