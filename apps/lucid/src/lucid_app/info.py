"""``lucid info``: sizes, costs and environment."""

import platform
from importlib.metadata import version
from typing import Annotated

import torch
import typer
from rich.table import Table

from lucid_app.console import out, print_json
from lucid_app.options import choice, task_choice
from lucid_models import SIZES, TASKS, count
from lucid_train import chosen_device, usable_switches


def info(
    size: Annotated[str | None, choice("One size", SIZES)] = None,
    task: Annotated[str | None, task_choice("One task")] = None,
    switches: Annotated[
        bool,
        typer.Option("--switches", help="Only which switches of lucid fit this machine can use, or why not."),
    ] = False,
    as_json: Annotated[
        bool, typer.Option("--json", help="Print the sizes as JSON, with --switches those.")
    ] = False,
) -> None:
    """Show parameters and GFLOPs of every network, this machine's environment, and the switches it can use.

    With --task or --size only those networks and the environment.
    Parameters are those of the deployed network (one branch, normalisation folded) and of the training checkpoint;
    GFLOPs are of one picture at the task's own canvas.

    Examples:
        lucid info

        lucid info --size n --json

        lucid info --switches
    """
    if switches:
        _print_switches(as_json)
        return
    rows = []
    for one_task in [task] if task else list(TASKS):
        for one_size in [size] if size else list(SIZES):
            counted = count(one_task, one_size)
            rows.append(
                {
                    "task": one_task,
                    "size": one_size,
                    "params_deployed": counted.params_deployed,
                    "params_training": counted.params_training,
                    "gflops": round(counted.gflops, 4),
                }
            )
    if as_json:
        print_json(rows)
        return
    table = Table("task", "size", "deployed", "training", "GFLOPs", "at")
    for row in rows:
        table.add_row(
            str(row["task"]),
            str(row["size"]),
            f"{row['params_deployed']:,}",
            f"{row['params_training']:,}",
            f"{row['gflops']:.4f}",
            f"{TASKS[str(row['task'])].image_size} px",
        )
    out.print(table)
    cuda = torch.cuda.get_device_name(0) if torch.cuda.is_available() else "none"
    out.print(
        f"lucid {version('lucid-app')}  torch {torch.__version__}  python {platform.python_version()}  "
        f"CUDA device: {cuda}  threads: {torch.get_num_threads()}",
        soft_wrap=True,
    )
    if not (task or size):
        _print_switches()


def _print_switches(as_json: bool = False) -> None:
    """Print a line per switch: yes, or why a fit on this machine cannot have it."""
    found = usable_switches()
    if as_json:
        print_json([{"switch": name, "usable": why is None, "reason": why} for name, why in found.items()])
        return
    out.print(f"switches of lucid fit, on {chosen_device('auto')}:")
    for name, why in found.items():
        option = f"--{name.replace('_', '-')}"
        out.print(f"  {option:30s} {'yes' if why is None else f'no: {why}'}", soft_wrap=True)
