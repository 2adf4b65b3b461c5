"""``lucid data stats``: what a data set holds."""

from dataclasses import asdict
from pathlib import Path
from typing import Annotated

import typer

from lucid_app.checks import check_data, check_file_target
from lucid_app.console import out, print_json
from lucid_app.options import LabelsOption, LayoutOption, as_layout
from lucid_data import Stats, available_splits, open_catalog
from lucid_data import stats as count
from lucid_viz import plot_stats, save_figure


def stats(
    path: Annotated[Path, typer.Argument(help="Folder of images and labels.")],
    task: LabelsOption = "detect",
    split: Annotated[
        list[str] | None, typer.Option(help="Split to count; again for more; all when absent.")
    ] = None,
    layout: LayoutOption = None,
    plot: Annotated[
        Path | None,
        typer.Option(help="Draw it as well; with several splits each gets its name in the file's."),
    ] = None,
    as_json: Annotated[bool, typer.Option("--json", help="Print the counts as JSON.")] = False,
) -> None:
    """Count classes, box sizes, picture sizes and what the reader left out; no picture is decoded.

    Examples:
        lucid data stats ~/photos --split train --plot photos.png
    """
    check_file_target("--plot", plot)
    check_data(path)
    known = as_layout(layout)
    splits = split or list(available_splits(path, task, layout=known)) or ["train"]
    counted = {name: count(open_catalog(path, name, task, layout=known)) for name in splits}
    drawn = (
        []
        if plot is None
        else [_draw(numbers, _named(plot, name, len(counted))) for name, numbers in counted.items()]
    )
    if as_json:
        print_json({name: asdict(numbers) for name, numbers in counted.items()})
        return
    for name, numbers in counted.items():
        out.print(f"{name}\n{numbers}\n", soft_wrap=True)
    for file in drawn:
        out.print(str(file), soft_wrap=True)


def _named(plot: Path, split: str, splits: int) -> Path:
    return plot if splits == 1 else plot.with_name(f"{plot.stem}-{split}{plot.suffix}")


def _draw(numbers: Stats, file: Path) -> Path:
    save_figure(plot_stats(numbers), file)
    return file
