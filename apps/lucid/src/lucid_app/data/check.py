"""``lucid data check``: a doctor for data sets."""

from collections.abc import Sequence
from dataclasses import asdict
from pathlib import Path
from typing import Annotated

import typer
from rich.table import Column, Table
from rich.text import Text

from lucid_app.checks import check_data
from lucid_app.console import Quiet, counting, out, print_json
from lucid_app.options import DotaVersionOption, LabelsOption, LayoutOption, as_layout
from lucid_data import Finding
from lucid_data import check as find_problems


def check(
    path: Annotated[Path, typer.Argument(help="Folder of images and labels.")],
    task: LabelsOption = "detect",
    layout: LayoutOption = None,
    decode: Annotated[
        bool,
        typer.Option(help="Decode every picture, which finds cut-off files; --no-decode reads headers only."),
    ] = True,
    dota_version: DotaVersionOption = None,
    as_json: Annotated[bool, typer.Option("--json", help="Print the findings as JSON.")] = False,
    quiet: Quiet = False,
) -> None:
    """Report every problem with its file, place and remedy; exit 1 when there is an error.

    Examples:
        lucid data check ~/photos

        lucid data check ~/photos --task segment --json
    """
    check_data(path)
    with counting("checking", quiet=quiet or as_json) as observe:
        findings = find_problems(
            path,
            task,
            layout=as_layout(layout),
            decode=decode,
            dota_version=dota_version,
            observer=observe,
        )
    counts = {level: sum(one.severity == level for one in findings) for level in ("error", "warning", "note")}
    if as_json:
        print_json({"findings": [asdict(one) for one in findings], "counts": counts})
    else:
        _print(findings)
        out.print(", ".join(f"{number} {level}{'s' * (number != 1)}" for level, number in counts.items()))
    if counts["error"]:
        raise typer.Exit(1)


def _print(findings: Sequence[Finding]) -> None:
    """Print a table on a terminal, and elsewhere a line each, whole, as editors and grep take them."""
    if not findings:
        return
    if not out.is_terminal:
        for one in findings:
            place = ": ".join(part for part in (one.file, one.where) if part)
            out.print(f"{place}: {one.severity} {one.code}: {one.message}; {one.remedy}", soft_wrap=True)
        return
    names = ("severity", "code", "file", "where", "problem", "remedy")
    # a path without its end is of no use
    table = Table(*(Column(name, overflow="fold") for name in names))
    for one in findings:
        table.add_row(*map(Text, (one.severity, one.code, one.file, one.where, one.message, one.remedy)))
    out.print(table)
