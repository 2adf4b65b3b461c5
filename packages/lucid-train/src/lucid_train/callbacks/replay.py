"""Owns the recordings of one fit: lends them to the module, reports what they did, and takes them back."""

import logging
import statistics
import time
from collections.abc import Callable, Mapping, Sequence
from contextlib import ExitStack
from dataclasses import asdict
from pathlib import Path
from typing import Any

import lightning
from lightning.pytorch.callbacks import Callback

from lucid_capture import GradientNorm, GuardedRegion, RegionGroup, ReplayReport, TapeBackend
from lucid_optim import MuSGD
from lucid_train.files import write_json
from lucid_train.module import DetectionLitModule
from lucid_train.replay import (
    REPLAY_SWITCHES,
    CompiledStep,
    NetworkRoute,
    ReplayedDetection,
    ReplayedStep,
    ReplayPlan,
)

log = logging.getLogger("lucid")

SETTLING, MEASURED = 4, 8
"""Batches that pass before and while a route is timed; the recordings are made while the second one settles."""


class Replay(Callback):
    """Replays what a plan says; regions live for one fit, whichever way it ends.

    Args:
        plan: the switches that are on, and their back-end.
        path: where ``replay.json`` goes, rewritten after every epoch.
        clock: seconds, for a plan that keeps the faster route.
    """

    def __init__(self, plan: ReplayPlan, path: Path, clock: Callable[[], float] = time.perf_counter) -> None:
        self.plan, self.path, self._clock = plan, path, clock
        self.kept: str | None = None
        self.latest: dict[str, Any] = {}
        self._group = RegionGroup()
        self._regions: dict[str, Sequence[GuardedRegion]] = {}
        self._compiled: CompiledStep | None = None
        self._paused = ExitStack()
        self._times: list[float] = []
        self._started = 0.0

    def setup(self, trainer: lightning.Trainer, pl_module: lightning.LightningModule, stage: str) -> None:
        """Say how the optimizer is to be built, which happens before the fit starts."""
        if stage == "fit" and self.plan.backend is not None:
            assert isinstance(pl_module, DetectionLitModule)
            wanted = {name: self.plan.has(name) for name in ("capture_orthogonalization", "capture_updates")}
            pl_module.optimizer_captures = (
                {**wanted, "backend": self.plan.backend} if any(wanted.values()) else {}
            )

    def on_fit_start(self, trainer: lightning.Trainer, pl_module: lightning.LightningModule) -> None:
        """Make the regions and lend them."""
        assert isinstance(pl_module, DetectionLitModule)
        self._group = RegionGroup(trainer)
        if self.plan.backend is None:
            return
        self._regions = lend(pl_module, trainer.optimizers[0], self.plan)
        step = pl_module.whole_step
        self._compiled = step if isinstance(step, CompiledStep) else None
        for region in (region for regions in self._regions.values() for region in regions):
            self._group.add(region)
        if self.plan.measured:
            self._pause()

    def on_train_epoch_start(self, trainer: lightning.Trainer, pl_module: lightning.LightningModule) -> None:
        """Have every certificate take its full walk."""
        self._group.begin_epoch()

    def on_train_batch_start(
        self, trainer: lightning.Trainer, pl_module: lightning.LightningModule, *_: object
    ) -> None:
        """Give up backward passes that the last batch skipped, and start the clock of a measurement."""
        self._group.begin_batch()
        self._started = self._now()

    def on_train_batch_end(
        self, trainer: lightning.Trainer, pl_module: lightning.LightningModule, *_: object
    ) -> None:
        """Time native steps, then replayed ones, then keep the faster route; the bytes are the same."""
        if not self.plan.measured or self.plan.backend is None or self.kept is not None:
            return
        self._times.append(self._now() - self._started)
        if len(self._times) == SETTLING + MEASURED:
            self._paused.close()
        elif len(self._times) == 2 * (SETTLING + MEASURED):
            native, replayed = (
                statistics.median(self._times[end - MEASURED : end])
                for end in (SETTLING + MEASURED, 2 * (SETTLING + MEASURED))
            )
            self.kept = "replayed" if replayed < native else "native"
            if self.kept == "native":
                self._pause()
            log.info(
                "replay: a native step takes %.1f ms, a replayed one %.1f ms; going on with %s steps",
                1e3 * native,
                1e3 * replayed,
                self.kept,
            )

    def on_train_epoch_end(self, trainer: lightning.Trainer, pl_module: lightning.LightningModule) -> None:
        """Write the counters as they stand."""
        self._write(trainer)

    def on_fit_end(self, trainer: lightning.Trainer, pl_module: lightning.LightningModule) -> None:
        """Write the counters and take everything back."""
        self._end(trainer, pl_module)

    def on_exception(
        self, trainer: lightning.Trainer, pl_module: lightning.LightningModule, exception: BaseException
    ) -> None:
        """Take everything back, whatever went wrong."""
        self._end(trainer, pl_module)

    def report(self) -> dict[str, Any]:
        """Return mode, back-end, the route that was kept after measuring, and every region's counters by switch."""
        options = {
            name: [asdict(region) for region in ReplayReport.of(regions).regions]
            for name, regions in self._regions.items()
        }
        if self._compiled is not None:
            options["compile_step"] = [self._compiled.report()]
        return {
            "mode": self.plan.mode,
            "backend": type(self.plan.backend).__name__ if self.plan.backend else None,
            "kept": self.kept,
            "options": options,
        }

    def _end(self, trainer: lightning.Trainer, pl_module: lightning.LightningModule) -> None:
        if not self._group.belongs_to(trainer):
            return
        self._paused.close()
        if trainer.global_step > 0:
            self._write(trainer)
        assert isinstance(pl_module, DetectionLitModule)
        take_back(pl_module)
        self._group.close()

    def _write(self, trainer: lightning.Trainer) -> None:
        self.latest = self.report()
        if trainer.is_global_zero:
            write_json(self.path, self.latest)

    def _pause(self) -> None:
        for region in self._group:
            self._paused.enter_context(region.paused())

    def _now(self) -> float:
        if self.plan.measured and self.plan.backend is not None:
            self.plan.backend.synchronize()
        return self._clock()


def lend(
    module: DetectionLitModule, optimizer: object, plan: ReplayPlan
) -> dict[str, Sequence[GuardedRegion]]:
    """Give the module what replays the parts of a step; return the regions by switch."""
    assert plan.backend is not None
    lent: dict[str, Sequence[GuardedRegion]] = {}
    task = module.detector.task
    parts = {name: REPLAY_SWITCHES[name].parts.get(task, ()) for name in plan.switches}
    if every := [part for some in parts.values() for part in some]:
        module.network_route = route = NetworkRoute(module.detector, every, plan.backend)
        lent |= {name: [route.regions[part] for part in some] for name, some in parts.items() if some}
    if plan.has("capture_loss"):
        detection = ReplayedDetection(module.criterion.detection, plan.backend, module.device)
        module.criterion.detection = detection
        lent["capture_loss"] = [detection.region]
    if plan.has("capture_step"):
        module.whole_step = step = ReplayedStep(module, plan.backend, module.device)
        lent["capture_step"] = [step.region]
    if plan.has("compile_step"):
        # the tape follows work and compiles nothing, and so does this back-end of torch.compile
        compiler = "eager" if isinstance(plan.backend, TapeBackend) else "inductor"
        module.whole_step = CompiledStep(module.detector, module.criterion, module.device, compiler)
    if plan.has("capture_gradient_norm"):
        module.clipper = GradientNorm(backend=plan.backend)
        lent["capture_gradient_norm"] = [module.clipper.region]
    if isinstance(optimizer, MuSGD):
        first = int(optimizer.capture_orthogonalization)
        split: Mapping[str, Sequence[GuardedRegion]] = {
            "capture_orthogonalization": optimizer.regions[:first],
            "capture_updates": optimizer.regions[first:],
        }
        lent |= {name: regions for name, regions in split.items() if regions}
    return lent


def take_back(module: DetectionLitModule) -> None:
    """Leave a module as it was before `lend`."""
    if module.whole_step is not None:
        module.whole_step.close()
    module.network_route, module.whole_step, module.clipper = None, None, None
    module.optimizer_captures = {}
    if isinstance(module.criterion.detection, ReplayedDetection):
        module.criterion.detection = module.criterion.detection.native
