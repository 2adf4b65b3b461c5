"""The options that ``eval`` and ``score`` share."""

from typing import Annotated

import typer

ENGINES = ("pycocotools", "faster")

EngineOption = Annotated[str, typer.Option(help="pycocotools, or faster (its numbers, sooner).")]

SplitOption = Annotated[
    str | None,
    typer.Option(
        help="Split to score; when absent the one a fit validates on: test beside trainval, else val, valid or test."
    ),
]
