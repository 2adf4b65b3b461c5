"""``lucid bench``: measurements anyone can repeat, each against a reference in the same run, one file per command."""

import typer

from lucid_app.bench.fit import fit
from lucid_app.bench.proof import proof

app = typer.Typer(help="Measure, and prove that nothing else changed.", no_args_is_help=True)


@app.callback()
def _group() -> None:
    """Measure, and prove that nothing else changed."""


app.command("fit")(fit)
app.command("proof")(proof)
