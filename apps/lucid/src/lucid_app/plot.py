"""``lucid plot``: draw a run's curves."""

from pathlib import Path
from typing import Annotated

import typer

from lucid_app.console import out
from lucid_app.sheets import mosaic_end
from lucid_train import ConfigError, stored_config
from lucid_viz import plot_curves, save_figure


def plot(
    run: Annotated[Path, typer.Argument(help="Folder of a run, or its metrics.csv.")],
    output: Annotated[
        Path | None, typer.Option(help="Picture to write; the suffix chooses the format.")
    ] = None,
) -> None:
    """Draw a run's loss and AP curves.

    Examples:
        lucid plot runs/detect-n-1

        lucid plot runs/detect-n-1 --output curves.pdf
    """
    if not run.exists():
        raise ConfigError(f"{run}: nothing there; give a run's folder or its metrics.csv")
    folder = run if run.is_dir() else run.parent
    figure = plot_curves(run, mark_epoch=_mosaic_end(folder))
    target = output or folder / "plots" / "curves.png"
    save_figure(figure, target)
    out.print(str(target), soft_wrap=True)


def _mosaic_end(folder: Path) -> int | None:
    """Return where mosaic ends, None too where the table lies beside no configuration of a run: it needs none."""
    try:
        return mosaic_end(stored_config(folder))
    except ConfigError:
        return None
