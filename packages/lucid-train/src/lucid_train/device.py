"""Whether this machine can do what a configuration asks for; asked before anything is written."""

import torch

from lucid_data import available_cpus
from lucid_train.config import ConfigError, FitConfig
from lucid_train.processes import launched


def chosen_device(device: str) -> str:
    """Return the device type that ``auto`` or a name stands for on this machine: cuda, mps or cpu.

    Raises:
        ConfigError: the device is not here, or the name is none.
    """
    available = [name for name, here in _backends().items() if here]
    if device == "auto":
        return available[0]
    if device not in available:
        raise ConfigError(
            f"device {device!r} is not available here; choose one of auto, {', '.join(available)}"
        )
    return device


def check_hardware(config: FitConfig) -> None:
    """Raise ConfigError where device, number of devices or precision cannot be had."""
    device = chosen_device(config.run.device)
    here = {"cuda": torch.cuda.device_count(), "cpu": available_cpus()}.get(device, 1)
    if config.run.devices > here and not launched():
        raise ConfigError(
            f"run.devices = {config.run.devices}: there is room for {here} here on {device}; ask for fewer, or start "
            "one process per device with torchrun"
        )
    if config.run.precision == "16-mixed" and device == "cpu":
        raise ConfigError(
            "run.precision = '16-mixed' needs an accelerator; on the CPU choose bf16-mixed or 32"
        )


def _backends() -> dict[str, bool]:
    return {
        "cuda": torch.cuda.is_available(),
        "mps": torch.backends.mps.is_available(),
        "cpu": True,
    }
