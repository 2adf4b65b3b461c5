"""Measure how long a detector takes per batch: eager forms, onnxruntime and the predictor end to end, in one run.

One command, about two minutes on two cores::

    python packages/lucid-models/benchmarks/predict.py

Competitors are measured in turn within each round, so that a busy moment of the machine meets all of them. The graph of
onnxruntime holds the selection of the rows too; it is left out where the extra ``onnx`` is not installed. ``--json``
prints one JSON document instead of the table.
"""

import argparse
import importlib.util
import json
import os
import platform
import re
import statistics
import tempfile
import time
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from lucid_models import Detector, ExportedPredictor, Predictor, build_detector, export, fuse

Table = list[dict[str, Any]]
NETWORK = "eager float32, channels last"
PREDICTOR = "predictor, images of 480 x 640"
ONNX = ("onnx", "onnxscript", "onnxruntime")


def milliseconds(calls: Mapping[str, Callable[[], object]], rounds: int) -> dict[str, list[float]]:
    """Return the times of each call, all of them measured once per round after two calls unmeasured."""
    taken: dict[str, list[float]] = {name: [] for name in calls}
    for call in calls.values():
        call()
        call()
    for _ in range(rounds):
        for name, call in calls.items():
            start = time.perf_counter()
            call()
            taken[name].append((time.perf_counter() - start) * 1e3)
    return taken


def pictures(count: int, height: int, width: int) -> list[Tensor]:
    """Return seeded uint8 pictures."""
    g = torch.Generator().manual_seed(0)
    return [torch.randint(0, 256, (3, height, width), generator=g, dtype=torch.uint8) for _ in range(count)]


def routes(
    detector: Detector, batch: int, exported: ExportedPredictor | None
) -> dict[str, Callable[[], object]]:
    """Return what is measured at one batch size, by name."""
    side, last = detector.image_size, torch.channels_last
    canvases = torch.rand(batch, 3, side, side, generator=torch.Generator().manual_seed(0))
    wide = canvases.contiguous(memory_format=last)
    plain, spread = fuse(detector), fuse(detector).to(memory_format=last)
    half, narrow = fuse(detector).to(torch.bfloat16, memory_format=last), wide.to(torch.bfloat16)
    predictor = Predictor(detector, batch_size=batch)
    small, large = pictures(batch, 480, 640), pictures(batch, 1080, 1920)
    calls: dict[str, Callable[[], object]] = {
        "eager float32, contiguous": lambda: plain(canvases),
        NETWORK: lambda: spread(wide),
        "eager bfloat16, channels last": lambda: half(narrow),
        PREDICTOR: lambda: predictor(small),
        "predictor, images of 1080 x 1920": lambda: predictor(large),
    }
    if exported is not None:
        calls["onnxruntime float32, rows included"] = lambda: exported.rows(canvases)
    return calls


def measure(detector: Detector, batches: list[int], rounds: int) -> Table:
    """Return one row per batch size and route."""
    table: Table = []
    with tempfile.TemporaryDirectory() as folder, torch.inference_mode():
        exported = None
        if all(importlib.util.find_spec(module) for module in ONNX):
            with torch.inference_mode(False):
                exported = ExportedPredictor(export(detector, f"{folder}/it.onnx"))
        for batch in batches:
            taken = milliseconds(routes(detector, batch, exported), rounds)
            network = statistics.median(taken[NETWORK])
            for name, times in taken.items():
                median = statistics.median(times)
                table.append(
                    {"batch": batch, "route": name, "ms": round(median, 1), "least ms": round(min(times), 1)}
                    | {"ms / ms of the network": round(median / network, 3)}
                )
    return table


def shares(detector: Detector, rounds: int) -> Table:
    """Return where the predictor's time goes at batch 1, as the profiler sees it."""
    predictor, images = Predictor(detector, batch_size=1), pictures(1, 480, 640)
    predictor(images)
    with torch.profiler.profile() as profile:
        for _ in range(rounds):
            predictor(images)
    events = sorted(profile.key_averages(), key=lambda event: -event.self_cpu_time_total)
    total = sum(event.self_cpu_time_total for event in events)
    return [
        {"operation": event.key, "share": f"{event.self_cpu_time_total / total:.1%}"} for event in events[:10]
    ]


def processor() -> str:
    """Return the name of the processor."""
    try:
        found = re.search(r"model name\s*:\s*(.+)", Path("/proc/cpuinfo").read_text())
    except OSError:
        found = None
    return found.group(1) if found else platform.processor() or platform.machine()


def markdown(table: Table) -> str:
    """Return a table as Markdown."""
    head = list(table[0])
    lines = ["| " + " | ".join(head) + " |", "|" + "---|" * len(head)]
    return "\n".join(lines + ["| " + " | ".join(str(row[key]) for key in head) + " |" for row in table])


def main() -> None:
    """Measure and print."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--threads", type=int, default=min(2, os.cpu_count() or 1), help="torch threads")
    parser.add_argument("--rounds", type=int, default=15, help="rounds of the measurement")
    parser.add_argument("--task", default="detect", help="task of the detector, with its own classes")
    parser.add_argument("--size", default="n", help="size of the detector")
    parser.add_argument("--image-size", type=int, default=640, help="canvas side in pixels")
    parser.add_argument("--batch", type=int, nargs="+", default=[1, 8], help="batch sizes")
    parser.add_argument("--profile", action="store_true", help="add the shares of the predictor's operations")
    parser.add_argument("--json", action="store_true", help="print one JSON document")
    options = parser.parse_args()
    torch.set_num_threads(options.threads)
    torch.manual_seed(0)
    detector = build_detector(
        options.task,
        options.size,
        image_size=options.image_size,
        num_keypoints=17 if options.task == "pose" else None,
    ).eval()
    report: dict[str, Any] = {
        "machine": {
            "processor": processor(),
            "threads": options.threads,
            "torch": torch.__version__,
            "python": platform.python_version(),
        },
        "detector": f"{options.task} {options.size} at {options.image_size} px",
        "latency": measure(detector, options.batch, options.rounds),
    }
    if options.profile:
        report["shares"] = shares(detector, 3)
    if options.json:
        print(json.dumps(report, indent=1))
        return
    print(", ".join(f"{key} {value}" for key, value in report["machine"].items()))
    for title in ("latency", "shares"):
        if title in report:
            print(f"\n{report['detector']}: {title}\n\n{markdown(report[title])}")


if __name__ == "__main__":
    main()
