"""Loggers besides the CSV table, by name, through Lightning; each library is needed only by who asks for it."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from importlib.util import find_spec
from pathlib import Path
from types import MappingProxyType
from typing import Any

from lightning.pytorch import loggers
from lightning.pytorch.loggers import Logger

from lucid_train.config import ConfigError, FitConfig, Setting


@dataclass(frozen=True)
class LoggerRow:
    """One logger: its class in Lightning, what it imports (any of them will do), its arguments for a run's folder."""

    kind: str
    libraries: tuple[str, ...]
    arguments: Callable[[Path], dict[str, Any]]


LOGGER_TABLE: Mapping[str, LoggerRow] = MappingProxyType(
    {
        "tensorboard": LoggerRow(
            "TensorBoardLogger",
            ("tensorboard", "tensorboardX"),
            lambda folder: {"save_dir": folder, "name": "", "version": "tensorboard"},
        ),
        "wandb": LoggerRow(
            "WandbLogger",
            ("wandb",),
            lambda folder: {"save_dir": folder, "name": folder.name, "project": "lucid"},
        ),
        "mlflow": LoggerRow(
            "MLFlowLogger",
            ("mlflow", "mlflow_skinny"),
            lambda folder: {"experiment_name": "lucid", "run_name": folder.name},
        ),
    }
)


def check_loggers(config: FitConfig) -> None:
    """Raise ConfigError, with the line that installs it, for a logger whose library is not here."""
    for name in config.run.loggers:
        libraries = LOGGER_TABLE[name].libraries
        if not any(find_spec(library) for library in libraries):
            raise ConfigError(
                Setting("run.loggers"),
                f" names {name}, which is not installed: pip install {libraries[0]}, or leave it out "
                "(metrics.csv is always written)",
            )


def build_loggers(config: FitConfig, folder: Path) -> list[Logger]:
    """Return Lightning's loggers of a run, empty where the configuration names none."""
    rows = [LOGGER_TABLE[name] for name in config.run.loggers]
    return [getattr(loggers, row.kind)(**row.arguments(folder)) for row in rows]
