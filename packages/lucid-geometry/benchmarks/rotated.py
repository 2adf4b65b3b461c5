"""Measure rotated overlap, suppression and clipping side by side with torchvision and shapely.

One command, about two minutes on two cores::

    python packages/lucid-geometry/benchmarks/rotated.py

It prints the tables, writes them into ``docs/benchmark.md`` and their numbers to ``benchmarks/results.json``.
Competitors are measured in turn within each round, so that a busy moment of the machine meets all of them.
"""

import argparse
import importlib.util
import json
import math
import os
import platform
import re
import statistics
import subprocess
import sys
import time
from collections.abc import Callable, Mapping
from pathlib import Path
from types import ModuleType
from typing import Any

import numpy as np
import shapely
import torch
import torchvision
from torch import Tensor
from torchvision.ops import box_iou as torchvision_box_iou

from lucid_geometry import (
    aligned_rotated_box_iou,
    clip_rboxes,
    clip_ring,
    clip_rings,
    rboxes_to_polygons,
    rboxes_to_torchvision,
    refit_ring,
    refit_rings,
    rotated_box_iou,
    rotated_nms,
)

HERE = Path(__file__).resolve().parent
PAGE = HERE.parent / "docs" / "benchmark.md"
Table = list[dict[str, Any]]


def oracle() -> ModuleType:
    """Return the module of the tests' oracles."""
    spec = importlib.util.spec_from_file_location("oracles", HERE.parent / "tests" / "conftest.py")
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def milliseconds(calls: Mapping[str, Callable[[], object]], rounds: int) -> dict[str, float]:
    """Return the median time of each call, all of them measured once per round after one call unmeasured."""
    taken: dict[str, list[float]] = {name: [] for name in calls}
    for call in calls.values():
        call()
    for _ in range(rounds):
        for name, call in calls.items():
            start = time.perf_counter()
            call()
            taken[name].append((time.perf_counter() - start) * 1e3)
    return {name: statistics.median(times) for name, times in taken.items()}


def boxes(count: int, seed: int, side: float) -> Tensor:
    """Return float32 boxes of 8 to 68 px with centres in a square of ``side`` px."""
    g = torch.Generator().manual_seed(seed)
    extents = torch.rand(count, 2, generator=g) * 60 + 8
    centres = torch.rand(count, 2, generator=g) * side
    return torch.cat((centres, extents, torch.rand(count, 1, generator=g) * math.pi), 1)


def torchvision_iou(a: Tensor, b: Tensor) -> Tensor:
    """Return torchvision's matrix of boxes already in its convention."""
    return torchvision_box_iou(a, b, fmt="cxcywhr")


def pairwise(rounds: int, oracles: ModuleType) -> Table:
    """Return times and errors on 1,000 x 1,000 float32 boxes, few of which overlap, and all."""
    scenes = {"spread over 1024 px": 1024.0, "all within 8 px": 8.0}
    return [row for scene in scenes.items() for row in pairwise_rows(*scene, rounds, oracles)]


def pairwise_rows(scene: str, side: float, rounds: int, oracles: ModuleType) -> Table:
    """Return the rows of one scene."""
    a, b = boxes(1000, 1, side), boxes(1000, 2, side)
    degrees = [rboxes_to_torchvision(r) for r in (a, b)]
    wide = [rboxes_to_torchvision(r.double()) for r in (a, b)]
    p, q = (oracles.drawn(r.double().numpy(), np.zeros((1000, 2))) for r in (a, b))
    calls = {
        "lucid_geometry": lambda: rotated_box_iou(a, b),
        "torchvision": lambda: torchvision_iou(*degrees),
        "torchvision float64": lambda: torchvision_iou(*wide),
    }
    taken = milliseconds(calls, rounds)
    start = time.perf_counter()
    overlap = shapely.area(shapely.intersection(p[:, None], q[None, :]))
    areas = shapely.area(p)[:, None] + shapely.area(q)[None, :]
    truth = torch.from_numpy(overlap / (areas - overlap))
    taken["shapely"] = (time.perf_counter() - start) * 1e3
    errors = {name: f"{(call().double() - truth).abs().max().item():.1e}" for name, call in calls.items()}
    share = f"{(truth > 0).double().mean().item():.1%}"
    return [
        {"boxes": scene, "pairs that overlap": share, "method": method, "ms": round(ms, 1)}
        | {"ms / ms of lucid_geometry": round(ms / taken["lucid_geometry"], 2)}
        | {"largest difference from shapely": errors.get(method, "")}
        for method, ms in taken.items()
    ]


def near(count: int, seed: int) -> dict[str, tuple[Tensor, Tensor]]:
    """Return pairs by kind, (N, 5) float32 each."""
    g = torch.Generator().manual_seed(seed)

    def uniform(low: float, high: float, columns: int = 1) -> Tensor:
        return low + (high - low) * torch.rand(count, columns, generator=g, dtype=torch.float64)

    a = torch.cat((uniform(0, 100, 2), uniform(1, 60, 2), uniform(-math.pi, math.pi)), 1)
    thin = torch.cat((a[:, :3], uniform(1e-4, 2e-4), a[:, 4:]), 1)
    large = torch.cat((a[:, :2], uniform(1e3, 1e4, 2), a[:, 4:]), 1)
    bars = torch.cat((large[:, :3], thin[:, 3:4], uniform(-3, 3)), 1)
    noise = torch.cat((uniform(-1e-4, 1e-4, 4), uniform(-1, 1) * math.radians(1e-3)), 1)
    pairs = {
        "random": (a, a + torch.cat((uniform(-30, 30, 2), uniform(0, 5, 2), uniform(-3, 3)), 1)),
        "equal to 1e-4 px and 1e-3 degrees": (a, a + noise),
        "equal after half a turn": (a, a + torch.tensor([0, 0, 0, 0, math.pi], dtype=torch.float64)),
        "thin (1e-4 px), nearly equal": (thin, thin + noise * torch.tensor([1, 1, 1, 0.1, 0.01])),
        "large (1e4 px) with thin": (large, bars + torch.cat((uniform(-3e3, 3e3, 2), noise[:, 2:] * 0), 1)),
    }
    return {name: (p.float(), q.float()) for name, (p, q) in pairs.items()}


def accuracy(count: int, oracles: ModuleType) -> Table:
    """Return each method's largest error against rational arithmetic, on the pairs where it stands out most."""
    table = []
    for name, (a, b) in near(count, 3).items():
        values: dict[str, np.ndarray] = {"lucid_geometry": aligned_rotated_box_iou(a, b).double().numpy()}
        for method, dtype in (("torchvision", torch.float32), ("torchvision float64", torch.float64)):
            p, q = (torch.split(rboxes_to_torchvision(r.to(dtype)), 1) for r in (a, b))
            each = [torchvision_iou(x, y) for x, y in zip(p, q, strict=True)]
            values[method] = torch.cat(each).flatten().double().numpy()
        x, y = a.double().numpy(), b.double().numpy()
        overlap = shapely.area(shapely.intersection(oracles.drawn(x, x[:, :2]), oracles.drawn(y, x[:, :2])))
        values["shapely"] = overlap / (x[:, 2] * x[:, 3] + y[:, 2] * y[:, 3] - overlap)
        middle = np.median(np.stack(list(values.values())), 0)
        # each method is judged where it differs most from the others' middle
        chosen = {int(i) for v in values.values() for i in np.argsort(-np.abs(v - middle))[:60]}
        exact = {i: oracles.exact_iou_of(x[i].tolist(), y[i].tolist()) for i in chosen}
        row: dict[str, Any] = {"pairs": name}
        for method, v in values.items():
            row[method] = f"{max(abs(v[i] - value) for i, value in exact.items()):.1e}"
        table.append(row)
    return table


def suppression(rounds: int) -> Table:
    """Return times of rotated suppression of 5,000 boxes."""
    g = torch.Generator().manual_seed(5)
    jitter = torch.randn(5000, 5, generator=g) * torch.tensor([2.0, 2.0, 1.0, 1.0, 0.05])
    scenes = {
        "spread over 2048 px": boxes(5000, 4, 2048.0),
        "20 around each of 250 objects": boxes(250, 6, 2048.0).repeat_interleave(20, 0) + jitter,
    }
    scores = torch.rand(5000, generator=g)
    return [row for scene in scenes.items() for row in suppression_rows(*scene, scores, rounds)]


def suppression_rows(scene: str, candidates: Tensor, scores: Tensor, rounds: int) -> Table:
    """Return the rows of one scene."""
    degrees = rboxes_to_torchvision(candidates)

    def greedy() -> Tensor:
        order = torch.argsort(scores, descending=True, stable=True)
        over = torchvision_iou(degrees[order], degrees[order]) > 0.5
        alive, kept = torch.ones(len(order), dtype=torch.bool), []
        for i in range(len(order)):
            if alive[i]:
                kept.append(i)
                alive &= ~over[i]
        return order[torch.tensor(kept)]

    taken = milliseconds({"lucid_geometry": lambda: rotated_nms(candidates, scores, 0.5)}, rounds)
    start = time.perf_counter()
    expected = greedy()
    taken["torchvision matrix, greedy loop"] = (time.perf_counter() - start) * 1e3
    kept = rotated_nms(candidates, scores, 0.5)
    return [
        {"boxes": scene, "method": method, "ms": round(ms, 1), "kept": len(kept)}
        | {"same boxes kept": torch.equal(kept, expected)}
        for method, ms in taken.items()
    ]


def clipping(rounds: int) -> Table:
    """Return times of cutting and refitting 1,000 boxes that cross the border of one image."""
    g = torch.Generator().manual_seed(7)
    instances = boxes(1000, 8, 1024.0)
    instances[:, 0] = torch.rand(1000, generator=g) * 8 - 4
    corners, theta = rboxes_to_polygons(instances.double()), instances[:, 4].double()
    rings = corners.unbind(0)

    def one_by_one() -> list[Any]:
        pairs = zip(rings, theta, strict=True)
        return [refit_ring(clip_ring(ring, 1024, 1024), angle) for ring, angle in pairs]

    calls = {
        "one by one": one_by_one,
        "grouped, from rings": lambda: refit_rings(clip_rings(rings, 1024, 1024), theta),
        "grouped, from boxes": lambda: clip_rboxes(instances, 1024, 1024),
    }
    taken = milliseconds(calls, rounds)
    alone = [torch.stack(column) for column in zip(*one_by_one(), strict=True)]
    together = refit_rings(clip_rings(rings, 1024, 1024), theta)
    equal = all(x.numpy().tobytes() == y.numpy().tobytes() for x, y in zip(alone, together, strict=True))
    return [
        {
            "route": name,
            "ms": round(t, 2),
            "times faster": round(taken["one by one"] / t, 1),
            "bytes equal": equal,
        }
        for name, t in taken.items()
    ]


def importing() -> Table:
    """Return what importing the package adds to importing torch."""
    code = (
        "import torch, time; start = time.perf_counter(); import lucid_geometry; "
        "print((time.perf_counter() - start) * 1e3)"
    )
    runs = [float(subprocess.check_output([sys.executable, "-c", code])) for _ in range(5)]
    return [{"import lucid_geometry after import torch, ms": round(statistics.median(runs), 1)}]


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
    """Measure, print, write."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--threads", type=int, default=min(2, os.cpu_count() or 1), help="torch threads")
    parser.add_argument("--rounds", type=int, default=7, help="rounds of the fast measurements")
    parser.add_argument("--print-only", action="store_true", help="write nothing")
    options = parser.parse_args()
    torch.set_num_threads(options.threads)
    oracles = oracle()
    machine = {
        "processor": processor(),
        "threads": options.threads,
        "torch": torch.__version__,
        "torchvision": torchvision.__version__,
        "shapely": shapely.__version__,
        "python": platform.python_version(),
    }
    tables = {
        "Rotated IoU of 1,000 x 1,000 float32 boxes": pairwise(options.rounds, oracles),
        "Largest error of rotated IoU on 20,000 float32 pairs of a kind": accuracy(20_000, oracles),
        "Rotated suppression of 5,000 boxes": suppression(options.rounds),
        "Cutting and refitting 1,000 boxes on the border of one image": clipping(options.rounds),
        "Import": importing(),
    }
    text = ", ".join(f"{key} {value}" for key, value in machine.items())
    text += "".join(f"\n\n### {title}\n\n{markdown(table)}" for title, table in tables.items())
    print(text)
    if options.print_only:
        return
    (HERE / "results.json").write_text(json.dumps({"machine": machine, "tables": tables}, indent=1) + "\n")
    begin, end = "<!-- measured -->", "<!-- end -->"
    head, rest = PAGE.read_text(encoding="utf-8").split(begin)
    PAGE.write_text(f"{head}{begin}\n\n{text}\n\n{end}{rest.split(end)[1]}", encoding="utf-8")


if __name__ == "__main__":
    main()
