"""Writes last.ckpt and best.ckpt, and stops a run where it can be resumed exactly."""

import logging
import shlex
import signal
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from types import FrameType
from typing import Any

import lightning
from lightning.pytorch.callbacks import Callback

from lucid_models import checkpoint_header
from lucid_train.callbacks.ema import EmaCallback
from lucid_train.files import publish, replace_durably
from lucid_train.module import DetectionLitModule
from lucid_train.processes import any_of, is_main_process

log = logging.getLogger("lucid")
_STOPPING = (signal.SIGTERM, signal.SIGINT)


class Interrupted(Exception):
    """The run was stopped by a signal; ``checkpoint`` is where it continues from, None when nothing was saved."""

    def __init__(self, message: str, checkpoint: Path | None = None) -> None:
        super().__init__(message)
        self.checkpoint = checkpoint


class Checkpoints(Callback):
    """Saves after every epoch (validation included), and every ``every_steps`` optimizer steps when asked.

    A stop request ends the run after the optimizer step at hand, with ``last.ckpt`` written; one that reaches any
    process of a run ends them all after the same step. Nothing is ever saved between the micro-batches of one step:
    their summed gradients are no part of a checkpoint.

    Args:
        folder: where the two files go.
        headline: the metric that ranks epochs; higher is better.
        every_steps: optimizer steps between saves inside an epoch.
        extra: plain values that are stored under ``lucid_train`` in every checkpoint.
    """

    def __init__(
        self, folder: Path, headline: str, every_steps: int | None = None, extra: dict[str, Any] | None = None
    ) -> None:
        self.folder, self.headline, self.every_steps = folder, headline, every_steps
        self.extra = extra or {}
        self.best_score: float | None = None
        self._stop = threading.Event()
        self._seen_step = 0
        self._catching = False

    @property
    def last(self) -> Path:
        """The checkpoint that ``--resume last`` continues."""
        return self.folder / "last.ckpt"

    @property
    def best(self) -> Path:
        """The checkpoint with the highest headline metric."""
        return self.folder / "best.ckpt"

    @contextmanager
    def catching_signals(self) -> Iterator[None]:
        """Turn SIGTERM and SIGINT into stop requests while the context lasts; main thread only, else do nothing."""
        if threading.current_thread() is not threading.main_thread():
            yield
            return
        previous = {number: signal.signal(number, self._request_stop) for number in _STOPPING}
        self._catching = True
        try:
            yield
        finally:
            self._catching = False
            for number, handler in previous.items():
                signal.signal(number, handler)

    def _request_stop(self, number: int, frame: FrameType | None) -> None:
        if number == signal.SIGINT and self._stop.is_set():  # the second Ctrl-C does not wait
            saved = self.last if self.last.is_file() else None
            where = self._resume if saved else "nothing was saved yet"
            raise Interrupted(f"interrupted at once; {where}", saved)
        self._stop.set()
        if number == signal.SIGINT:
            log.info(
                "stopping when the step or validation at hand is done and saved; Ctrl-C again does not wait"
            )

    @property
    def _resume(self) -> str:
        return f"continue with --resume last --output {shlex.quote(str(self.folder.parent))}"

    def _stop_now(self) -> None:
        raise Interrupted(f"interrupted; {self._resume}", self.last)

    def on_train_start(self, trainer: lightning.Trainer, pl_module: lightning.LightningModule) -> None:
        """Remember where the run stands."""
        self._seen_step = trainer.global_step
        if self._catching:
            # the trainer put a handler around this one that waits, inside a signal, for the other processes
            for number in _STOPPING:
                signal.signal(number, self._request_stop)

    def on_train_batch_end(
        self,
        trainer: lightning.Trainer,
        pl_module: lightning.LightningModule,
        outputs: Any,
        batch: Any,
        batch_idx: int,
    ) -> None:
        """Save inside an epoch, after an optimizer step: on a stop request, and at the chosen interval."""
        stepped = trainer.global_step != self._seen_step
        self._seen_step = trainer.global_step
        if not stepped or batch_idx + 1 >= trainer.num_training_batches:
            return  # validation still belongs to an epoch's last step; the epoch's end saves
        stop = any_of(self._stop.is_set())
        if stop or (self.every_steps is not None and trainer.global_step % self.every_steps == 0):
            self._save(trainer, improved=False)
        if stop:
            self._stop_now()

    def on_train_epoch_end(self, trainer: lightning.Trainer, pl_module: lightning.LightningModule) -> None:
        """Save the finished epoch; keep a copy when it is the best so far."""
        score = trainer.callback_metrics.get(self.headline)
        improved = score is not None and (self.best_score is None or float(score) > self.best_score)
        if improved and score is not None:
            self.best_score = float(score)
        self._save(trainer, improved)
        if trainer.current_epoch + 1 < (trainer.max_epochs or 0) and any_of(self._stop.is_set()):
            self._stop_now()

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
        checkpoint["lucid"] = checkpoint_header(pl_module.detector, pl_module.image_size, weights)
        checkpoint["lucid_train"] = dict(self.extra)

    def state_dict(self) -> dict[str, Any]:
        """Return the best score so far."""
        return {"best_score": self.best_score}

    def load_state_dict(self, state_dict: dict[str, Any]) -> None:
        """Continue with the best score so far."""
        self.best_score = state_dict["best_score"]

    def _save(self, trainer: lightning.Trainer, improved: bool) -> None:
        if is_main_process():
            self.folder.mkdir(parents=True, exist_ok=True)
        temporary = self.last.with_name(self.last.name + ".tmp")
        trainer.save_checkpoint(temporary)  # every process takes part, rank 0 writes
        if not is_main_process():
            return
        if improved:
            # best first: a crash in between repeats the epoch, and with it this step
            publish(temporary, self.best)
        replace_durably(temporary, self.last)
