"""What a fit is put together from: the module, the callbacks in their order, the trainer."""

import logging
import os
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import lightning
import torch
from lightning.fabric.plugins.environments.torchelastic import TorchElasticEnvironment
from lightning.pytorch.callbacks import Callback
from lightning.pytorch.loggers import Logger
from lightning.pytorch.strategies import DDPStrategy

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
from lucid_train.datamodule import DetectionDataModule
from lucid_train.module import DetectionLitModule
from lucid_train.processes import world_size
from lucid_train.replay import ReplayPlan
from lucid_train.tasks import TaskRow, task_row


@dataclass(frozen=True)
class RunCallbacks:
    """The callbacks of a run, in the order in which the trainer calls them, and those whose state is its result."""

    in_order: list[Callback]
    saver: Checkpoints
    history: History
    replay: Replay
    ema: EmaCallback | None


def run_callbacks(
    config: FitConfig,
    module: DetectionLitModule,
    plan: ReplayPlan,
    folder: Path,
    identity: dict[str, Any],
    observer: Observer | None,
) -> RunCallbacks:
    """Return what happens around the steps of a run in ``folder`` on the data that ``identity`` names."""
    headline = module.row.headline
    history = History(folder / "metrics.csv")
    saver = Checkpoints(
        folder / "checkpoints", headline, config.run.checkpoint_steps, extra={"data": identity}
    )
    ema = EmaCallback(config.ema.decay or 0.9999, config.ema.tau or 2000.0) if config.ema.enabled else None
    replay = Replay(plan, folder / "replay.json")
    callbacks: list[Callback] = [LoaderEpoch(), ValidateLast(), ProgressiveWeight(), replay]
    callbacks += [module.step_guard] if module.step_guard is not None else []
    callbacks += [SharedBuffers()] if world_size() > 1 else []
    callbacks += [ema] if ema else []
    if config.run.patience is not None:
        callbacks += [EarlyStop(headline, config.run.patience)]
    callbacks += [history]
    callbacks += [Observe(observer)] if observer else []
    callbacks += [saver]  # last: it saves what the others have done
    return RunCallbacks(callbacks, saver, history, replay, ema)


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
    trainer: lightning.Trainer, module: DetectionLitModule, callbacks: RunCallbacks
) -> dict[str, object]:
    """Return everything a run has learned and measured, for fingerprinting."""
    ema, history = callbacks.ema, callbacks.history
    return {
        "model": module.detector.state_dict(),
        "optimizer": trainer.optimizers[0].state_dict()["state"],
        "scheduler": [config.scheduler.state_dict() for config in trainer.lr_scheduler_configs],
        "ema": ema.average.state_dict() if ema and ema.average else {},
        "losses": history.losses,
        "metrics": history.rows,
    }
