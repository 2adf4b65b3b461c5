"""``lucid bench predict``: latency of the bare network, of the predictor end to end, and of onnxruntime."""

import importlib.util
import statistics
import tempfile
from collections.abc import Callable
from typing import Annotated

import torch
import typer
from torch import Tensor

from lucid_app.bench.limits import compute_limit, matrix_rate
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
from lucid_models import (
    Detector,
    ExportedPredictor,
    Predictor,
    build_detector,
    count,
    export,
    fuse,
)

NETWORK = "network, float32, channels last"
CONTIGUOUS = "network, float32, contiguous"
BFLOAT16 = "network, bfloat16, channels last"
SMALL, LARGE = (480, 640), (1080, 1920)
_ONNX = ("onnx", "onnxscript", "onnxruntime")


def predict(
    context: typer.Context,
    task: TaskOption = "detect",
    size: SizeOption = "n",
    image_size: Annotated[int, typer.Option(help="Side of the canvas, a multiple of 32.")] = 640,
    batch: Annotated[
        list[int] | None, typer.Option(help="Images per batch; again for more; 1 and 8.")
    ] = None,
    device: MeasuredDeviceOption = "cpu",
    threads: ThreadsOption = None,
    rounds: RoundsOption = 15,
    profile: Annotated[
        bool, typer.Option("--profile", help="Add the shares of the predictor's operations.")
    ] = False,
    quick: QuickOption = False,
    as_json: JsonOption = False,
    output: OutputOption = None,
) -> None:
    """Measure how long a batch takes, its images in memory: bare network, predictor end to end, onnxruntime.

    Each route takes its turn in every round; the reference is the bare folded network in float32, channels last. The
    graph of onnxruntime chooses the rows as well; it is left out on CUDA and where the extra ``onnx`` is not installed.

    Examples:
        lucid bench predict

        lucid bench predict --task segment --size s --batch 1 --device cuda
    """
    check_canvas(image_size)
    batches = batch or [1, 8]
    for one in batches:
        check_at_least("--batch", one, 1)
    device = prepare(device, threads, output, rounds)
    if quick:
        image_size, batches, rounds = 64, [1], 1
    torch.manual_seed(0)
    detector = build_detector(
        task, size, image_size=image_size, num_keypoints=17 if task == "pose" else None
    ).eval()
    onnx = device == "cpu" and all(importlib.util.find_spec(module) for module in _ONNX)
    of = f"{task} {size} at {image_size} px"
    tables: dict[str, Table] = {}
    notes: list[str] = [] if onnx else ["onnxruntime is left out: it needs the CPU and the extra onnx"]
    gflops = count(detector, image_size=image_size).gflops
    rates = {
        route: matrix_rate(device, dtype, side=128 if quick else None)
        for route, dtype in ((NETWORK, torch.float32), (BFLOAT16, torch.bfloat16))
    }
    with tempfile.TemporaryDirectory() as folder:
        exported = ExportedPredictor(export(detector, f"{folder}/it.onnx")) if onnx else None
        for number in batches:
            with torch.inference_mode():
                taken = times(routes(detector, number, device, exported), rounds, device, warm=2)
            tables[f"{of}, batch {number}"] = compared(taken, number, NETWORK, of="of the network", digits=2)
            notes += [
                compute_limit(
                    f"batch {number}, {route}",
                    round(1e9 * gflops * number),
                    rate,
                    statistics.median(taken[route]),
                )
                for route, rate in rates.items()
            ]
    if profile:
        tables[f"Operations of the predictor, {of}, batch 1"] = shares(detector, device)
    libraries = ("torchvision", "onnxruntime")
    record = Record(
        "predict", command_line(context), machine(device, libraries), tables, tuple(notes), today()
    )
    finish(record, as_json, output)


def routes(
    detector: Detector, batch: int, device: str, exported: ExportedPredictor | None
) -> dict[str, Callable[[], object]]:
    """Return what is measured at one batch size, by name."""
    side, last = detector.image_size, torch.channels_last
    canvases = torch.rand(batch, 3, side, side, generator=torch.Generator().manual_seed(0))
    close = canvases.to(device)
    wide = close.contiguous(memory_format=last)
    plain, spread = fuse(detector).to(device), fuse(detector).to(device).to(memory_format=last)
    half = fuse(detector).to(device, torch.bfloat16).to(memory_format=last)
    narrow = wide.to(torch.bfloat16)
    predictor = Predictor(detector, device=device, batch_size=batch)
    small, large = pictures(batch, *SMALL), pictures(batch, *LARGE)
    calls: dict[str, Callable[[], object]] = {
        CONTIGUOUS: lambda: plain(close),
        NETWORK: lambda: spread(wide),
        BFLOAT16: lambda: half(narrow),
        "predictor, images of 480 x 640": lambda: predictor(small),
        "predictor, images of 1080 x 1920": lambda: predictor(large),
    }
    if exported is not None:
        calls["onnxruntime, float32, rows included"] = lambda: exported.rows(canvases)
    return calls


def pictures(number: int, height: int, width: int) -> list[Tensor]:
    """Return seeded uint8 pictures."""
    g = torch.Generator().manual_seed(0)
    return [torch.randint(0, 256, (3, height, width), generator=g, dtype=torch.uint8) for _ in range(number)]


def shares(detector: Detector, device: str) -> Table:
    """Return where the predictor's time goes at batch 1, as the profiler sees it."""
    predictor, images = Predictor(detector, device=device, batch_size=1), pictures(1, *SMALL)
    predictor(images)
    with torch.profiler.profile() as seen:
        predictor(images)

    def own(event: object) -> float:
        name = "self_device_time_total" if device.startswith("cuda") else "self_cpu_time_total"
        return float(getattr(event, name))

    events = sorted(seen.key_averages(), key=own, reverse=True)
    whole = sum(own(event) for event in events)
    return [{"operation": event.key, "share": f"{own(event) / whole:.1%}"} for event in events[:10]]
