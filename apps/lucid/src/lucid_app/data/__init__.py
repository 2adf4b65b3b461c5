"""``lucid data``: look after data sets, one file per command."""

import typer

from lucid_app.data.check import check
from lucid_app.data.convert import convert
from lucid_app.data.download import download
from lucid_app.data.sample import sample
from lucid_app.data.stats import stats
from lucid_app.data.tile import tile
from lucid_app.data.view import view

app = typer.Typer(help="Look after data sets.", no_args_is_help=True)


@app.callback()
def _group() -> None:
    """Look after data sets; your files are never changed."""


for command in (check, stats, view, convert, tile, download, sample):
    app.command(command.__name__)(command)
