"""Writes last.ckpt and best.ckpt, atomically, and stops a run where it can be resumed exactly."""

import os
import signal
import threading
from pathlib import Path
from types import FrameType
from typing import Any

import lightning
import torch
from lightning.pytorch.callbacks import Callback

from lucid_models import checkpoint_header
from lucid_train.callbacks.ema import EmaCallback
from lucid_train.module import DetectionLitModule


class Interrupted(Exception):
    """The run stopped on a signal after writing a checkpoint that continues it exactly."""

    def __init__(self, checkpoint: Path) -> None:
        super().__init__(f"interrupted; continue with --resume last (state saved in {checkpoint})")
        self.checkpoint = checkpoint


class Checkpoints(Callback):
    """Saves after every epoch (validation included), and every ``every_steps`` steps when asked.

    SIGTERM and SIGINT end the run at the next batch boundary, after ``last.ckpt`` is written.
    """

    def __init__(self, folder: Path, headline: str, every_steps: int | None = None) -> None:
        self.folder, self.headline, self.every_steps = folder, headline, every_steps
        self.best_score: float | None = None
        self._stop = threading.Event()
        self._previous: dict[int, Any] = {}

    @property
    def last(self) -> Path:
        """The checkpoint that ``--resume last`` continues."""
        return self.folder / "last.ckpt"

    @property
    def best(self) -> Path:
        """The checkpoint with the highest headline metric."""
        return self.folder / "best.ckpt"

    def setup(self, trainer: lightning.Trainer, pl_module: lightning.LightningModule, stage: str) -> None:
        """Take the stop signals over, in the main thread of a fit."""
        if stage == "fit" and threading.current_thread() is threading.main_thread():
            for number in (signal.SIGTERM, signal.SIGINT):
                self._previous[number] = signal.signal(number, self._request_stop)

    def teardown(self, trainer: lightning.Trainer, pl_module: lightning.LightningModule, stage: str) -> None:
        """Give the signals back."""
        for number, handler in self._previous.items():
            signal.signal(number, handler)
        self._previous = {}

    def _request_stop(self, number: int, frame: FrameType | None) -> None:
        if number == signal.SIGINT and self._stop.is_set():
            raise KeyboardInterrupt  # the second Ctrl-C does not wait
        self._stop.set()

    def on_train_batch_end(
        self,
        trainer: lightning.Trainer,
        pl_module: lightning.LightningModule,
        outputs: Any,
        batch: Any,
        batch_idx: int,
    ) -> None:
        """Save inside an epoch: on a stop signal, and at the chosen interval."""
        if batch_idx + 1 >= trainer.num_training_batches:
            return  # validation is still part of this step; the epoch's end saves
        due = self.every_steps is not None and trainer.global_step % self.every_steps == 0
        stop = self._stop.is_set()
        if due or stop:
            self._save(trainer, self.last)
        if stop:
            raise Interrupted(self.last)

    def on_train_epoch_end(self, trainer: lightning.Trainer, pl_module: lightning.LightningModule) -> None:
        """Save the finished epoch; keep a copy when it is the best so far."""
        score = trainer.callback_metrics.get(self.headline)
        improved = score is not None and (self.best_score is None or float(score) > self.best_score)
        if improved:
            assert score is not None
            self.best_score = float(score)
        self._save(trainer, self.last)
        if improved and trainer.is_global_zero:
            publish(self.last, self.best)
        if self._stop.is_set() and trainer.current_epoch + 1 < (trainer.max_epochs or 0):
            raise Interrupted(self.last)

    def on_save_checkpoint(
        self, trainer: lightning.Trainer, pl_module: lightning.LightningModule, checkpoint: dict[str, Any]
    ) -> None:
        """Add what prediction needs: task, size, names, canvas and the averaged weights."""
        assert isinstance(pl_module, DetectionLitModule)
        assert pl_module.image_size is not None
        weights = dict(pl_module.detector.state_dict())
        for callback in trainer.callbacks:  # type: ignore[attr-defined]
            if isinstance(callback, EmaCallback) and callback.average is not None:
                weights |= callback.average.shadow
        checkpoint["lucid"] = checkpoint_header(
            pl_module.detector,
            pl_module.image_size,
            {
                name: value.detach().clone(memory_format=torch.contiguous_format)
                for name, value in weights.items()
            },
        )

    def state_dict(self) -> dict[str, Any]:
        """Return the best score so far."""
        return {"best_score": self.best_score}

    def load_state_dict(self, state_dict: dict[str, Any]) -> None:
        """Continue with the best score so far."""
        self.best_score = state_dict["best_score"]

    def _save(self, trainer: lightning.Trainer, path: Path) -> None:
        self.folder.mkdir(parents=True, exist_ok=True)
        temporary = path.with_name(path.name + ".tmp")
        trainer.save_checkpoint(temporary)
        if trainer.is_global_zero:
            replace_durably(temporary, path)


def publish(source: Path, target: Path) -> None:
    """Make ``target`` a copy of ``source``: the old file or the new one is there at every moment."""
    temporary = target.with_name(target.name + ".tmp")
    temporary.unlink(missing_ok=True)
    try:
        os.link(source, temporary)
    except OSError:  # a file system without hard links
        temporary.write_bytes(source.read_bytes())
    replace_durably(temporary, target)


def replace_durably(temporary: Path, target: Path) -> None:
    """Rename after the bytes have reached the disk, so that a crash leaves the previous file whole."""
    with temporary.open("rb") as stream:
        os.fsync(stream.fileno())
    os.replace(temporary, target)
