"""A whole training step as one region: forward, loss, backward, clipping, optimizer, moving average."""

from __future__ import annotations

from collections.abc import Callable, Hashable, Mapping
from typing import Any

import torch
from torch import Tensor, nn

from lucid_capture._bindings import Same
from lucid_capture._procedure import stand_ins
from lucid_capture._tree import flatten, unflatten
from lucid_capture.backend import CaptureError, RecorderBackend, by_dtype, capture_under_way
from lucid_capture.certificate import CompositeCertificate, ModuleCertificate
from lucid_capture.reason import Outcome, Reason
from lucid_capture.region import GuardedRegion
from lucid_capture.report import ReplayReport
from lucid_capture.scalars import HostScalars
from lucid_capture.signature import Signature, scalar_bits, signature
from lucid_capture.snapshot import host_numbers, named_tensors

_STEP_HOOKS = ("_optimizer_step_pre_hooks", "_optimizer_step_post_hooks")


class GraphedStep:
    """Runs ``loss(*batch)``, its backward pass, clipping, ``optimizer.step()`` and the average as one region.

    ``loss`` takes the batch (nested tensors) and the named ``scalars`` as keywords, 0-d tensors; it returns
    the scalar to minimise, alone or first in a nest of further tensors to report. ``optimizer`` is whatever
    has ``param_groups``, ``state`` and ``step()`` and reads no value on the host: of torch's own, the ones
    built with ``fused=True``, and ``capturable=True`` where they have it. ``clip_norm`` limits the total gradient norm;
    ``ema_decay`` keeps moving averages of floating-point parameters and buffers in ``ema``.

    What a schedule changes lives on the device: learning rates become 0-d tensors in the groups (assign a
    number, or let a scheduler fill them), and ``scalars`` holds the named ones with ``clip_norm`` and
    ``ema_decay``. Other options of a group are frozen into the recording; changing one retires it.

    The first call is native, so that the optimizer builds its state. Gradients stay readable in ``.grad``,
    in memory that no replay reuses. ``region`` holds the counters. Raises ValueError for ``record_after`` < 1.

    >>> from lucid_capture import TapeBackend
    >>> net = nn.Linear(2, 1)
    >>> optimizer = torch.optim.SGD(net.parameters(), lr=0.1, fused=True)
    >>> step = GraphedStep(net, lambda x: net(x).square().mean(), optimizer, backend=TapeBackend())
    >>> losses = [step(torch.ones(4, 2)).item() for _ in range(4)]
    >>> losses == sorted(losses, reverse=True), step.region.counts[Reason.REPLAYED]
    (True, 2)
    """

    def __init__(
        self,
        model: nn.Module,
        loss: Callable[..., Any],
        optimizer: Any,
        *,
        backend: RecorderBackend | None = None,
        scalars: Mapping[str, float] | None = None,
        clip_norm: float | None = None,
        ema_decay: float | None = None,
        policy: Mapping[Reason, Outcome] | None = None,
        record_after: int = 1,
        capacity: int = 1,
        growth: bool = False,
        admit: Callable[..., bool] | None = None,
        debug: bool = False,
        name: str = "step",
    ) -> None:
        if record_after < 1:
            raise ValueError(
                f"record_after must be at least 1, got {record_after}: the first step builds state"
            )
        self.model = model
        self.loss = loss
        self.optimizer = optimizer
        self._parameters: list[Tensor] = [p for group in optimizer.param_groups for p in group["params"]]
        device = self._parameters[0].device
        own = {"clip_norm": clip_norm, "ema_decay": ema_decay}
        present = {name: value for name, value in own.items() if value is not None}
        self.scalars = HostScalars({**(scalars or {}), **present}, device)
        self._passed = tuple(scalars or {})
        self._clips = clip_norm is not None
        self._rates = [_rate(group["lr"], device) for group in optimizer.param_groups]
        self._gradients: dict[int, Tensor] = {}
        self._reached: dict[Signature, tuple[int, ...]] = {}
        self._current: Signature | None = None
        self.ema: dict[str, Tensor] = (
            {} if ema_decay is None else {n: t.detach().clone() for n, t in _averaged(model).items()}
        )
        self.region = GuardedRegion(
            name,
            self._run,
            backend=backend,
            certificate=CompositeCertificate(ModuleCertificate(model), _StepCertificate(self)),
            policy=policy,
            record_after=record_after,
            capacity=capacity,
            growth=growth,
            admit=admit,
            debug=debug,
        )

    def __call__(self, *batch: Any) -> Any:
        """Take one step and return what ``loss`` returns, without gradients."""
        self._sync_rates()
        self._current = key = signature(batch)
        # the step differentiates inside; nothing differentiates through it
        with torch.no_grad():
            result = self.region(*batch)
        self._attach(self._reached[key])
        return result

    def state(self) -> dict[str, Any]:
        """Return the holders of everything a step changes, by name: model, optimizer, ema."""
        return {"model": self.model, "optimizer": self.optimizer, "ema": self.ema}

    def report(self) -> ReplayReport:
        """Return the counters of the step as they stand."""
        return ReplayReport.of([self.region])

    def close(self) -> None:
        """Forget the recording and put learning rates back as host numbers; later steps are native."""
        self.region.close()
        for group, rate in zip(self.optimizer.param_groups, self._rates, strict=True):
            group["lr"] = float(rate)
        self._rates = []

    def _sync_rates(self) -> None:
        """Bring learning rates that someone assigned into the tensors that a recording reads."""
        for group, rate in zip(self.optimizer.param_groups, self._rates, strict=False):
            if group["lr"] is not rate:
                rate.copy_(group["lr"]) if isinstance(group["lr"], Tensor) else rate.fill_(group["lr"])
                group["lr"] = rate

    def _run(self, *batch: Any) -> Any:
        wanted = [i for i, p in enumerate(self._parameters) if p.requires_grad]
        own = [self._parameters[i] for i in wanted]
        modules = tuple(self.model.modules()) if capture_under_way() else ()
        with torch.enable_grad(), stand_ins(modules, own) as targets:
            result = self.loss(*batch, **{n: self.scalars.tensors[n] for n in self._passed})
            leaves, structure = flatten(result)
            found = torch.autograd.grad(leaves[0], targets, allow_unused=True)
        with torch.no_grad():
            reached = self._own({i: g for i, g in zip(wanted, found, strict=True) if g is not None})
            if self._clips:
                self._clip([self._gradients[i] for i in reached])
            self._update()
            self._average()
        return unflatten(structure, [leaf.detach() for leaf in leaves])

    def _own(self, found: Mapping[int, Tensor]) -> tuple[int, ...]:
        """Move gradients into memory of their own, one launch per dtype, and hang them on the parameters."""
        for index in found:
            if index not in self._gradients:
                self._gradients[index] = torch.empty_like(self._parameters[index])
        order, key = tuple(found), self._current
        if capture_under_way() and key is not None and self._reached.get(key) != order:
            raise CaptureError(
                "the recorded step reaches other parameters than the native one did: read parameters through the "
                "modules that hold them, and let no value decide which are used"
            )
        for indices in by_dtype([found[i] for i in order]):
            chosen = [order[i] for i in indices]
            torch._foreach_copy_([self._gradients[i] for i in chosen], [found[i] for i in chosen])
        if key is not None:
            self._reached[key] = order
        self._attach(order)
        return order

    def _attach(self, reached: tuple[int, ...]) -> None:
        """Let the parameters that a step reached show their gradients, and the others none."""
        shown = {index: self._gradients[index] for index in reached}
        for index, parameter in enumerate(self._parameters):
            if parameter.grad is not shown.get(index):
                parameter.grad = shown.get(index)

    def _clip(self, gradients: list[Tensor]) -> None:
        total = torch.nn.utils.get_total_norm(gradients)
        limit = self.scalars.tensors["clip_norm"].to(total.dtype)
        # in torch a number over a tensor is its reciprocal times the number, which rounds differently
        scale = torch.clamp((total + 1e-6).reciprocal() * limit, max=1.0)
        for indices in by_dtype(gradients):
            torch._foreach_mul_([gradients[i] for i in indices], scale)

    def _update(self) -> None:
        before = host_numbers(self.optimizer) if capture_under_way() else None
        self.optimizer.step()
        if before is None:
            return
        for name, value in host_numbers(self.optimizer).items():
            if name not in before or scalar_bits(before[name]) != scalar_bits(value):
                raise CaptureError(
                    f"{type(self.optimizer).__name__} keeps a host number, {name}, that its step changes; "
                    "a replay would not: keep it as a tensor (torch: fused=True, capturable=True)"
                )

    def _average(self) -> None:
        if not self.ema:
            return
        live, shadow = _averaged(self.model), list(self.ema.values())
        weight = 1.0 - self.scalars.tensors["ema_decay"]
        for indices in by_dtype(shadow):
            chosen, blend = [shadow[i] for i in indices], weight.to(shadow[indices[0]].dtype)
            names = list(self.ema)
            torch._foreach_lerp_(chosen, [live[names[i]] for i in indices], [blend] * len(chosen))


class _StepCertificate:
    """What a step reads and writes besides its model: gradients, optimizer, average, rates, functions."""

    def __init__(self, step: GraphedStep) -> None:
        self._step = step

    def parameters(self) -> tuple[Tensor, ...]:
        """Return nothing: no gradient leaves a step."""
        return ()

    def buffers(self) -> tuple[Tensor, ...]:
        """Return everything a step changes, except the model's buffers."""
        step = self._step
        kept = named_tensors(step.optimizer).values()
        every = (*step._parameters, *step._gradients.values(), *kept, *step.ema.values())
        return tuple({id(t): t for t in every}.values())

    def facts(self) -> Mapping[Reason, Hashable]:
        """Return the optimizer's tensors, options, functions and hooks."""
        step, optimizer = self._step, self._step.optimizer
        written = (*named_tensors(optimizer).items(), *step.ema.items())
        hooked = any(getattr(optimizer, table, None) for table in _STEP_HOOKS)
        return {
            Reason.STRUCTURE: (Same(step.loss), type(optimizer), Same(optimizer.__dict__.get("step"))),
            Reason.HOOKS: hooked or any(p._post_accumulate_grad_hooks for p in step._parameters),
            Reason.STORAGE: (
                tuple((name, t.data_ptr(), t.stride(), t.dtype) for name, t in written),
                tuple(id(p) for group in optimizer.param_groups for p in group["params"]),
            ),
            Reason.CONTRACT: tuple((n, type(v), scalar_bits(v)) for n, v in host_numbers(optimizer).items()),
        }

    def refresh(self) -> None:
        """Nothing is kept between calls."""


def _rate(rate: float | Tensor, device: torch.device) -> Tensor:
    """Return a learning rate as a 0-d tensor; float32 is what fused kernels read."""
    if isinstance(rate, Tensor) and rate.device == device:
        return rate
    return torch.full((), float(rate), dtype=torch.float32, device=device)


def _averaged(model: nn.Module) -> dict[str, Tensor]:
    named = (*model.named_parameters(), *model.named_buffers())
    return {name: t.detach() for name, t in named if t.is_floating_point()}
