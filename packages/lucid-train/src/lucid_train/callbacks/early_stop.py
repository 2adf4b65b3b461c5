"""Ends a run whose validation has stopped improving."""

import logging
from typing import Any

import lightning
from lightning.pytorch.callbacks import Callback

log = logging.getLogger("lucid")


class EarlyStop(Callback):
    """Stops after the epoch in which the headline metric has not risen for ``patience`` validations.

    The best score and the count of validations since are checkpoint state, so a resumed run stops where an
    uninterrupted one does, and one that had stopped stays stopped.
    """

    def __init__(self, headline: str, patience: int) -> None:
        self.headline, self.patience = headline, patience
        self.best: float | None = None
        self.waited = 0

    @property
    def exhausted(self) -> bool:
        """Whether the run has waited long enough."""
        return self.waited >= self.patience

    def on_train_start(self, trainer: lightning.Trainer, pl_module: lightning.LightningModule) -> None:
        """Keep a run stopped that had stopped before it was resumed."""
        trainer.should_stop = trainer.should_stop or self.exhausted

    def on_validation_end(self, trainer: lightning.Trainer, pl_module: lightning.LightningModule) -> None:
        """Compare this validation with the best so far."""
        if trainer.sanity_checking or self.headline not in trainer.callback_metrics:
            return
        score = float(trainer.callback_metrics[self.headline])
        if self.best is None or score > self.best:
            self.best, self.waited = score, 0
        else:
            self.waited += 1

    def on_train_epoch_end(self, trainer: lightning.Trainer, pl_module: lightning.LightningModule) -> None:
        """End the run when it has waited long enough."""
        if self.exhausted and not trainer.should_stop:
            best = f"{self.headline} has not risen above {self.best:.4f}"
            log.info("stopped early: %s for %d validations", best, self.waited)
            trainer.should_stop = True

    def state_dict(self) -> dict[str, Any]:
        """Return the best score and the validations since."""
        return {"best": self.best, "waited": self.waited}

    def load_state_dict(self, state_dict: dict[str, Any]) -> None:
        """Continue counting."""
        self.best, self.waited = state_dict["best"], state_dict["waited"]
