"""Moves the objective's weight from the one-to-many to the one-to-one branch, epoch by epoch."""

import lightning
from lightning.pytorch.callbacks import Callback

from lucid_optim import progressive_weight
from lucid_train.module import DetectionLitModule


class ProgressiveWeight(Callback):
    """Sets ``module.alpha`` at the start of each training epoch; a function of the epoch, so it needs no state."""

    def on_train_epoch_start(self, trainer: lightning.Trainer, pl_module: lightning.LightningModule) -> None:
        """Choose the weight of this epoch."""
        set_alpha(trainer, pl_module)

    def on_train_start(self, trainer: lightning.Trainer, pl_module: lightning.LightningModule) -> None:
        """Choose the weight of an epoch that is resumed in its middle."""
        set_alpha(trainer, pl_module)


def set_alpha(trainer: lightning.Trainer, pl_module: lightning.LightningModule) -> None:
    """Set the branch weight that belongs to the trainer's epoch, where the number of epochs is known."""
    assert isinstance(pl_module, DetectionLitModule)
    if trainer.max_epochs is None or trainer.max_epochs <= 0:
        return
    loss = pl_module.loss_settings
    pl_module.alpha = progressive_weight(
        trainer.current_epoch, trainer.max_epochs, loss.alpha_initial, loss.alpha_final
    )
