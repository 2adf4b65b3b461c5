"""Measure one optimizer step, and its orthogonalisation alone, side by side with torch's optimizers.

One command, about eight minutes on two cores::

    python packages/lucid-optim/benchmarks/step.py

It prints the tables, writes them into ``docs/benchmark.md`` and their numbers to ``benchmarks/results.json``.
Every optimizer moves the same tensors: those of two or more axes, seen as matrices, which is all that
`torch.optim.Muon` takes. They take their steps in turn within each round, so that a busy moment of the machine
meets all of them. Detectors are measured where lucid-models is installed.
"""

import argparse
import importlib.util
import json
import os
import platform
import re
import statistics
import time
from collections.abc import Callable, Mapping
from functools import partial
from pathlib import Path
from typing import Any

import torch
import torchvision
from torch import Tensor, nn

from lucid_optim import MuSGD, newton_schulz, newton_schulz_batch

HERE = Path(__file__).resolve().parent
PAGE = HERE.parent / "docs" / "benchmark.md"
Table = list[dict[str, Any]]

OPTIMIZERS: dict[str, Callable[..., torch.optim.Optimizer]] = {
    "SGD": partial(torch.optim.SGD, momentum=0.95, nesterov=True),
    "AdamW": torch.optim.AdamW,
    "torch.optim.Muon": partial(torch.optim.Muon, adjust_lr_fn="match_rms_adamw"),
    "MuSGD, one at a time": partial(MuSGD, batched=False),
    "MuSGD": MuSGD,
    "MuSGD, direct route": partial(MuSGD, route="direct"),
    "MuSGD, gram route": partial(MuSGD, route="gram"),
}
BASE = "torch.optim.Muon"


def wait(device: str) -> None:
    """Wait for the device."""
    if device == "cuda":
        torch.cuda.synchronize()


def milliseconds(
    calls: Mapping[str, Callable[[], object]], rounds: int, device: str, repeat: int = 1
) -> dict[str, float]:
    """Return the median time of each call, all of them measured once per round after one call unmeasured."""
    taken: dict[str, list[float]] = {name: [] for name in calls}
    for call in calls.values():
        call()
    for _ in range(rounds):
        for name, call in calls.items():
            wait(device)
            start = time.perf_counter()
            for _ in range(repeat):
                call()
            wait(device)
            taken[name].append((time.perf_counter() - start) * 1e3 / repeat)
    return {name: statistics.median(times) for name, times in taken.items()}


def models() -> dict[str, Callable[[], nn.Module]]:
    """Return what is measured, by name; the detectors only where they can be built."""
    found: dict[str, Callable[[], nn.Module]] = {}
    if importlib.util.find_spec("lucid_models"):
        from lucid_models import build_detector

        found |= {f"detector of size {size}": partial(build_detector, "detect", size) for size in ("n", "m")}
    found["ResNet-50"] = torchvision.models.resnet50
    found["ConvNeXt-tiny"] = torchvision.models.convnext_tiny
    return found


def steps(name: str, build: Callable[[], nn.Module], rounds: int, device: str) -> Table:
    """Return a row per optimizer with its time for one step over the matrices of a model."""
    torch.manual_seed(0)
    matrices = [p.detach().flatten(1).to(device) for p in build().parameters() if p.dim() >= 2]
    grads = [torch.randn_like(m) for m in matrices]
    calls = {}
    for method, make in OPTIMIZERS.items():
        parameters = [nn.Parameter(m.clone()) for m in matrices]
        for parameter, grad in zip(parameters, grads, strict=True):
            parameter.grad = grad
        calls[method] = make(parameters, lr=1e-5).step
    taken = milliseconds(calls, rounds, device)
    size = f"{len(matrices)} matrices, {sum(m.numel() for m in matrices) / 1e6:.1f} M elements"
    return [
        {"model": name, "of": size, "optimizer": method, "ms per step": round(ms, 1)}
        | {
            f"/ {BASE}": round(ms / taken[BASE], 2),
            "/ one at a time": round(ms / taken["MuSGD, one at a time"], 2),
        }
        for method, ms in taken.items()
    ]


def routes(rounds: int, device: str) -> Table:
    """Return the time of one orthogonalisation by form and route over the ratio of the sides."""
    table = []
    for side in (32, 64, 128, 256, 512):
        for ratio in (1, 1.5, 2, 4.5, 9):
            x = torch.randn(2, side, round(side * ratio), device=device)
            calls: dict[str, Callable[[], Tensor | list[Tensor]]] = {
                "one at a time": lambda x=x: [newton_schulz(matrix) for matrix in x],
                **{r: partial(newton_schulz_batch, x, route=r) for r in ("direct", "staged", "gram")},
            }
            taken = milliseconds(calls, rounds, device, repeat=1 + int(2e8 / (side**3 * ratio * 40)))
            table.append(
                {"2 matrices": f"{side} x {x.shape[2]}"} | {k: round(v, 3) for k, v in taken.items()}
            )
    return table


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
    parser.add_argument("--rounds", type=int, default=7, help="rounds of each measurement")
    parser.add_argument("--device", choices=("cpu", "cuda"), default="cpu")
    parser.add_argument("--only", help="measure the models whose names contain this, and no routes")
    parser.add_argument("--print-only", action="store_true", help="write nothing")
    options = parser.parse_args()
    torch.set_num_threads(options.threads)
    device = options.device
    machine = {
        "processor": torch.cuda.get_device_name() if device == "cuda" else processor(),
        "threads": options.threads,
        "torch": torch.__version__,
        "torchvision": torchvision.__version__,
        "python": platform.python_version(),
    }
    tables: dict[str, Table] = {}
    for name, build in models().items():
        if options.only is None or options.only in name:
            tables[f"One step over the matrices of {name}"] = steps(name, build, options.rounds, device)
    if options.only is None:
        tables["Orthogonalisation alone, ms"] = routes(options.rounds, device)
    text = ", ".join(f"{key} {value}" for key, value in machine.items())
    text += "".join(f"\n\n### {title}\n\n{markdown(table)}" for title, table in tables.items())
    print(text)
    if options.print_only or options.only is not None:
        return
    results = {"machine": machine, "tables": tables}
    (HERE / f"results{'-cuda' * (device == 'cuda')}.json").write_text(json.dumps(results, indent=1) + "\n")
    begin, end = f"<!-- measured {device} -->", f"<!-- end {device} -->"
    head, rest = PAGE.read_text(encoding="utf-8").split(begin)
    PAGE.write_text(f"{head}{begin}\n\n{text}\n\n{end}{rest.split(end)[1]}", encoding="utf-8")


if __name__ == "__main__":
    main()
