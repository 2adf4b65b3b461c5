"""``lucid bench proof``: every switch learns the bytes that a run without it learns, shown fit by fit."""

import tempfile
from dataclasses import asdict
from pathlib import Path
from typing import Annotated

import typer
from rich.table import Table

from lucid_app.console import counting, out, print_json
from lucid_app.keys import naming_options
from lucid_app.options import choice
from lucid_train import REPLAY_SWITCHES, SPEED_SWITCHES, TASK_TABLE, ProofRow, prove

SWITCHES = (*REPLAY_SWITCHES, *SPEED_SWITCHES, "all")


def proof(
    task: Annotated[
        list[str] | None, choice("Task", TASK_TABLE, more="Again for more; all when absent.")
    ] = None,
    switch: Annotated[
        list[str] | None,
        choice(
            "Switch of lucid fit",
            SWITCHES,
            more="all is every one together. Again for more; each alone, then all, when absent.",
        ),
    ] = None,
    device: Annotated[
        str, choice("Where", ("cpu", "cuda"), more="On the CPU a tape stands in for CUDA graphs.")
    ] = "cpu",
    as_json: Annotated[bool, typer.Option("--json", help="Print the rows as JSON.")] = False,
    quiet: Annotated[bool, typer.Option("--quiet", help="No progress.")] = False,
) -> None:
    """Prove that switches change no byte of what is learned.

    Trains drawn scenes for six batches natively, with each switch alone, and with all of a task's together, and
    compares SHA-256 fingerprints of weights, optimizer, average, losses and metrics. Exit status 1 when any differs,
    or when a recording was never launched. compile_step is traced on the CPU and not compiled: compiled, it learns what
    is close, not the same bytes.

    Examples:
        lucid bench proof

        lucid bench proof --task pose --switch capture_network --json
    """
    tasks = task or list(TASK_TABLE)
    each = len(switch) if switch else len(REPLAY_SWITCHES) + len(SPEED_SWITCHES) + 1
    rows: list[ProofRow] = []
    with (
        naming_options(["run.device"]),
        tempfile.TemporaryDirectory(prefix="lucid-proof-") as folder,
        counting("proof", quiet) as tell,
    ):
        for row in prove(Path(folder), tasks, switch, device=device):
            rows.append(row)
            tell(len(rows), len(tasks) * (1 + each))
    if as_json:
        print_json([asdict(row) | {"proved": row.proved} for row in rows])
    else:
        out.print(proof_table(rows))
        for why in sorted({row.why for row in rows if row.why}):
            out.print(f"not here: {why}", soft_wrap=True)
    if not all(row.proved for row in rows):
        raise typer.Exit(1)


def proof_table(rows: list[ProofRow]) -> Table:
    """Return the matrix as a table: fingerprint equal?, launches of recordings, calls left native."""
    table = Table(box=None, pad_edge=False)
    for name in ("task", "switch", "fingerprint"):
        table.add_column(name, no_wrap=name != "fingerprint")
    for name in ("launches", "eager"):
        table.add_column(name, justify="right")
    for row in rows:
        counts = (str(row.launches), str(row.eager)) if row.launches or row.eager else ("-", "-")
        table.add_row(row.task, row.switch, verdict(row), *counts)
    return table


def verdict(row: ProofRow) -> str:
    """Return what a fit showed, in a few words.

    Example:
        >>> verdict(ProofRow("detect", "capture_loss", True, launches=4))
        'equal'
    """
    if row.equal is None:
        return "not here"
    if not row.equal:
        return f"DIFFERS in {', '.join(row.differs)}"
    return "equal" if row.proved else "equal, but NEVER LAUNCHED"
