"""Tells an observer how far the run is; the observer decides how to show it."""

import time
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

import lightning
from lightning.pytorch.callbacks import Callback

from lucid_train.module import DetectionLitModule
from lucid_train.processes import world_size


@dataclass(frozen=True)
class Progress:
    """Where a run stands: zero-based epoch, batches done in the current phase, and the numbers of the moment."""

    phase: str
    epoch: int
    epochs: int
    step: int
    steps: int
    loss: float | None = None
    images_per_second: float | None = None
    metrics: dict[str, float] = field(default_factory=dict)


Observer = Callable[[Progress], None]


class Observe(Callback):
    """Calls the observer after every training and validation batch and after every epoch."""

    def __init__(self, observer: Observer) -> None:
        self.observer = observer
        self._clock = time.perf_counter()
        self._speed: float | None = None
        self._validated = False

    def on_train_epoch_start(self, trainer: lightning.Trainer, pl_module: lightning.LightningModule) -> None:
        """Start the stop-watch of an epoch."""
        self._clock = time.perf_counter()

    def on_train_batch_end(
        self,
        trainer: lightning.Trainer,
        pl_module: lightning.LightningModule,
        outputs: Any,
        batch: Any,
        batch_idx: int,
    ) -> None:
        """Report one training batch."""
        assert isinstance(pl_module, DetectionLitModule)
        now = time.perf_counter()
        speed = world_size() * len(batch.images) / max(1e-9, now - self._clock)
        self._clock = now
        self._speed = speed if self._speed is None else 0.9 * self._speed + 0.1 * speed
        self.observer(
            Progress(
                phase="train",
                epoch=trainer.current_epoch,
                epochs=trainer.max_epochs or 0,
                step=batch_idx + 1,
                steps=int(trainer.num_training_batches),
                loss=float(pl_module.latest_parts["train/loss"]),
                images_per_second=self._speed,
            )
        )

    def on_validation_batch_end(
        self,
        trainer: lightning.Trainer,
        pl_module: lightning.LightningModule,
        outputs: Any,
        batch: Any,
        batch_idx: int,
        dataloader_idx: int = 0,
    ) -> None:
        """Report one validation batch."""
        self.observer(
            Progress(
                phase="validate",
                epoch=trainer.current_epoch,
                epochs=trainer.max_epochs or 0,
                step=batch_idx + 1,
                steps=int(sum(trainer.num_val_batches)),
            )
        )

    def on_validation_end(self, trainer: lightning.Trainer, pl_module: lightning.LightningModule) -> None:
        """Remember that this epoch has validation numbers of its own."""
        self._validated = True

    def on_train_epoch_end(self, trainer: lightning.Trainer, pl_module: lightning.LightningModule) -> None:
        """Report the metrics of a finished epoch."""
        self.observer(
            Progress(
                phase="epoch",
                epoch=trainer.current_epoch,
                epochs=trainer.max_epochs or 0,
                step=int(trainer.num_training_batches),
                steps=int(trainer.num_training_batches),
                metrics={
                    name: float(value)
                    for name, value in trainer.callback_metrics.items()
                    if self._validated or not name.startswith("val/")
                },
            )
        )
        self._validated = False
