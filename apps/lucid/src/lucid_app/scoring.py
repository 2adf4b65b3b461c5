"""The options that ``eval`` and ``score`` share."""

from typing import Annotated

import typer

from lucid_app.options import choice

ENGINES = ("pycocotools", "faster")

EngineOption = Annotated[str, choice("What counts", ENGINES, more="faster has the same numbers, sooner.")]

SplitOption = Annotated[
    str | None,
    typer.Option(
        help="Split to score; when absent the one a fit validates on: test beside trainval, else val, valid or test."
    ),
]
