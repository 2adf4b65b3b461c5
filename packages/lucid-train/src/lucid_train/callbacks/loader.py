"""Keeps loaders and validation at the trainer's epoch."""

import lightning
from lightning.pytorch.callbacks import Callback

from lucid_data import TrainLoader


class LoaderEpoch(Callback):
    """Tells the loader which epoch is about to be drawn; samples are a function of it."""

    def on_train_epoch_start(self, trainer: lightning.Trainer, pl_module: lightning.LightningModule) -> None:
        """Set the epoch before the loader's iterator is made."""
        loader = trainer.train_dataloader
        if isinstance(loader, TrainLoader):
            loader.set_epoch(trainer.current_epoch)


class ValidateLast(Callback):
    """Has the last epoch validated whatever the interval, so that every run ends with its numbers."""

    def on_train_start(self, trainer: lightning.Trainer, pl_module: lightning.LightningModule) -> None:
        """Cover a run that is resumed inside its last epoch."""
        self.on_train_epoch_start(trainer, pl_module)

    def on_train_epoch_start(self, trainer: lightning.Trainer, pl_module: lightning.LightningModule) -> None:
        """Open the interval in the last epoch."""
        if trainer.max_epochs is not None and trainer.current_epoch == trainer.max_epochs - 1:
            trainer.check_val_every_n_epoch = 1
