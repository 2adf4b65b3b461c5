"""Chooses what the user left open: by size and task, by the number of images and epochs.

Each rule is a pure function of counts, so that a run can be reproduced from its resolved configuration alone.
"""

import math
from dataclasses import dataclass, replace

from lucid_data import AugmentPolicy, policy_for
from lucid_train.config import AugmentConfig, FitConfig
from lucid_train.tasks import task_row

# what the two have in common; when mosaic ends is the loader's affair
_POLICY = tuple(name for name in AugmentConfig.model_fields if name != "close_mosaic")


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
    optimizer, loss, ema, augment = config.optimizer, config.loss, config.ema, config.augment
    policy = augment_policy(config)
    return config.updated(
        data={"image_size": config.data.image_size or task_row(config.model.task).image_size},
        optimizer={
            "lr": learning_rate(config, length) if optimizer.lr is None else optimizer.lr,
            "warmup_epochs": warmup_epochs(length)
            if optimizer.warmup_epochs is None
            else optimizer.warmup_epochs,
        },
        loss={"class_gain": class_gain(config, length) if loss.class_gain is None else loss.class_gain},
        ema={
            "decay": 0.9999 if ema.decay is None else ema.decay,
            "tau": ema_tau(length) if ema.tau is None else ema.tau,
        },
        augment={name: getattr(policy, name) for name in _POLICY}
        | {"close_mosaic": close_mosaic(length) if augment.close_mosaic is None else augment.close_mosaic},
    )


def augment_policy(config: FitConfig) -> AugmentPolicy:
    """Return the policy of the size and task with the configuration's overrides."""
    chosen = {name: value for name in _POLICY if (value := getattr(config.augment, name)) is not None}
    return replace(policy_for(config.model.size, config.model.task), **chosen)


def learning_rate(config: FitConfig, length: RunLength) -> float:
    """Return the peak learning rate: 0.02 for runs up to 2,000 steps, 0.01 from 20,000, log-linear between.

    A short run from scratch has no time for small steps. Batches above 16 raise the rate with their square root, to
    0.02 at most; given weights are tuned at half the rate.
    """
    fraction = _between_short_and_long(length)
    images_per_step = (config.data.batch or 16) * config.run.devices * config.optimizer.accumulate
    rate = min(0.02, 0.02 * math.pow(0.5, fraction) * math.sqrt(max(1.0, images_per_step / 16)))
    return round(rate * (1.0 if config.model.init is None else 0.5), 6)


def class_gain(config: FitConfig, length: RunLength) -> float:
    """Return the gain of the classification loss: 2 for runs from scratch up to 2,000 steps, 0.5 from 20,000.

    Log-linear between, and 0.5 for given weights. At the gain of long runs the box terms dwarf this one until what an
    object is has been learned, which a short run from scratch has no time to wait for.
    """
    if config.model.init is not None:
        return 0.5
    return round(2.0 * math.pow(0.25, _between_short_and_long(length)), 4)


def _between_short_and_long(length: RunLength) -> float:
    """Return 0 for runs up to 2,000 steps, 1 from 20,000, and what lies between on a logarithmic scale."""
    return min(1.0, max(0.0, math.log10(max(1, length.steps) / 2000)))


def warmup_epochs(length: RunLength) -> float:
    """Return three epochs, but never more than a thirtieth of the run."""
    return min(3.0, round(length.epochs / 30, 3))


def ema_tau(length: RunLength) -> float:
    """Return the ramp constant in steps: 2000, or less for a shorter run.

    The decay ramps as 1 - exp(-step / tau), so a run of n steps ends with a window of exp(n / tau) steps. The constant
    is chosen to make that 3 % of the run: with the long-run constant a run of a few hundred steps would end before the
    average has formed, and a wide window would lag behind a rate that falls quickly.
    """
    window = max(math.e**0.5, 0.03 * length.steps)
    return round(min(2000.0, max(1.0, length.steps / math.log(window))), 1)


def close_mosaic(length: RunLength) -> int:
    """Return the closing epochs without mosaic: ten, or a fifth of a shorter run."""
    return min(10, length.epochs // 5)
