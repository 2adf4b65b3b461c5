"""``lucid bench``: measurements anyone can repeat, each against a reference in the same run, one file per command."""

import typer

from lucid_app.bench.evaluation import evaluation
from lucid_app.bench.fit import fit
from lucid_app.bench.geometry import geometry
from lucid_app.bench.loader import loader
from lucid_app.bench.opening import opening
from lucid_app.bench.optim import optim
from lucid_app.bench.predict import predict
from lucid_app.bench.proof import proof
from lucid_app.bench.publish import publish
from lucid_app.bench.replay import replay
from lucid_app.bench.scaling import scaling
from lucid_app.bench.step import step

app = typer.Typer(help="Measure, and prove that nothing else changed.", no_args_is_help=True)


@app.callback()
def _group() -> None:
    """Measure, and prove that nothing else changed."""


app.command("fit")(fit)
app.command("step")(step)
app.command("loader")(loader)
app.command("predict")(predict)
app.command("optim")(optim)
app.command("geometry")(geometry)
app.command("eval")(evaluation)
app.command("open")(opening)
app.command("scaling")(scaling)
app.command("replay")(replay)
app.command("proof")(proof)
app.command("publish")(publish)
