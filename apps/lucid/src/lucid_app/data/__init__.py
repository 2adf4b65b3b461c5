"""``lucid data``: look after data sets, one file per command."""

from typing import ClassVar

import typer

from lucid_app.lazy import Later, LazyGroup


class _Data(LazyGroup):
    table: ClassVar = {
        "check": Later(
            "lucid_app.data.check:check",
            "Report every problem with its file, place and remedy; exit 1 when there is an error.",
        ),
        "stats": Later(
            "lucid_app.data.stats:stats",
            "Count classes, box sizes, picture sizes and what the reader left out; no picture is decoded.",
        ),
        "view": Later(
            "lucid_app.data.view:view", "Draw training samples with their labels, augmented as in training."
        ),
        "convert": Later(
            "lucid_app.data.convert:convert",
            "Write a data set in another format; what the format cannot hold is counted and told.",
        ),
        "tile": Later(
            "lucid_app.data.tile:tile",
            "Cut a data set of large pictures into a COCO data set of tiles that knows where each tile lies.",
        ),
        "download": Later(
            "lucid_app.data.download:download",
            "Fetch a data set; an interrupted transfer goes on where it stopped, and nothing that arrives is executed.",
        ),
        "sample": Later(
            "lucid_app.data.sample:sample",
            "Draw a small labelled data set: shapes on textured ground, the same for the same seed.",
        ),
    }


app = typer.Typer(cls=_Data, help="Look after data sets.", no_args_is_help=True, add_completion=False)


@app.callback()
def _group() -> None:
    """Look after data sets; your files are never changed."""
