"""What a measurement leaves behind: tables with machine, versions and command, as text, JSON and Markdown."""

import json
import os
import platform
import re
import shlex
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass
from datetime import date
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from typing import Any

import torch
import typer
from rich import box
from rich.table import Table as Grid

from lucid_app.console import out, print_json
from lucid_train import ConfigError, write_text

Row = dict[str, Any]
Table = list[Row]


@dataclass(frozen=True)
class Record:
    """One measurement.

    Attributes:
        name: the command's, for example ``loader``.
        command: the line that repeats it.
        measured: the day, as ISO text; empty where it is not known.
        machine: processor or device, threads and versions.
        tables: rows by title; figures are rounded as they are shown, and every row of a table has the same keys.
        notes: limits and what was left out, one line each.
    """

    name: str
    command: str
    machine: Mapping[str, Any]
    tables: Mapping[str, Table]
    notes: tuple[str, ...] = ()
    measured: str = ""

    def to_json(self) -> str:
        """Return the text of a result file."""
        return json.dumps(asdict(self), indent=1, allow_nan=False) + "\n"

    def to_markdown(self) -> str:
        """Return everything as Markdown."""
        parts = [f"`{self.command}`", machine_line(self.machine, self.measured)]
        parts += [f"### {title}\n\n{markdown(table)}" for title, table in self.tables.items()]
        parts += [note_lines(self.notes)] if self.notes else []
        return "\n\n".join(parts) + "\n"


def read_record(path: Path) -> Record:
    """Return the record of a result file.

    Raises:
        OSError: it cannot be read.
        ValueError: it is no result of ``lucid bench``.
    """
    try:
        document = json.loads(path.read_text(encoding="utf-8"))
        return Record(**{**document, "notes": tuple(document.get("notes", ()))})
    except (TypeError, AttributeError, ValueError) as error:
        raise ValueError(f"{path}: no result of lucid bench ({error}); write it with --output") from error


def markdown(table: Table) -> str:
    """Return a table as Markdown.

    Example:
        >>> print(markdown([{"route": "plain", "ms": 1.5}]))
        | route | ms |
        |---|---|
        | plain | 1.5 |
    """
    head = list(table[0])
    lines = ["| " + " | ".join(head) + " |", "|" + "---|" * len(head)]
    return "\n".join(lines + ["| " + " | ".join(str(row[key]) for key in head) + " |" for row in table])


def machine_line(machine: Mapping[str, Any], measured: str = "") -> str:
    """Return the machine on one line.

    Example:
        >>> machine_line({"processor": "P", "threads": 2}, "2026-11-30")
        'processor P, threads 2, measured 2026-11-30'
    """
    text = ", ".join(f"{key} {value}" for key, value in machine.items())
    return f"{text}, measured {measured}" if measured else text


def note_lines(notes: Iterable[str]) -> str:
    """Return notes as a Markdown list."""
    return "\n".join(f"- {note}" for note in notes)


def machine(device: str, libraries: Sequence[str] = ()) -> dict[str, Any]:
    """Return what a figure depends on: processor, device, threads, system, and the versions of what is installed."""
    found: dict[str, Any] = {"processor": processor(), "cores": usable_cores()}
    if device.startswith("cuda"):
        found |= {"device": torch.cuda.get_device_name(device), "cuda": torch.version.cuda}
    found |= {
        "threads": torch.get_num_threads(),
        "system": platform.system(),
        "python": platform.python_version(),
    }
    for library in ("lucid-app", "torch", *libraries):
        try:
            found[library.removesuffix("-app")] = version(library)
        except PackageNotFoundError:
            continue  # a competitor that is not here is in the record's notes
    return found


def processor() -> str:
    """Return the name of the processor."""
    try:
        found = re.search(r"model name\s*:\s*(.+)", Path("/proc/cpuinfo").read_text())
    except OSError:
        found = None
    return found.group(1) if found else platform.processor() or platform.machine()


def usable_cores() -> int:
    """Return how many cores this process may use."""
    affinity = getattr(os, "sched_getaffinity", None)
    return len(affinity(0)) if affinity else os.cpu_count() or 1


def command_line(context: typer.Context) -> str:
    """Return the line that repeats a command: its name and every argument that was given."""
    words = context.command_path.split()
    for parameter in context.command.params:
        name = parameter.name or ""
        source = context.get_parameter_source(name)
        value = context.params.get(name)
        if source is None or source.name != "COMMANDLINE" or name in ("output", "result", "as_json"):
            continue
        if isinstance(value, bool):
            words.append(parameter.opts[0] if value else parameter.secondary_opts[0])
            continue
        for one in value if isinstance(value, list | tuple) else [value]:
            words += [parameter.opts[0]] * (parameter.param_type_name == "option") + [str(one)]
    return shlex.join(words)


def finish(record: Record, as_json: bool, output: Path | None) -> None:
    """Print a record, and write it where ``--output`` says: JSON, and Markdown beside it."""
    if output is not None:
        save(record, output)
    if as_json:
        print_json(asdict(record))
        return
    for title, table in record.tables.items():
        out.print(f"\n{title}", style="bold")
        out.print(grid(table))
    for note in record.notes:
        out.print(note, soft_wrap=True)
    out.print(machine_line(record.machine), soft_wrap=True, style="dim")
    if output is not None:
        out.print(str(output), soft_wrap=True)


def save(record: Record, output: Path) -> None:
    """Write a record's JSON to ``output`` and its Markdown beside it."""
    write_text(output, record.to_json())
    write_text(output.with_suffix(".md"), record.to_markdown())


def grid(table: Table) -> Grid:
    """Return a table for the terminal; numbers stand to the right."""
    drawn = Grid(box=box.SIMPLE_HEAD, pad_edge=False, padding=(0, 1, 0, 0))
    for key in table[0]:
        numeric = all(isinstance(row[key], int | float) for row in table)
        drawn.add_column(key, justify="right" if numeric else "left")
    for row in table:
        drawn.add_row(*(str(value) for value in row.values()))
    return drawn


def check_result(output: Path | None, option: str = "--output") -> None:
    """Raise ConfigError unless the file of ``option`` can be the JSON file of a result."""
    if output is not None and output.suffix != ".json":
        raise ConfigError(
            f"{option} {output}: give a file name that ends in .json; the Markdown goes beside it"
        )


def today() -> str:
    """Return the day of a measurement."""
    return date.today().isoformat()
