"""``lucid bench scaling``: how costs grow with image size, batch, objects and data, fitted as powers and drawn."""

import math
import statistics
import tempfile
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated

import typer

from lucid_app.bench.bare import BareStep, Workload
from lucid_app.bench.made import scored_scenes, write_large
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
from lucid_app.bench.turns import once, times
from lucid_app.checks import check_file_target
from lucid_app.console import counting
from lucid_app.options import SizeOption, TaskOption
from lucid_data import open_catalog, score_coco
from lucid_viz import plot_scaling, save_figure


@dataclass(frozen=True)
class Axis:
    """A cost and what it grows with: four values, their tiny stand-ins, and what makes the call for one value."""

    cost: str
    grows_with: str
    values: tuple[int, ...]
    quick: tuple[int, ...]
    call: Callable[[int], Callable[[], object]]


def scaling(
    context: typer.Context,
    task: TaskOption = "detect",
    size: SizeOption = "n",
    device: MeasuredDeviceOption = "cpu",
    threads: ThreadsOption = None,
    rounds: RoundsOption = 3,
    plot: Annotated[Path | None, typer.Option(help="Draw it as well.")] = None,
    quick: QuickOption = False,
    as_json: JsonOption = False,
    output: OutputOption = None,
) -> None:
    """Measure how the cost of a step, of scoring and of opening a data set grows, at four sizes each.

    A power of the size is fitted to the medians: exponent 1 doubles the cost with the size, 2 makes it four times.
    Costs with a fixed part have a smaller exponent than their growth at the end; the last column is the growth from the
    third size to the fourth. Scoring and opening always run on the CPU.

    Examples:
        lucid bench scaling --plot scaling.png
    """
    check_file_target("--plot", plot)
    device = prepare(device, threads, output, rounds)
    tables: dict[str, Table] = {}
    curves = {}
    with tempfile.TemporaryDirectory() as folder, counting("scaling", quiet=as_json) as moved:
        axes = all_axes(task, size, device, Path(folder), quick)
        for number, axis in enumerate(axes):
            values = axis.quick if quick else axis.values
            taken = measured(axis, values, 1 if quick else rounds, device)
            title = f"{axis.cost} by {axis.grows_with}"
            tables[title] = table(axis, values, taken)
            curves[title] = (list(values), [statistics.median(ms) for ms in taken])
            moved(number + 1, len(axes))
    exponents = [growth_row(title, *curve) for title, curve in curves.items()]
    if plot is not None:
        save_figure(plot_scaling(curves), plot)
    record = Record(
        "scaling",
        command_line(context),
        machine(device, ("pycocotools",)),
        {"Fitted powers": exponents, **tables},
        (
            f"the step is {task} {size}, float32, channels last; what is not varied is 320 px, batch 4 and 8 objects "
            "an image; scoring is of 500 images or 100 detections an image",
        ),
        today(),
    )
    finish(record, as_json, output)


def all_axes(task: str, size: str, device: str, folder: Path, quick: bool) -> list[Axis]:
    """Return everything that is measured."""
    usual = (
        {"batch": 2, "image_size": 32, "objects": 1}
        if quick
        else {"batch": 4, "image_size": 320, "objects": 8}
    )

    def step(**changed: int) -> Callable[[], object]:
        workload = Workload(task, size, **{**usual, **changed})
        return BareStep(workload, device, "32", channels_last=True)

    def scoring(images: int, detections: int) -> Callable[[], object]:
        truth, results = scored_scenes(images, detections)
        return lambda: score_coco(truth, results)

    def opening(images: int) -> Callable[[], object]:
        path = folder / str(images) / "labels" / "all.json"
        path.parent.mkdir(parents=True)
        write_large(path, images, 10)
        return lambda: open_catalog(path, "all")

    return [
        Axis(
            "A step", "image size, px", (160, 320, 480, 640), (32, 64, 96, 128), lambda n: step(image_size=n)
        ),
        Axis("A step", "batch", (1, 2, 4, 8), (2, 3, 4, 5), lambda n: step(batch=n)),
        Axis("A step", "objects an image", (1, 8, 32, 128), (1, 2, 3, 4), lambda n: step(objects=n)),
        Axis(
            "Scoring",
            "images",
            (250, 500, 1000, 2000),
            (2, 4, 6, 8),
            lambda n: scoring(n, 10 if quick else 100),
        ),
        Axis(
            "Scoring",
            "detections an image",
            (12, 25, 50, 100),
            (2, 4, 6, 8),
            lambda n: scoring(4 if quick else 500, n),
        ),
        Axis("Opening", "images of 10 objects", (5000, 10_000, 20_000, 40_000), (2, 4, 6, 8), opening),
    ]


def measured(axis: Axis, values: Sequence[int], rounds: int, device: str) -> list[list[float]]:
    """Return the milliseconds of each round at each value, round by round."""
    if axis.cost == "Scoring":
        return [[once(axis.call(value)) for _ in range(rounds)] for value in values]
    taken = times({str(value): axis.call(value) for value in values}, rounds, device)
    return [taken[str(value)] for value in values]


def table(axis: Axis, values: Sequence[int], taken: Sequence[Sequence[float]]) -> Table:
    """Return a row per value."""
    return [
        {
            axis.grows_with: value,
            "ms": round(statistics.median(ms), 1),
            "range, ms": f"{min(ms):.1f} to {max(ms):.1f}",
        }
        for value, ms in zip(values, taken, strict=True)
    ]


def growth_row(title: str, sizes: Sequence[float], costs: Sequence[float]) -> dict[str, str | float]:
    """Return the fitted power of one curve, and its growth at the end.

    Example:
        >>> growth_row("a step by batch", [1, 2, 4, 8], [3.0, 6.0, 12.0, 24.0])
        {'cost': 'a step by batch', 'exponent': 1.0, 'exponent from third to fourth': 1.0}
    """
    last = math.log(costs[-1] / costs[-2]) / math.log(sizes[-1] / sizes[-2])
    return {
        "cost": title,
        "exponent": round(exponent(sizes, costs), 2),
        "exponent from third to fourth": round(last, 2),
    }


def exponent(sizes: Sequence[float], costs: Sequence[float]) -> float:
    """Return the power of the size that fits the costs best, by least squares of logarithms.

    Example:
        >>> round(exponent([1, 2, 4, 8], [5, 20, 80, 320]), 6)
        2.0
    """
    x, y = [math.log(size) for size in sizes], [math.log(cost) for cost in costs]
    return float(statistics.linear_regression(x, y).slope)
