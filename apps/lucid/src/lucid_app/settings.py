"""The options of ``lucid fit`` that set a key of the configuration, which says their defaults and their words."""

import re
from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager
from typing import Any

import typer

from lucid_app.options import choice, words_of
from lucid_train import REPLAY_SWITCHES, ConfigError, FitConfig, load_config

KEYS: Mapping[str, str] = {
    "data": "data.path",
    "layout": "data.layout",
    "task": "model.task",
    "size": "model.size",
    "epochs": "run.epochs",
    "batch": "data.batch",
    "image_size": "data.image_size",
    "device": "run.device",
    "devices": "run.devices",
    "precision": "run.precision",
    "workers": "data.workers",
    "seed": "run.seed",
    "output": "run.output",
    "freeze": "model.freeze",
    "patience": "run.patience",
    "logger": "run.loggers",
    "skip_nonfinite": "optimizer.skip_nonfinite",
    "init": "model.init",
    "replay": "replay.mode",
    "replay_backend": "replay.backend",
    **{name: f"replay.{name}" for name in REPLAY_SWITCHES},
    "fused_assignment": "loss.fused_assignment",
    "device_hsv": "data.device_hsv",
    "epoch_prefetch": "data.epoch_prefetch",
    "cache_train_images": "data.cache_train_images",
    "cache_prepared_train_images": "data.cache_prepared_train_images",
    "fingerprint": "run.fingerprint",
}
"""Key of the configuration by parameter."""

_DEFAULTS = load_config().model_dump(mode="json")


def setting(name: str, help: str, panel: str | None = None, more: str = "") -> Any:
    """Return the option of a parameter in ``KEYS``: the default is shown, and words are those of the key.

    ``more`` follows the list of words. An option that is not given stays None, and the recipe decides.
    """
    section, _, key = KEYS[name].partition(".")
    annotation: Any = FitConfig.model_fields[section].annotation
    words = words_of(annotation.model_fields[key].annotation)
    value = _DEFAULTS[section][key]
    if value is False or (value is None and name in REPLAY_SWITCHES):
        value = "off"
    default = "" if value is None or value == [] else f" [default: {value}]"
    if words:
        return choice(help, words, more=more + default, panel=panel)
    return typer.Option(help=help + default, rich_help_panel=panel)


def given(parameters: Mapping[str, Any]) -> dict[str, Any]:
    """Return the values of a command line by key of the configuration, without those that were not given."""
    named = {KEYS[name]: value for name, value in parameters.items() if name in KEYS}
    # a flag that was not given, and an option that may be given again and was not
    return {key: value for key, value in named.items() if value is not None and value != []}


@contextmanager
def naming_options(keys: Iterable[str]) -> Iterator[None]:
    """Raise ConfigErrors anew that name the options by which ``keys`` were set, and not the keys."""
    try:
        yield
    except ConfigError as error:
        raise ConfigError(in_options(str(error), keys)) from error


def in_options(text: str, keys: Iterable[str]) -> str:
    """Return a message about the configuration with the options in place of the keys that were set by them.

    Example:
        >>> in_options("run.epochs = 0: too few", ["run.epochs"])
        '--epochs 0: too few'
    """
    options = {key: f"--{name.replace('_', '-')}" for name, key in KEYS.items()}
    for key in keys:
        text = re.sub(rf"\b{re.escape(key)} = ", f"{options[key]} ", text)
        text = re.sub(rf"\b{re.escape(key)}\b", options[key], text)
    return text
