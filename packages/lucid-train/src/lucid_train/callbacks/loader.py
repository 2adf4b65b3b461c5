"""Keeps the training loader at the trainer's epoch."""

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
