"""``lucid bench step``: images per second of the bare training step, by precision and memory format."""

import statistics
from typing import Annotated

import torch
import typer

from lucid_app.bench.bare import PARTS, BareStep, Workload
from lucid_app.bench.limits import compute_limit, flops_of, matrix_rate
from lucid_app.bench.options import (
    JsonOption,
    MeasuredDeviceOption,
    OutputOption,
    QuickOption,
    RoundsOption,
    ThreadsOption,
    prepare,
)
from lucid_app.bench.record import Record, Table, command_line, finish, machine, today
from lucid_app.bench.turns import compared, times
from lucid_app.checks import check_at_least, check_canvas
from lucid_app.options import SizeOption, TaskOption

ROUTES = {
    "float32, contiguous": ("32", False),
    "float32, channels last": ("32", True),
    "bf16-mixed, contiguous": ("bf16-mixed", False),
    "bf16-mixed, channels last": ("bf16-mixed", True),
}
REFERENCE = "float32, contiguous"


def step(
    context: typer.Context,
    task: TaskOption = "detect",
    size: SizeOption = "n",
    batch: Annotated[int, typer.Option(help="Images per step.")] = 16,
    image_size: Annotated[int, typer.Option(help="Side of the canvas, a multiple of 32.")] = 320,
    device: MeasuredDeviceOption = "cpu",
    threads: ThreadsOption = None,
    rounds: RoundsOption = 7,
    quick: QuickOption = False,
    as_json: JsonOption = False,
    output: OutputOption = None,
) -> None:
    """Measure the bare training step: network, objective, clipping and MuSGD on a random batch.

    Each route takes its turn in every round; the reference is float32 with contiguous tensors. Then the parts of a
    step, each timed alone, and how near a step comes to the rate of a plain matrix product in the same run.

    Examples:
        lucid bench step

        lucid bench step --device cuda --size s --image-size 640
    """
    check_at_least("--batch", batch, 1)
    check_canvas(image_size)
    device = prepare(device, threads, output, rounds)
    workload = Workload(task, size, batch, image_size)
    if quick:
        workload, rounds = Workload(task, size, 1, 64, 2), 1
    steps = {name: BareStep(workload, device, *route) for name, route in ROUTES.items()}
    taken = times(steps, rounds, device, warm=1 if quick else 2)
    of = f"{task} {size}, batch {workload.batch}, {workload.image_size} px"
    record = Record(
        "step",
        command_line(context),
        machine(device),
        {
            f"Bare training step, {of}": compared(
                taken, workload.batch, REFERENCE, ms="ms per step", of="of the reference", digits=3
            ),
            f"Parts of a step, {of}, ms": parts(steps, max(1, rounds // 2)),
        },
        tuple(roofline(steps, {name: statistics.median(ms) for name, ms in taken.items()}, quick)),
        today(),
    )
    finish(record, as_json, output)


def parts(steps: dict[str, BareStep], rounds: int) -> Table:
    """Return a row per route with the median milliseconds of each part."""
    table = []
    for name, one in steps.items():
        measured = [one.parts() for _ in range(rounds)]
        medians = {part: round(statistics.median(m[part] for m in measured), 1) for part in PARTS}
        table.append({"route": name} | medians)
    return table


def roofline(steps: dict[str, BareStep], medians: dict[str, float], quick: bool) -> list[str]:
    """Return a line per route: how near a step comes to the matrix products that its arithmetic amounts to."""
    flops = flops_of(steps[REFERENCE])
    device, side = steps[REFERENCE].device, 128 if quick else None
    rates = {
        precision: matrix_rate(device, dtype, side=side)
        for precision, dtype in (("32", torch.float32), ("bf16-mixed", torch.bfloat16))
    }
    return [compute_limit(name, flops, rates[ROUTES[name][0]], ms) for name, ms in medians.items()]
