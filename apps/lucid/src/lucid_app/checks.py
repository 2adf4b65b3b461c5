"""Checks of options before any work begins; each failure is one ConfigError that names the option."""

import os
from collections.abc import Iterable
from difflib import get_close_matches
from pathlib import Path

from lucid_app.keys import naming_options
from lucid_train import ConfigError, Setting, chosen_device


def choose_device(name: str) -> str:
    """Return the torch device that ``--device`` asks for, as :func:`lucid_train.chosen_device` understands it.

    Raises:
        ConfigError: not a device, or none that this machine has; the message names those it has.

    Example:
        >>> choose_device("cpu")
        'cpu'
    """
    with naming_options(["run.device"]):
        return chosen_device(name)


def check_canvas(side: int | None) -> None:
    """Raise ConfigError where ``--image-size`` is given and is no positive multiple of 32."""
    if side is not None and (side < 32 or side % 32):
        raise ConfigError(f"--image-size {side}: give a positive multiple of 32")


def check_choice(option: str, value: str | None, choices: Iterable[str]) -> None:
    """Raise ConfigError where an option is given and is none of its choices."""
    known = tuple(choices)
    if value is not None and value not in known:
        near = get_close_matches(value, known, n=1)
        hint = f"; did you mean {near[0]}?" if near else ""
        raise ConfigError(f"{option} {value}: choose {', '.join(known)}{hint}")


def check_at_least(option: str, value: int | None, least: int) -> None:
    """Raise ConfigError where an option is given and lies under its least value."""
    if value is not None and value < least:
        raise ConfigError(f"{option} {value}: give {least} or more")


def check_checkpoint(path: Path) -> None:
    """Raise ConfigError where there is no file that could be a checkpoint."""
    check_file(path, f"no checkpoint at {path}", "give a checkpoint, such as checkpoints/best.ckpt of a run")


def check_data(path: Path, option: str = "", key: str = "") -> None:
    """Raise ConfigError where there is nothing that could be a data set.

    ``option`` gave the path, or ``key`` of the configuration did; an argument has no name.
    """
    said = Setting(key, path) if key else f"{option} {path}".strip()
    one_file = path.suffix.lower() in (".json", ".yaml", ".yml")
    if path.is_file() and not one_file:
        raise ConfigError(said, ": give a folder of images and labels, a COCO JSON or a dataset YAML")
    if not path.exists():
        absent = "no such file" if one_file else "no such folder"
        raise ConfigError(said, f": {absent}; give the folder of images and labels")
    if path.is_dir() and not any(path.iterdir()):
        raise ConfigError(said, ": the folder is empty; give the folder of images and labels")


def check_file(path: Path, absent: str, remedy: str) -> None:
    """Raise ConfigError, ``absent``, where there is nothing, and with the remedy where there is a folder."""
    if not path.exists():
        raise ConfigError(absent)
    if path.is_dir():
        raise ConfigError(f"{path}: that is a folder; {remedy}")


def check_file_target(option: str, path: Path | None) -> None:
    """Raise ConfigError where a file that an option names cannot be written for what is in its place already."""
    if path is None:
        return
    if path.is_dir():
        raise ConfigError(f"{option} {path}: that is a folder; give the name of a file")
    check_folder_target(option, path.parent)


def check_folder_target(option: str, path: Path) -> None:
    """Raise ConfigError where a folder that an option names cannot be written: a file is there, or no permission."""
    for place in (path, *path.parents):
        if place.exists():
            if not place.is_dir():
                raise ConfigError(f"{option} {path}: {place} is a file; give a folder")
            if not os.access(place, os.W_OK):
                raise ConfigError(f"{option} {path}: no permission to write in {place}; give another folder")
            return
