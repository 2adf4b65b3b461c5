"""The option that says which format a folder has, where it could be several."""

from typing import Annotated, cast, get_args

import typer

from lucid_app.checks import check_choice
from lucid_data import Layout

LayoutOption = Annotated[
    str | None, typer.Option(help="Format of the folder where it fits several: coco, yolo, voc or dota.")
]


def as_layout(name: str | None) -> Layout | None:
    """Return the layout that ``--layout`` names; ConfigError for one that is not known."""
    check_choice("--layout", name, get_args(Layout))
    return cast("Layout | None", name)
