"""Whether this machine can do what a configuration asks for; asked before anything is written."""

import torch

from lucid_train.config import ConfigError, FitConfig


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
    if config.run.devices > 1:
        raise ConfigError(f"run.devices = {config.run.devices}: a fit runs on one device; leave it at 1")
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
