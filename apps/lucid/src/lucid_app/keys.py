"""Which option sets which key of the configuration, so that an error about a key names the option that was written."""

from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager

from lucid_train import REPLAY_SWITCHES, ConfigError, Setting

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
    "fused_hsv": "data.fused_hsv",
    "epoch_prefetch": "data.epoch_prefetch",
    "cache_train_images": "data.cache_train_images",
    "cache_prepared_train_images": "data.cache_prepared_train_images",
    "fingerprint": "run.fingerprint",
}
"""Key of the configuration by parameter."""


@contextmanager
def naming_options(keys: Iterable[str]) -> Iterator[None]:
    """Raise ConfigErrors anew that name the options by which ``keys`` were set, and not the keys."""
    names = {key: name for name, key in KEYS.items() if key in set(keys)}
    try:
        yield
    except ConfigError as error:
        pieces = (
            as_typed(names[piece.key], piece.value)
            if isinstance(piece, Setting) and piece.key in names
            else piece
            for piece in error.args
        )
        raise ConfigError(*pieces) from error


def as_typed(name: str, value: object = ...) -> str:
    """Return the option of a parameter with its value, as on a command line; Ellipsis for the option alone.

    Example:
        >>> as_typed("image_size", 100), as_typed("freeze", ["neck", "head"]), as_typed("compile_step", False)
        ('--image-size 100', '--freeze neck --freeze head', '--no-compile-step')
    """
    words = name.replace("_", "-")
    if value is ... or isinstance(value, bool):
        return f"--no-{words}" if value is False else f"--{words}"
    given = value if isinstance(value, list | tuple) else [value]
    return " ".join(f"--{words} {one}" for one in given)
