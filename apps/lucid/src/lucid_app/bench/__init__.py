"""``lucid bench``: measurements anyone can repeat, each against a reference in the same run, one file per command."""

import typer

app = typer.Typer(help="Measure, and prove that nothing else changed.", no_args_is_help=True)


@app.callback()
def _group() -> None:
    """Measure, and prove that nothing else changed."""
