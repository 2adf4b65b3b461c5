"""Which opt-in switches a configuration may set on this machine; asked before anything is written."""

from functools import cache

import torch

from lucid_data import jitter_batch
from lucid_train.config import ConfigError, FitConfig, Setting
from lucid_train.device import chosen_device
from lucid_train.loggers import check_loggers


@cache
def numba_fault() -> str | None:
    """Return why colour cannot be compiled for the CPU, or None: it is compiled to see."""
    pixel, gains = torch.zeros(1, 3, 1, 1, dtype=torch.uint8), torch.ones(1, 3, dtype=torch.float64)
    try:
        jitter_batch(pixel, gains, fused=True)
    except ImportError as error:
        return str(error.__cause__).split("\n")[0]
    return None


def check_switches(config: FitConfig) -> None:
    """Raise ConfigError, naming switch and remedy, for one that cannot be had or does not go with another."""
    data = config.data
    check_loggers(config)
    if set(config.model.freeze) == {"backbone", "neck", "head"}:
        raise ConfigError(
            Setting("model.freeze"), " names every stage, which leaves nothing to learn; leave one out"
        )
    if config.augment.copy_paste and config.model.task != "segment":
        raise ConfigError(
            Setting("augment.copy_paste"),
            " pastes objects along their outlines, which belongs to segment, and the task is "
            f"{config.model.task}; leave it out",
        )
    if data.cache_train_images and data.cache_prepared_train_images:
        raise ConfigError(
            Setting("data.cache_prepared_train_images"),
            " already holds every training image; leave ",
            Setting("data.cache_train_images"),
            " out",
        )
    if data.epoch_prefetch and data.workers == 0:
        raise ConfigError(
            Setting("data.epoch_prefetch"),
            " has worker processes prepare the next epoch; use --workers 1 or more, or leave it out",
        )
    if config.loss.fused_assignment and chosen_device(config.run.device) != "cuda":
        raise ConfigError(
            Setting("loss.fused_assignment"),
            " needs an NVIDIA device and Triton; leave it out, or use --device cuda",
        )
    if data.fused_hsv and (fault := numba_fault()):
        raise ConfigError(
            Setting("data.fused_hsv"),
            f" needs Numba ({fault}); install lucid-data with its extra 'numba', or use --no-fused-hsv",
        )
    if data.device_hsv and chosen_device(config.run.device) == "mps":
        raise ConfigError(
            Setting("data.device_hsv"),
            " needs float64 on the device, which mps lacks; leave it out, or use --device cpu",
        )
