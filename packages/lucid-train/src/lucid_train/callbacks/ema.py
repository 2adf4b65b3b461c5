"""Keeps the weight average and lends it to the module for validation."""

from typing import Any

import lightning
from lightning.pytorch.callbacks import Callback

from lucid_optim import ModelEMA
from lucid_train.module import DetectionLitModule


class EmaCallback(Callback):
    """Averages the detector after every optimizer step; validation sees the average, training never does.

    A step that a gradient scaler skipped, because a gradient was not finite, is no step of the average, nor is one that
    was left out because its loss was not.
    """

    def __init__(self, decay: float, tau: float) -> None:
        self.decay, self.tau = decay, tau
        self.average: ModelEMA | None = None
        self._restored: dict[str, Any] | None = None
        self._last_step = 0
        self._scale: float | None = None
        self._swapped = False

    def on_fit_start(self, trainer: lightning.Trainer, pl_module: lightning.LightningModule) -> None:
        """Start the average from the module's weights, or take up the restored one."""
        self.average = ModelEMA(_detector(pl_module), decay=self.decay, tau=self.tau)
        if self._restored is not None:
            self.average.load_state_dict(self._restored)
            self._restored = None

    def on_train_start(self, trainer: lightning.Trainer, pl_module: lightning.LightningModule) -> None:
        """Remember the step that the average has seen."""
        self._last_step = trainer.global_step
        self._scale = loss_scale(trainer)

    def on_train_batch_end(
        self, trainer: lightning.Trainer, pl_module: lightning.LightningModule, *_: object
    ) -> None:
        """Blend the weights in, once per optimizer step."""
        if trainer.global_step == self._last_step or self.average is None:
            return
        self._last_step = trainer.global_step
        before, self._scale = self._scale, loss_scale(trainer)
        assert isinstance(pl_module, DetectionLitModule)
        if pl_module.step_guard is not None and pl_module.step_guard.left_out:
            return
        if before is not None and self._scale is not None and self._scale < before:
            return
        self.average.update(_detector(pl_module))

    def on_validation_start(self, trainer: lightning.Trainer, pl_module: lightning.LightningModule) -> None:
        """Put the averaged weights into the module, in place."""
        if self.average is not None and not self._swapped:
            self.average.swap_in(_detector(pl_module))
            self._swapped = True

    def on_validation_end(self, trainer: lightning.Trainer, pl_module: lightning.LightningModule) -> None:
        """Put the trained weights back."""
        if self.average is not None and self._swapped:
            self.average.swap_out(_detector(pl_module))
            self._swapped = False

    def on_exception(
        self, trainer: lightning.Trainer, pl_module: lightning.LightningModule, exception: BaseException
    ) -> None:
        """Put the trained weights back, whatever went wrong during validation."""
        self.on_validation_end(trainer, pl_module)

    def state_dict(self) -> dict[str, Any]:
        """Return the average and its counters."""
        return {} if self.average is None else dict(self.average.state_dict())

    def load_state_dict(self, state_dict: dict[str, Any]) -> None:
        """Keep a restored average until the fit starts."""
        self._restored = state_dict or None


def loss_scale(trainer: lightning.Trainer) -> float | None:
    """Return the scale of the trainer's gradient scaler, which falls when a step is skipped; None without one."""
    scaler = getattr(trainer.precision_plugin, "scaler", None)
    return None if scaler is None else float(scaler.get_scale())


def _detector(pl_module: lightning.LightningModule) -> Any:
    assert isinstance(pl_module, DetectionLitModule)
    return pl_module.detector
