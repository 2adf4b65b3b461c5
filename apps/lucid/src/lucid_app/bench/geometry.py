"""``lucid bench geometry``: rotated overlap, suppression and clipping beside torchvision and shapely."""

import inspect
import math
import subprocess
import sys
from collections.abc import Callable
from importlib.util import find_spec
from typing import Any

import torch
import typer
from torch import Tensor
from torchvision.ops import box_iou as torchvision_box_iou

from lucid_app.bench.options import (
    JsonOption,
    MeasuredDeviceOption,
    OutputOption,
    QuickOption,
    RoundsOption,
    ThreadsOption,
    prepare,
)
from lucid_app.bench.oracle import shapely_aligned, shapely_pairwise
from lucid_app.bench.record import Record, Table, command_line, finish, machine, today
from lucid_app.bench.turns import medians, once
from lucid_capture import same_bytes
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


def geometry(
    context: typer.Context,
    device: MeasuredDeviceOption = "cpu",
    threads: ThreadsOption = None,
    rounds: RoundsOption = 7,
    quick: QuickOption = False,
    as_json: JsonOption = False,
    output: OutputOption = None,
) -> None:
    """Measure rotated overlap, suppression and clipping beside torchvision's compiled kernel and shapely.

    Fast competitors take their turn in every round, slow ones run once. Errors are against shapely in float64, for
    single pairs about the centre of the first box; where shapely is not installed they are left out. No physical limit
    is named: the work is bound by calls on small planes of numbers.

    Examples:
        lucid bench geometry
    """
    if "fmt" not in inspect.signature(torchvision_box_iou).parameters:
        raise ValueError(
            "the installed torchvision knows no rotated boxes; install lucid-app with its extra 'bench', which has one "
            "that does"
        )
    device = prepare(device, threads, output, rounds)
    few = 40 if quick else 1000
    if quick:
        rounds = 1
    judged = find_spec("shapely") is not None
    tables = {f"Rotated IoU of {few:,} x {few:,} float32 boxes": pairwise(few, rounds, device, judged)}
    if judged:
        number = 200 if quick else 20_000
        tables[f"Largest error of rotated IoU on {number:,} float32 pairs of a kind"] = accuracy(number)
    many = 60 if quick else 5000
    tables[f"Rotated suppression of {many:,} boxes"] = suppression(many, rounds, device)
    tables[f"Cutting and refitting {few:,} boxes on the border of one image"] = clipping(few, rounds)
    tables["Import"] = importing(1 if quick else 5)
    notes = ["clipping and the errors are measured on the CPU"] if device != "cpu" else []
    notes += [] if judged else ["shapely is not installed: errors and its times are left out"]
    libraries = ("torchvision", "shapely")
    record = Record(
        "geometry", command_line(context), machine(device, libraries), tables, tuple(notes), today()
    )
    finish(record, as_json, output)


def boxes(count: int, seed: int, side: float) -> Tensor:
    """Return float32 boxes of 8 to 68 px with centres in a square of ``side`` px."""
    g = torch.Generator().manual_seed(seed)
    extents = torch.rand(count, 2, generator=g) * 60 + 8
    centres = torch.rand(count, 2, generator=g) * side
    return torch.cat((centres, extents, torch.rand(count, 1, generator=g) * math.pi), 1)


def torchvision_iou(a: Tensor, b: Tensor) -> Tensor:
    """Return torchvision's matrix of boxes already in its convention."""
    found: Tensor = torchvision_box_iou(a, b, fmt="cxcywhr")
    return found


def pairwise(count: int, rounds: int, device: str, judged: bool) -> Table:
    """Return times and errors of a dense matrix whose boxes rarely overlap, and of one whose boxes all do."""
    scenes = {"spread over 1024 px": 1024.0, "all within 8 px": 8.0}
    return [row for scene in scenes.items() for row in pairwise_rows(*scene, count, rounds, device, judged)]


def pairwise_rows(scene: str, side: float, count: int, rounds: int, device: str, judged: bool) -> Table:
    """Return the rows of one scene."""
    a, b = boxes(count, 1, side), boxes(count, 2, side)
    near, far = a.to(device), b.to(device)
    degrees = [rboxes_to_torchvision(r) for r in (near, far)]
    wide = [rboxes_to_torchvision(r.double()) for r in (near, far)]
    calls: dict[str, Callable[[], Tensor]] = {
        "lucid_geometry": lambda: rotated_box_iou(near, far),
        "torchvision": lambda: torchvision_iou(*degrees),
        "torchvision float64": lambda: torchvision_iou(*wide),
    }
    taken = medians(calls, rounds, device)
    found = {name: call().cpu().double() for name, call in calls.items()}
    errors: dict[str, str] = {}
    if judged:
        truth: list[Tensor] = []
        taken["shapely"] = once(lambda: truth.append(shapely_pairwise(a, b)))
        errors = {name: f"{(iou - truth[0]).abs().max().item():.1e}" for name, iou in found.items()}
    share = f"{(found['lucid_geometry'] > 0).double().mean().item():.1%}"
    return [
        {"boxes": scene, "pairs that overlap": share, "method": method, "ms": round(ms, 1)}
        | {"ms / ms of lucid_geometry": round(ms / taken["lucid_geometry"], 2)}
        | {"largest difference from shapely": errors.get(method, "")}
        for method, ms in taken.items()
    ]


def near_pairs(count: int, seed: int) -> dict[str, tuple[Tensor, Tensor]]:
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


def accuracy(count: int) -> Table:
    """Return each method's largest error on pairs of a kind."""
    table = []
    for name, (a, b) in near_pairs(count, 3).items():
        values = {"lucid_geometry": aligned_rotated_box_iou(a, b).double()}
        for method, dtype in (("torchvision", torch.float32), ("torchvision float64", torch.float64)):
            p, q = (torch.split(rboxes_to_torchvision(r.to(dtype)), 1) for r in (a, b))
            each = [torchvision_iou(x, y) for x, y in zip(p, q, strict=True)]
            values[method] = torch.cat(each).flatten().double()
        truth = shapely_aligned(a, b)
        errors = {method: f"{(iou - truth).abs().max().item():.1e}" for method, iou in values.items()}
        table.append({"pairs": name} | errors)
    return table


def suppression(count: int, rounds: int, device: str) -> Table:
    """Return times of rotated suppression, of boxes far apart and of boxes in heaps."""
    g = torch.Generator().manual_seed(5)
    heap = 20
    jitter = torch.randn(count, 5, generator=g) * torch.tensor([2.0, 2.0, 1.0, 1.0, 0.05])
    heaps = boxes(count // heap, 6, 2048.0).repeat_interleave(heap, 0) + jitter
    scenes = {
        "spread over 2048 px": boxes(count, 4, 2048.0).to(device),
        f"{heap} around each of {count // heap} objects": heaps.to(device),
    }
    scores = torch.rand(count, generator=g).to(device)
    return [row for scene in scenes.items() for row in suppression_rows(*scene, scores, rounds, device)]


def suppression_rows(scene: str, candidates: Tensor, scores: Tensor, rounds: int, device: str) -> Table:
    """Return the rows of one scene."""
    taken = medians({"lucid_geometry": lambda: rotated_nms(candidates, scores, 0.5)}, rounds, device)
    expected: list[Tensor] = []
    name = "torchvision matrix, greedy loop"
    taken[name] = once(lambda: expected.append(greedy(candidates, scores)), device)
    kept = rotated_nms(candidates, scores, 0.5)
    return [
        {"boxes": scene, "method": method, "ms": round(ms, 1), "kept": len(kept)}
        | {"same boxes kept": torch.equal(kept.cpu(), expected[0].cpu())}
        for method, ms in taken.items()
    ]


def greedy(candidates: Tensor, scores: Tensor) -> Tensor:
    """Return what suppression keeps, from torchvision's full matrix and a loop."""
    degrees = rboxes_to_torchvision(candidates)
    order = torch.argsort(scores, descending=True, stable=True)
    over = (torchvision_iou(degrees[order], degrees[order]) > 0.5).cpu()
    alive, kept = torch.ones(len(order), dtype=torch.bool), []
    for i in range(len(order)):
        if alive[i]:
            kept.append(i)
            alive &= ~over[i]
    return order[torch.tensor(kept, device=order.device)]


def clipping(count: int, rounds: int) -> Table:
    """Return times of cutting and refitting boxes that cross the border of one image."""
    g = torch.Generator().manual_seed(7)
    instances = boxes(count, 8, 1024.0)
    instances[:, 0] = torch.rand(count, generator=g) * 8 - 4
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
    taken = medians(calls, rounds)
    alone = [torch.stack(column) for column in zip(*one_by_one(), strict=True)]
    equal = {
        "one by one": "",
        "grouped, from rings": str(
            bool(same_bytes(alone, list(refit_rings(clip_rings(rings, 1024, 1024), theta))))
        ),
        "grouped, from boxes": "",  # the same route behind a conversion, in single precision
    }
    return [
        {
            "route": name,
            "ms": round(ms, 2),
            "times faster": round(taken["one by one"] / ms, 1),
            "bytes of one by one": equal[name],
        }
        for name, ms in taken.items()
    ]


def importing(runs: int) -> Table:
    """Return what importing the package adds to importing torch."""
    code = (
        "import torch, time; start = time.perf_counter(); import lucid_geometry; "
        "print((time.perf_counter() - start) * 1e3)"
    )
    found = sorted(float(subprocess.check_output([sys.executable, "-c", code])) for _ in range(runs))
    return [{"import lucid_geometry after import torch, ms": round(found[len(found) // 2], 1)}]
