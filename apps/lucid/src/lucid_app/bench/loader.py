"""``lucid bench loader``: a training sample as a multiple of one decode of the same photographs."""

import cProfile
import tempfile
from collections import deque
from contextlib import ExitStack
from importlib.util import find_spec
from pathlib import Path
from typing import Annotated, Any, Literal

import typer

import lucid_data
from lucid_app.bench.limits import copy_rate, memory_limit
from lucid_app.bench.options import JsonOption, MeasuredDeviceOption, OutputOption, QuickOption, prepare
from lucid_app.bench.record import Record, Row, Table, command_line, finish, machine, today
from lucid_app.bench.turns import medians, once
from lucid_app.checks import check_at_least, check_canvas, check_data
from lucid_app.options import LabelsOption, LayoutOption, as_layout
from lucid_data import (
    Catalog,
    TrainPipeline,
    cache_pictures,
    collate,
    jitter_batch,
    open_catalog,
    policy_for,
    synthetic,
)

Colour = Literal["torch", "compiled", "device"]
ROUTES: dict[str, tuple[str | None, Colour]] = {
    "plain": (None, "torch"),
    "decoded cache": ("decoded", "torch"),
    "prepared cache": ("prepared", "torch"),
    "fused colour": (None, "compiled"),
    "decoded cache, fused colour": ("decoded", "compiled"),
    "prepared cache, fused colour": ("prepared", "compiled"),
    "device colour": (None, "device"),
    "decoded cache, device colour": ("decoded", "device"),
    "prepared cache, device colour": ("prepared", "device"),
}
"""Which cache, and what colours: torch's operations in the worker, the compiled pass there, or the device later."""
HELD = 16
"""Samples and pictures kept at a time, as a worker keeps those of a batch."""
STAGES = {
    "decode": ("catalog", "images", "picture_cache", "letterbox"),
    "draw": ("affine", "mosaic", "mixup", "copy_paste"),
    "colour": ("color",),
    "labels": ("moving", "masks", "targets"),
    "flip": ("flip",),
}
"""Modules of lucid_data that make a sample, by what they are to it."""
COMPOSING = ("pipeline", "composition")
"""Modules of lucid_data that call them."""


def loader(
    context: typer.Context,
    data: Annotated[
        Path | None, typer.Argument(help="Folder of images and labels; drawn scenes when absent.")
    ] = None,
    split: Annotated[str, typer.Option(help="Which split.")] = "train",
    task: LabelsOption = "detect",
    layout: LayoutOption = None,
    samples: Annotated[int, typer.Option(help="Samples of each route.")] = 120,
    image_size: Annotated[int, typer.Option(help="Side of the canvas, a multiple of 32.")] = 640,
    device: MeasuredDeviceOption = "cpu",
    quick: QuickOption = False,
    as_json: JsonOption = False,
    output: OutputOption = None,
) -> None:
    """Measure a sample of the complete training pipeline, mosaic on, in one process with one thread.

    The reference is reading and decoding one of the same photographs, timed before and after each route; it is the
    limit too, where nothing is cached, for every photograph is decoded once an epoch. The shares of the stages are of a
    second pass under a profiler. Last, what colour costs on the device, per batch of 16.

    Examples:
        lucid bench loader ~/photos

        lucid bench loader tiles --task obb --layout dota --image-size 1024
    """
    check_at_least("--samples", samples, 1)
    check_canvas(image_size)
    device = prepare(device, 1, output)
    if data is not None:
        check_data(data)
    if quick:
        samples, image_size = 2, 64
    with ExitStack() as stack:
        folder = data or scenes(Path(stack.enter_context(tempfile.TemporaryDirectory())), task, quick)
        catalog = open_catalog(folder, split, task, layout=as_layout(layout))
        count = min(samples, len(catalog))
        routes = [name for name, (_, colour) in ROUTES.items() if colour != "compiled" or has_numba()]
        table = [measured(catalog, image_size, count, name) for name in routes]
        colour, limit = device_colour(catalog, image_size, device, 2 if quick else 16)
    source = data.name if data else "drawn scenes"
    record = Record(
        "loader",
        command_line(context),
        machine(device, ("torchvision",)),
        {
            f"A training sample at {image_size} px, {task}, size n": table,
            f"Colour on the device, {image_size} px": colour,
        },
        (
            f"{count} photographs of {source}",
            "limit: without a cache a sample takes at least one decode on average over an epoch",
            "the shares are a profiler's, to which many small calls look dearer than they are",
            limit,
            *([] if has_numba() else ["Numba is not installed: fused colour is left out"]),
        ),
        today(),
    )
    finish(record, as_json, output)


def has_numba() -> bool:
    """Return whether the compiled pass can be measured."""
    return find_spec("numba") is not None


def scenes(folder: Path, task: str, quick: bool) -> Path:
    """Return ``folder`` with a drawn data set in it."""
    splits, size = {"train": 4 if quick else 64}, 64 if quick else 640
    if task == "obb":
        return synthetic.write_dota(folder, splits=splits, size=size)
    return synthetic.write_coco(folder, splits=splits, size=size, task=task)


def measured(catalog: Catalog, image_size: int, count: int, route: str) -> Row:
    """Return the row of one route: its time, the multiple of a decode, and the shares of its stages."""
    kept, colour = ROUTES[route]
    size = {"decoded": None, "prepared": image_size}.get(kept or "")
    pipeline = TrainPipeline(
        catalog,
        image_size,
        policy_for("n", catalog.task),
        0,
        cache=cache_pictures(catalog, size) if kept else None,
        device_color=colour == "device",
        fused_color=colour == "compiled",
    )
    catalog.image(0)
    shown = pipeline.order(0).tolist()[:count]
    before = decode_ms(catalog, shown)
    taken = sample_ms(pipeline, count)
    decode = (before + decode_ms(catalog, shown)) / 2
    row: Row = {"route": route, "ms": round(taken, 2), "decode, ms": round(decode, 2)}
    row["of a decode"] = round(taken / decode, 2)
    return row | {stage: f"{100 * share:.0f} %" for stage, share in stage_shares(pipeline, count).items()}


def decode_ms(catalog: Catalog, indices: list[int]) -> float:
    """Return the mean milliseconds of reading one of the pictures at ``indices``."""
    return once(lambda: deque(map(catalog.image, indices), HELD)) / len(indices)


def sample_ms(pipeline: TrainPipeline, count: int) -> float:
    """Return the mean milliseconds of one sample of epoch 0, after a warm-up on the epoch before."""
    order = pipeline.order(0).tolist()[:count]
    for index in pipeline.order(1).tolist()[:8]:
        pipeline(1, index)
    return once(lambda: deque((pipeline(0, index) for index in order), HELD)) / len(order)


def stage_shares(pipeline: TrainPipeline, count: int) -> dict[str, float]:
    """Return the share of each stage in the samples of epoch 2; ``rest`` is draws and bookkeeping.

    A stage is what the files of :data:`COMPOSING` call in the modules of :data:`STAGES`, as the profiler sees it.
    """
    order = pipeline.order(2).tolist()[:count]
    profile = cProfile.Profile()
    profile.enable()
    for index in order:
        pipeline(2, index)
    profile.disable()
    profile.create_stats()
    seen: dict[Any, Any] = vars(profile)["stats"]
    package = Path(lucid_data.__file__).parent
    spent = dict.fromkeys(STAGES, 0.0)
    stage_of = {module: stage for stage, modules in STAGES.items() for module in modules}
    for (file, _, _), (_, _, _, _, callers) in seen.items():
        stage = stage_of.get(Path(file).stem) if package in Path(file).parents else None
        if stage is not None:
            spent[stage] += sum(
                times[3] for caller, times in callers.items() if Path(caller[0]).stem in COMPOSING
            )
    whole = sum(own for _, _, own, _, _ in seen.values())
    shares = {stage: seconds / whole for stage, seconds in spent.items()}
    return shares | {"rest": 1.0 - sum(shares.values())}


def device_colour(catalog: Catalog, image_size: int, device: str, batch: int) -> tuple[Table, str]:
    """Return what colour costs the training device for one batch, by route, and the line of its limit."""
    pipeline = TrainPipeline(catalog, image_size, policy_for("n", catalog.task), 0, device_color=True)
    order = pipeline.order(0).tolist()
    samples = collate([pipeline(0, order[n % len(order)]) for n in range(batch)]).to(device)
    images, gains = samples.images, samples.color
    assert gains is not None
    calls = {"torch expressions": lambda: jitter_batch(images, gains)}
    if find_spec("triton") if device.startswith("cuda") else has_numba():
        calls["fused kernel"] = lambda: jitter_batch(images, gains, fused=True)
    taken = medians(calls, 5, device)
    rate = copy_rate(device, bytes_moved=max(1 << 20, 2 * images.numel()))
    fastest = min(taken, key=taken.__getitem__)
    limit = memory_limit(f"colour, {fastest}", 2 * images.numel(), rate, taken[fastest])
    return [{"route": name, "batch": batch, "ms": round(ms, 3)} for name, ms in taken.items()], limit
