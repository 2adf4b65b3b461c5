"""Chooses what the user left open, from the number of images and epochs.

Each rule is a pure function of counts, so that a run can be reproduced from its resolved configuration alone.
"""

import math
from dataclasses import dataclass

from lucid_train.config import FitConfig
from lucid_train.tasks import task_row


@dataclass(frozen=True)
class RunLength:
    """Counts that the rules look at: training images, optimizer steps per epoch, epochs."""

    images: int
    steps_per_epoch: int
    epochs: int

    @property
    def steps(self) -> int:
        """Optimizer steps of the whole run."""
        return self.steps_per_epoch * self.epochs


def resolve(config: FitConfig, length: RunLength) -> FitConfig:
    """Return the configuration with every open training value chosen.

    Example:
        >>> chosen = resolve(FitConfig(), RunLength(images=292, steps_per_epoch=19, epochs=30))
        >>> chosen.optimizer.lr is not None
        True
    """
    optimizer, ema, augment = config.optimizer, config.ema, config.augment
    return config.updated(
        data={"image_size": config.data.image_size or task_row(config.model.task).image_size},
        optimizer={
            "lr": learning_rate(config) if optimizer.lr is None else optimizer.lr,
            "warmup_epochs": warmup_epochs(length)
            if optimizer.warmup_epochs is None
            else optimizer.warmup_epochs,
        },
        ema={
            "decay": 0.9999 if ema.decay is None else ema.decay,
            "tau": ema_tau(length) if ema.tau is None else ema.tau,
        },
        augment={
            "close_mosaic": close_mosaic(length) if augment.close_mosaic is None else augment.close_mosaic
        },
    )


def learning_rate(config: FitConfig) -> float:
    """Return 0.01 at 16 images a step, growing with the square root of the batch, at most 0.02."""
    images_per_step = config.data.batch * config.run.devices * config.optimizer.accumulate
    return round(min(0.02, 0.01 * math.sqrt(max(1.0, images_per_step / 16))), 6)


def warmup_epochs(length: RunLength) -> float:
    """Return three epochs, but never more than a tenth of the run."""
    return min(3.0, round(length.epochs / 10, 2))


def ema_tau(length: RunLength) -> float:
    """Return the ramp constant in steps: 2000, or a fifth of a shorter run.

    With the long-run constant a run of a few hundred steps would end before the average has formed.
    """
    return float(min(2000, max(1, length.steps // 5)))


def close_mosaic(length: RunLength) -> int:
    """Return the closing epochs without mosaic: ten, or a fifth of a shorter run."""
    return min(10, length.epochs // 5)
