"""``lucid data sample``: a small drawn data set to try things on."""

from collections.abc import Callable
from pathlib import Path
from typing import Annotated, Any

import typer

from lucid_app.checks import check_at_least
from lucid_app.console import out
from lucid_app.options import choice, task_choice
from lucid_data import synthetic
from lucid_train import ConfigError

_WRITERS: dict[str, Callable[..., Path]] = {
    "coco": synthetic.write_coco,
    "yolo": synthetic.write_yolo,
    "voc": synthetic.write_voc,
    "dota": synthetic.write_dota,
}
_ONLY = {"voc": "detect", "dota": "obb"}


def sample(
    target: Annotated[Path, typer.Argument(help="Folder to make; must be empty or absent.")],
    layout: Annotated[
        str, choice("Format", _WRITERS, "--format", more="voc holds detect only, dota obb.")
    ] = "coco",
    task: Annotated[str | None, task_choice("What is labelled")] = None,
    train: Annotated[int, typer.Option(help="Training images.")] = 64,
    val: Annotated[int, typer.Option(help="Validation images.")] = 16,
    size: Annotated[int, typer.Option(help="Side of an image, pixels.")] = 160,
    seed: Annotated[int, typer.Option(help="Of everything drawn.")] = 0,
) -> None:
    """Draw a small labelled data set: shapes on textured ground, the same for the same seed.

    Examples:
        lucid data sample scenes --task segment

        lucid data sample aerial --format dota
    """
    for option, value, least in (("--train", train, 1), ("--val", val, 0), ("--size", size, 32)):
        check_at_least(option, value, least)
    only = _ONLY.get(layout)
    if only is not None and task not in (None, only):
        raise ConfigError(f"--task {task}: {layout} holds {only} only")
    words: dict[str, Any] = {} if only else {"task": task or "detect"}
    splits = {"train": train, **({"val": val} if val else {})}
    place = _WRITERS[layout](target, splits=splits, size=size, seed=seed, **words)
    out.print(f"{place}: {train} training and {val} validation images", soft_wrap=True)
