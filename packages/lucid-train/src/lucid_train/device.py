"""Whether this machine can do what a configuration asks for; asked before anything is written."""

import torch

from lucid_data import available_cpus
from lucid_train.config import ConfigError, FitConfig, Setting
from lucid_train.processes import launched


def chosen_device(device: str) -> str:
    """Return the torch device that ``auto`` or a name stands for on this machine: cuda, cuda:1, mps or cpu.

    Args:
        device: ``auto`` (cuda, then mps, then cpu), a kind, or a kind with the number of one of several, from 0. Only
            ``cuda`` keeps its number: of the others there is one.

    Raises:
        ConfigError: the device is not here, or the name is none; the message names the kinds that are.

    Example:
        >>> chosen_device("cpu")
        'cpu'
    """
    here = _counts()
    if device == "auto":
        return next(iter(here))
    kind, colon, number = device.partition(":")
    if kind not in here or (colon and not (number.isdecimal() and int(number) < here[kind])):
        raise ConfigError(
            Setting("run.device", device), f": not available here; choose auto, {', '.join(here)}"
        )
    return f"{kind}:{int(number)}" if colon and kind == "cuda" else kind


def check_hardware(config: FitConfig) -> None:
    """Raise ConfigError where device, number of devices or precision cannot be had."""
    device = chosen_device(config.run.device)
    here = {"cuda": torch.cuda.device_count(), "cpu": available_cpus()}.get(device, 1)
    if config.run.devices > here and not launched():
        raise ConfigError(
            Setting("run.devices", config.run.devices),
            f": there is room for {here} here on {device}; ask for fewer, or start one process per device with "
            "torchrun",
        )
    if config.run.precision == "16-mixed" and device == "cpu":
        raise ConfigError(
            Setting("run.precision", config.run.precision),
            " needs an accelerator; on the CPU choose bf16-mixed or 32",
        )


def _counts() -> dict[str, int]:
    """Return the kinds of device that are here, the fastest first, and how many of each a name can mean."""
    counts = {
        "cuda": torch.cuda.device_count() if torch.cuda.is_available() else 0,
        "mps": int(torch.backends.mps.is_available()),
        "cpu": 1,
    }
    return {kind: count for kind, count in counts.items() if count}
