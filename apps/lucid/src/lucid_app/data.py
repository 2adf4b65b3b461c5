"""``lucid data``: look after data sets."""

from dataclasses import asdict
from pathlib import Path
from typing import Annotated

import typer
from rich.table import Table
from rich.text import Text

from lucid_app.console import out, print_json
from lucid_data import check as find_problems

app = typer.Typer(help="Look after data sets.", no_args_is_help=True)


@app.callback()
def _group() -> None:
    """Look after data sets; your files are never changed."""


@app.command("check")
def check(
    path: Annotated[Path, typer.Argument(help="Folder of images and labels.")],
    task: Annotated[str, typer.Option(help="What the labels are for: detect.")] = "detect",
    as_json: Annotated[bool, typer.Option("--json", help="Print the findings as JSON.")] = False,
) -> None:
    """Report every problem with its file, place and remedy; exit 1 when there is an error.

    Example:
        lucid data check ~/photos
    """
    findings = find_problems(path, task)
    counts = {level: sum(one.severity == level for one in findings) for level in ("error", "warning", "note")}
    if as_json:
        print_json({"findings": [asdict(one) for one in findings], "counts": counts})
    else:
        if findings:
            table = Table("severity", "code", "file", "where", "problem", "remedy")
            for one in findings:
                cells = (one.severity, one.code, str(one.file), str(one.where), one.message, one.remedy)
                table.add_row(*map(Text, cells))
            out.print(table)
        out.print(", ".join(f"{number} {level}{'s' * (number != 1)}" for level, number in counts.items()))
    if counts["error"]:
        raise typer.Exit(1)
