"""Options that take one of some words: completed by a shell, listed in the help, and refused otherwise."""

from collections.abc import Iterable
from typing import Annotated, Any, cast, get_args

import typer

from lucid_app.checks import check_choice
from lucid_data import DotaVersion, Layout, Task
from lucid_models import SIZES
from lucid_train import FitConfig

TILED_TASKS = ("obb", "detect")
"""Tasks whose pictures are cut into tiles, and whose predictions on tiles are put together."""


def choice(help: str, words: Iterable[str], *names: str, more: str = "", panel: str | None = None) -> Any:
    """Return an option that takes one of ``words``: the help is ``help``, the list of them, and ``more``.

    Example:
        >>> choice("Size of the network", ("n", "s", "m")).help
        'Size of the network: n, s or m.'
    """
    known = tuple(words)

    def checked(option: typer.CallbackParam, value: Any) -> Any:
        for word in [value] if isinstance(value, str) else value or ():
            check_choice(option.opts[0], word, known)
        return value

    return typer.Option(
        *names,
        help=f"{help}: {either(known)}. {more}".strip(),
        callback=checked,
        autocompletion=lambda: list(known),
        rich_help_panel=panel,
    )


def either(words: Iterable[str]) -> str:
    """Return words as a sentence lists them.

    Example:
        >>> either(["coco", "yolo", "dota"])
        'coco, yolo or dota'
    """
    *first, last = words
    return f"{', '.join(first)} or {last}" if first else last


def words_of(annotation: Any) -> tuple[str, ...]:
    """Return the words of the literals in a type, in order.

    Example:
        >>> from typing import Literal
        >>> words_of(tuple[Literal["backbone", "neck"], ...] | None)
        ('backbone', 'neck')
    """
    parts = get_args(annotation)
    if parts and all(isinstance(part, str) for part in parts):
        return parts
    return tuple(word for part in parts for word in words_of(part))


_RUN: Any = FitConfig.model_fields["run"].annotation
DEVICES = words_of(_RUN.model_fields["device"].annotation)
"""Kinds of device, which are the words of ``fit --device``."""


def device_choice(kinds: Iterable[str]) -> Any:
    """Return an option that takes a kind of device, or ``cuda:1`` for one of several; kinds are completed."""
    known = tuple(kinds)
    return typer.Option(help=f"{either((*known, 'cuda:1'))}.", autocompletion=lambda: list(known))


def task_choice(help: str) -> Any:
    """Return an option that takes one of the tasks."""
    return choice(help, get_args(Task))


TaskOption = Annotated[str, task_choice("What is learned")]
LabelsOption = Annotated[str, task_choice("Which labels are read")]
SizeOption = Annotated[str, choice("Size of the network", SIZES)]
DeviceOption = Annotated[str, device_choice(DEVICES)]
LayoutOption = Annotated[str | None, choice("Format of the folder where it fits several", get_args(Layout))]
DotaVersionOption = Annotated[str | None, choice("Class list of DOTA labels", get_args(DotaVersion))]


def as_layout(name: str | None) -> Layout | None:
    """Return the layout of ``--layout``, whose word has been checked."""
    return cast("Layout | None", name)
