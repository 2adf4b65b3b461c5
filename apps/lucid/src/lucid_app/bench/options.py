"""The options that measurements share."""

from pathlib import Path
from typing import Annotated

import torch
import typer

from lucid_app.bench.record import check_result, usable_cores
from lucid_app.checks import check_at_least, check_file_target, choose_device
from lucid_app.options import DEVICES, device_choice
from lucid_train import ConfigError

MeasuredDeviceOption = Annotated[str, device_choice(kind for kind in DEVICES if kind != "mps")]
ThreadsOption = Annotated[int | None, typer.Option(help="torch threads; all usable cores when absent.")]
RoundsOption = Annotated[int, typer.Option(help="How often each competitor has its turn.")]
QuickOption = Annotated[
    bool, typer.Option("--quick", help="Tiny sizes, to see that it works; the times mean nothing.")
]
JsonOption = Annotated[bool, typer.Option("--json", help="Print the result as JSON.")]
OutputOption = Annotated[
    Path | None, typer.Option(help="Write the result to this .json, and as Markdown beside it.")
]


def prepare(device: str, threads: int | None, output: Path | None, rounds: int = 1) -> str:
    """Return the torch device after checking the shared options; the threads are set.

    Raises:
        ConfigError: a device that is not here or is not measured, no threads or rounds, or an unusable output.
    """
    check_result(output)
    check_file_target("--output", output)
    check_at_least("--threads", threads, 1)
    check_at_least("--rounds", rounds, 1)
    chosen = choose_device(device)
    if chosen == "mps":
        raise ConfigError(f"--device {device}: measurements run on cpu and cuda")
    torch.set_num_threads(threads or usable_cores())
    return chosen
