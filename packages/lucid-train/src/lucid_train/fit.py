"""Trains a detector from a configuration: the one function behind ``lucid fit``."""

import gc
import logging
import os
import traceback
import warnings
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import lightning
import torch
from lightning.fabric.plugins.environments.torchelastic import TorchElasticEnvironment
from lightning.pytorch.callbacks import Callback
from lightning.pytorch.loggers import Logger
from lightning.pytorch.strategies import DDPStrategy

from lucid_models import load_weights
from lucid_train.auto import RunLength, resolve
from lucid_train.batch_size import is_out_of_memory, measured_batch
from lucid_train.callbacks import (
    Checkpoints,
    EarlyStop,
    EmaCallback,
    History,
    LoaderEpoch,
    Observe,
    Observer,
    ProgressiveWeight,
    Replay,
    SharedBuffers,
    ValidateLast,
)
from lucid_train.config import FitConfig
from lucid_train.datamodule import DetectionDataModule, data_identity, tell_about
from lucid_train.device import check_hardware
from lucid_train.files import write_json, write_text
from lucid_train.fingerprint import digests_of
from lucid_train.launch import run_processes
from lucid_train.loggers import build_loggers
from lucid_train.module import DetectionLitModule
from lucid_train.nonfinite import StepGuard
from lucid_train.processes import from_first, is_main_process, world_size
from lucid_train.replay import replay_plan
from lucid_train.run_folder import (
    find_run,
    forget_run,
    new_run_folder,
    require_same,
    require_same_data,
    stored_config,
)
from lucid_train.switches import check_switches
from lucid_train.tasks import TaskRow, task_row

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


def _fit(config: FitConfig, resume: str | None, observer: Observer | None) -> FitResult:
    """Train in this process, one of those of the run."""
    check_switches(config)
    plan = replay_plan(config)
    data = DetectionDataModule(config)
    folder, checkpoint = None, None
    if resume is not None:
        folder, checkpoint = from_first(find_run(config.run.output, resume))
    if config.data.batch is None:
        # a run goes on with the batch that it found, however much memory is free now
        batch = chosen_batch(config, data) if folder is None else stored_config(folder).data.batch
        config = config.updated(data={"batch": from_first(batch)})
        log.info("data.batch: %d", config.data.batch)
    config = resolve(config, run_length(config, len(data.train_catalog)))
    data.use(config)
    identity = data_identity(data.train_catalog)
    tell_about(data.train_catalog)
    if folder is not None:
        require_same(stored_config(folder), config)
        if checkpoint is None:
            log.warning("%s has no checkpoint yet: starting from its first step", folder)
        else:
            require_same_data(checkpoint, identity)
            if is_main_process():
                log.info("continuing the run in %s", folder)

    # Unseeded generators have no part in a fit; this seeds the network's initial weights.
    lightning.seed_everything(config.run.seed, workers=False, verbose=False)
    module = build_module(config, data)
    transfer = initialise(module, config) if checkpoint is None else ""
    if is_main_process():
        folder = folder or new_run_folder(config)
        # what a run is does not depend on where it lies: a stored configuration names no folder
        write_text(folder / "config.yaml", config.updated(run={"output": None}).to_yaml())
    folder = from_first(folder)
    assert folder is not None
    if config.optimizer.skip_nonfinite:
        module.step_guard = StepGuard(config.optimizer.skip_nonfinite)
    history = History(folder / "metrics.csv")
    steps = config.run.checkpoint_steps
    saver = Checkpoints(folder / "checkpoints", module.row.headline, steps, extra={"data": identity})
    ema = EmaCallback(config.ema.decay or 0.9999, config.ema.tau or 2000.0) if config.ema.enabled else None
    replay = Replay(plan, folder / "replay.json")
    callbacks: list[Callback] = [LoaderEpoch(), ValidateLast(), ProgressiveWeight(), replay]
    callbacks += [module.step_guard] if module.step_guard is not None else []
    callbacks += [SharedBuffers()] if world_size() > 1 else []
    callbacks += [ema] if ema else []
    if config.run.patience is not None:
        callbacks += [EarlyStop(module.row.headline, config.run.patience)]
    callbacks += [history]
    callbacks += [Observe(observer)] if observer else []
    callbacks += [saver]
    trainer = build_trainer(config, callbacks, build_loggers(config, folder) if is_main_process() else [])
    try:
        with warnings.catch_warnings(), saver.catching_signals():
            for silenced in _LIGHTNING_HINTS:
                warnings.filterwarnings("ignore", message=silenced)
            trainer.fit(module, datamodule=data, ckpt_path=checkpoint, weights_only=True)
    except Exception as error:
        if trainer.global_step == 0 and resume is None and is_main_process():
            forget_run(folder)
        if is_out_of_memory(error):
            # what the failed step holds must not count against the trial
            traceback.clear_frames(error.__traceback__)
            del trainer, module, ema, callbacks, history, saver, replay
            gc.collect()
            raise out_of_memory(config, data, resume) from error
        raise
    digests = None
    if config.run.fingerprint:
        digests = digests_of(learned(trainer, module, ema, history))
        if is_main_process():
            write_json(folder / "fingerprint.json", digests, indent=2)
    metrics = {name: float(value) for name, value in (history.rows[-1] if history.rows else {}).items()}
    best = saver.best if saver.best.is_file() else None
    return FitResult(folder, best, saver.last, metrics, digests, transfer, replay.latest)


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


def build_module(config: FitConfig, data: DetectionDataModule) -> DetectionLitModule:
    """Return the module for the data's classes, ready for a trainer."""
    module = DetectionLitModule(
        config.model.task,
        config.model.size,
        data.train_catalog.num_classes,
        data.train_catalog.class_names,
        num_keypoints=data.train_catalog.num_keypoints,
        optimizer=config.optimizer,
        loss=config.loss,
    )
    module.image_size = config.data.image_size
    module.validation_catalog = data.val_catalog
    module.validation_shard = data.val_shard()
    module.both_heads = config.run.both_heads
    module.multi_scale, module.multi_scale_seed = config.data.multi_scale, config.run.seed
    if config.model.freeze:
        module.freeze_stages(config.model.freeze)
    return module


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


def build_trainer(
    config: FitConfig, callbacks: list[Callback], loggers: list[Logger] | None = None
) -> lightning.Trainer:
    """Return the Lightning trainer of a run; checkpoints, the table and progress are the callbacks' business."""
    # every tensor here is written before it is read
    setattr(torch.utils.deterministic, "fill_uninitialized_memory", False)  # noqa: B010 (no stub has it)
    logging.getLogger("lightning.pytorch").setLevel(logging.WARNING)
    logging.getLogger("lightning.fabric").setLevel(logging.WARNING)
    return lightning.Trainer(
        accelerator="gpu" if config.run.device == "cuda" else config.run.device,
        **placement(task_row(config.model.task)),
        precision=config.run.precision,
        max_epochs=config.run.epochs,
        accumulate_grad_batches=config.optimizer.accumulate,
        gradient_clip_val=config.optimizer.clip_norm,
        check_val_every_n_epoch=config.run.validate_every,
        deterministic=True if config.run.device != "mps" else "warn",
        callbacks=callbacks,
        logger=loggers or False,
        enable_checkpointing=False,
        enable_progress_bar=False,
        enable_model_summary=False,
        num_sanity_val_steps=0,
        use_distributed_sampler=False,
    )


def placement(row: TaskRow) -> dict[str, Any]:
    """Return the trainer's arguments that say which processes it belongs to.

    Where a batch's labels decide which parameters get a gradient, every process looks for those that got none.
    Buffers are averaged after each step instead of sent around before each pass, which would need equally many passes.
    """
    if world_size() == 1:
        return {"devices": 1}
    here = int(os.environ["LOCAL_WORLD_SIZE"])
    strategy = DDPStrategy(
        cluster_environment=TorchElasticEnvironment(),
        find_unused_parameters=row.objects_needed,
        broadcast_buffers=False,
    )
    return {"devices": here, "num_nodes": world_size() // here, "strategy": strategy}


def learned(
    trainer: lightning.Trainer, module: DetectionLitModule, ema: EmaCallback | None, history: History
) -> dict[str, object]:
    """Return everything a run has learned and measured, for fingerprinting."""
    return {
        "model": module.detector.state_dict(),
        "optimizer": trainer.optimizers[0].state_dict()["state"],
        "scheduler": [config.scheduler.state_dict() for config in trainer.lr_scheduler_configs],
        "ema": ema.average.state_dict() if ema and ema.average else {},
        "losses": history.losses,
        "metrics": history.rows,
    }
