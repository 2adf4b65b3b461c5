"""Trains a detector from a configuration: the one function behind ``lucid fit``."""

import gc
import logging
import traceback
import warnings
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import lightning

from lucid_models import load_weights
from lucid_train.assembly import build_module, build_trainer, learned, run_callbacks
from lucid_train.auto import RunLength, resolve
from lucid_train.batch_size import is_out_of_memory, measured_batch
from lucid_train.callbacks import Observer
from lucid_train.config import FitConfig
from lucid_train.datamodule import DetectionDataModule, data_identity, tell_about
from lucid_train.device import check_hardware
from lucid_train.files import write_json, write_text
from lucid_train.fingerprint import digests_of
from lucid_train.launch import run_processes
from lucid_train.loggers import build_loggers
from lucid_train.module import DetectionLitModule
from lucid_train.nonfinite import StepGuard
from lucid_train.processes import from_first, is_main_process
from lucid_train.replay import replay_plan
from lucid_train.run_folder import (
    find_run,
    forget_run,
    new_run_folder,
    require_same,
    require_same_data,
    steps_made,
    stored_config,
)
from lucid_train.switches import check_switches
from lucid_train.tasks import task_row

log = logging.getLogger("lucid")


@dataclass(frozen=True)
class FitResult:
    """What a fit left behind: its folder, checkpoints, last metrics and, when asked for, fingerprints.

    ``transfer`` tells what initial weights were taken, ``replay`` is the content of ``replay.json``.
    """

    run: Path
    best_checkpoint: Path | None
    last_checkpoint: Path
    metrics: dict[str, float]
    fingerprint: dict[str, str] | None = None
    transfer: str = field(default="", compare=False)
    replay: dict[str, Any] = field(default_factory=dict, compare=False)

    def to_dict(self) -> dict[str, Any]:
        """Return plain values for JSON."""
        return {
            "run": str(self.run),
            "best_checkpoint": str(self.best_checkpoint) if self.best_checkpoint else None,
            "last_checkpoint": str(self.last_checkpoint),
            "metrics": self.metrics,
            "fingerprint": self.fingerprint,
        }


def fit(config: FitConfig, *, resume: str | None = None, observer: Observer | None = None) -> FitResult:
    """Train and return where the results are.

    Args:
        config: the run's configuration; open values are chosen from the data.
        resume: ``"last"`` or a checkpoint's path, to continue a run exactly.
        observer: called with :class:`lucid_train.Progress` as the run advances.

    Raises:
        ConfigError: a configuration that cannot be used or does not fit the run being resumed.
        FileNotFoundError, ValueError: data or weights that are not there or do not fit.
        Interrupted: the run was stopped by a signal, after saving its state.
    """
    task_row(config.model.task)
    check_hardware(config)
    with run_processes(config, resume) as config:
        return _fit(config, resume, observer if is_main_process() else None)


@dataclass(frozen=True)
class _Start:
    """What is settled before there is a network: every value, the data, and the run that goes on, if one does."""

    config: FitConfig
    data: DetectionDataModule
    identity: dict[str, Any]
    folder: Path | None
    checkpoint: Path | None
    steps: int


def _fit(config: FitConfig, resume: str | None, observer: Observer | None) -> FitResult:
    """Train in this process, one of those of the run."""
    check_switches(config)
    plan = replay_plan(config)
    start = _settled(config, resume)
    config, data, checkpoint = start.config, start.data, start.checkpoint
    # Unseeded generators have no part in a fit; this seeds the network's initial weights.
    lightning.seed_everything(config.run.seed, workers=False, verbose=False)
    module = build_module(config, data)
    if config.optimizer.skip_nonfinite:
        module.step_guard = StepGuard(config.optimizer.skip_nonfinite)
    transfer = initialise(module, config) if checkpoint is None else ""
    folder = _folder(start)
    callbacks = run_callbacks(config, module, plan, folder, start.identity, observer)
    loggers = build_loggers(config, folder) if is_main_process() else []
    trainer = build_trainer(config, callbacks.in_order, loggers)
    try:
        with warnings.catch_warnings(), callbacks.saver.catching_signals():
            for silenced in _LIGHTNING_HINTS:
                warnings.filterwarnings("ignore", message=silenced)
            trainer.fit(module, datamodule=data, ckpt_path=checkpoint, weights_only=True)
    except Exception as error:
        if trainer.global_step == 0 and resume is None and is_main_process():
            forget_run(folder)
        if is_out_of_memory(error):
            # what the failed step holds must not count against the trial
            traceback.clear_frames(error.__traceback__)
            del trainer, module, callbacks, loggers
            gc.collect()
            raise out_of_memory(config, data, resume) from error
        raise
    if checkpoint is not None and trainer.global_step == start.steps and is_main_process():
        log.info(
            "nothing was left to do: all %d steps are made; train on with --init %s", start.steps, checkpoint
        )
    digests = None
    if config.run.fingerprint:
        digests = digests_of(learned(trainer, module, callbacks))
        if is_main_process():
            write_json(folder / "fingerprint.json", digests, indent=2)
    rows, saver = callbacks.history.rows, callbacks.saver
    metrics = {name: float(value) for name, value in (rows[-1] if rows else {}).items()}
    best = saver.best if saver.best.is_file() else None
    return FitResult(folder, best, saver.last, metrics, digests, transfer, callbacks.replay.latest)


def _settled(config: FitConfig, resume: str | None) -> _Start:
    """Open the data, choose what is open, and check that a run which goes on is the one that was begun."""
    data = DetectionDataModule(config)
    folder, checkpoint, steps = None, None, 0
    if resume is not None:
        folder, checkpoint = from_first(find_run(config.run.output, resume))
    if config.data.batch is None:
        # a run goes on with the batch that it found, however much memory is free now
        batch = chosen_batch(config, data) if folder is None else stored_config(folder).data.batch
        config = config.updated(data={"batch": from_first(batch)})
        log.info("data.batch: %d", config.data.batch)
    images = len(data.train_catalog)
    config = resolve(config, run_length(config, images))
    data.use(config)
    identity = data_identity(data.train_catalog)
    tell_about(data.train_catalog)
    if is_main_process():
        sets = [f"{one.split} ({len(one)} images)" for one in (data.train_catalog, data.val_catalog)]
        log.info("training on the split %s, validating on %s", *sets)
    if folder is not None:
        stored = stored_config(folder)
        require_same(resolve(stored, run_length(stored, images)), config)
        if checkpoint is None:
            log.warning("%s has no checkpoint yet: starting from its first step", folder)
        else:
            require_same_data(checkpoint, identity)
            steps = steps_made(checkpoint)
            if is_main_process():
                log.info("continuing the run in %s", folder)
    return _Start(config, data, identity, folder, checkpoint, steps)


def _folder(start: _Start) -> Path:
    """Return the run's folder, the same in every process, with its configuration written."""
    folder = start.folder
    if is_main_process():
        folder = folder or new_run_folder(start.config)
        # what a run is does not depend on where it lies: a stored configuration names no folder
        write_text(folder / "config.yaml", start.config.updated(run={"output": None}).to_yaml())
    folder = from_first(folder)
    assert folder is not None
    return folder


# Hints that do not apply: the loaders choose their own workers, and one file per epoch is logged here.
_LIGHTNING_HINTS = (
    ".*does not have many workers.*",
    ".*smaller than the logging interval.*",
    ".*Checkpoint directory.*",
    ".*No loggers.*",
    ".*srun.*",
    ".*isinstance.treespec, LeafSpec.*",
    ".*on epoch level in distributed setting.*",
    ".*broadcast_buffers. is deprecated.*",
)


def run_length(config: FitConfig, images: int) -> RunLength:
    """Return the counts that the automatic choices look at."""
    per_step = (config.data.batch or 1) * config.run.devices * config.optimizer.accumulate
    return RunLength(images, max(1, -(-images // per_step)), config.run.epochs)


def chosen_batch(config: FitConfig, data: DetectionDataModule) -> int:
    """Return the batch that this device holds, by trial steps."""
    length = RunLength(len(data.train_catalog), 1, config.run.epochs)
    return measured_batch(config, data, lambda: build_module(resolve(config, length), data))


def out_of_memory(config: FitConfig, data: DetectionDataModule, resume: str | None = None) -> MemoryError:
    """Return the error of a run whose step did not fit, with the batch that fits, where trial steps can tell."""
    head = f"out of memory at {config.data.batch} images a step"
    if resume is not None:
        return MemoryError(
            f"{head}, which a resumed run keeps; free memory, or begin a new run from its weights: --init CHECKPOINT "
            "with a smaller --batch"
        )
    try:
        fits = chosen_batch(config, data)
    except (RuntimeError, MemoryError):
        return MemoryError(f"{head}, and two do not fit either; use a smaller --image-size or --size")
    fits = max(1, min(fits, (config.data.batch or 1) // 2))
    more = max(1, -(-(config.data.batch or 1) // fits))
    keep = f" (with --set optimizer.accumulate={more * config.optimizer.accumulate} a step stays as large)"
    return MemoryError(f"{head}; --batch {fits} fits{keep if more > 1 else ''}")


def initialise(module: DetectionLitModule, config: FitConfig) -> str:
    """Load the weights that ``model.init`` names, where they fit; return the table of what happened."""
    if config.model.init is None:
        if config.model.freeze:
            log.warning(
                "model.freeze keeps the random weights that a run begins with; name others with --init"
            )
        return ""
    return str(load_weights(module.detector, config.model.init))
