"""Measure one training step four ways: eager, compiled, its network replayed, and replayed whole.

On a GPU, about three minutes::

    python packages/lucid-capture/benchmarks/steps.py

It prints the table and writes it, with hardware and versions, to ``benchmarks/steps.json``. The network is a stack
of small convolutions, whose kernels are short: what replay can win is largest there, and shrinks with the batch.
Arms take turns within each round, so that a busy moment of the machine meets all of them; an arm's figure is the
median over rounds. Every arm starts from the same weights, and eager, region and whole step must end on the same
bytes. ``--device cpu`` runs the same code on the tape with tiny sizes, to check the script; its times mean nothing.
"""

import argparse
import copy
import json
import platform
import statistics
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn

from lucid_capture import (
    CudaBackend,
    GraphedStep,
    GuardedRegion,
    ModuleCertificate,
    TapeBackend,
    same_bytes,
)

Step = Callable[[Tensor], Any]
RESULTS = Path(__file__).with_name("steps.json")


def network(width: int, depth: int) -> nn.Sequential:
    """Return a stack of convolutions with statistics, as detectors have them."""
    layers: list[nn.Module] = [nn.Conv2d(3, width, 3, 2, 1)]
    for _ in range(depth):
        layers += [nn.Conv2d(width, width, 3, 1, 1, bias=False), nn.BatchNorm2d(width), nn.SiLU()]
    return nn.Sequential(*layers, nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(width, 10))


def sgd(net: nn.Module, device: str) -> torch.optim.Optimizer:
    """Return the optimizer of every arm, with its rate on the device as a whole step keeps it."""
    return torch.optim.SGD(net.parameters(), lr=torch.tensor(1e-3, device=device), momentum=0.9, fused=True)


def loop(net: nn.Module, forward: Callable[[Tensor], Tensor], optimizer: torch.optim.Optimizer) -> Step:
    """Return a step of a plain loop around ``forward``."""

    def step(images: Tensor) -> Tensor:
        loss = forward(images).square().mean()
        optimizer.zero_grad()
        loss.backward()
        torch.nn.utils.clip_grad_norm_(net.parameters(), 1.0)
        optimizer.step()
        return loss

    return step


def arms(net: nn.Module, device: str, compiled: bool) -> dict[str, tuple[nn.Module, Step]]:
    """Return the four steps by name, each around its own copy of ``net``."""
    backend = (lambda: CudaBackend()) if device == "cuda" else (lambda: TapeBackend())
    made: dict[str, tuple[nn.Module, Step]] = {}
    own = copy.deepcopy(net)
    made["eager"] = (own, loop(own, own, sgd(own, device)))
    if compiled:
        own = copy.deepcopy(net)
        fast = torch.compile(own, mode="reduce-overhead")
        made["compile"] = (own, loop(own, fast, sgd(own, device)))
    own = copy.deepcopy(net)
    certificate = ModuleCertificate(own)
    region = GuardedRegion("network", own, backend=backend(), certificate=certificate, differentiable=True)
    made["region"] = (own, loop(own, region, sgd(own, device)))
    own = copy.deepcopy(net)
    whole = GraphedStep(
        own,
        lambda images, own=own: own(images).square().mean(),
        sgd(own, device),
        backend=backend(),
        clip_norm=1.0,
    )
    made["step"] = (own, whole)
    return made


def seconds(step: Step, images: list[Tensor], device: str) -> float:
    """Return the time per step over ``images``, with the device idle at both ends."""
    wait = torch.cuda.synchronize if device == "cuda" else (lambda: None)
    wait()
    start = time.perf_counter()
    for image in images:
        step(image)
    wait()
    return (time.perf_counter() - start) / len(images)


def measure(batch: int, device: str, rounds: int, steps: int, size: int, compiled: bool) -> dict[str, Any]:
    """Return milliseconds per step of every arm at one batch size, and whether replay kept the bytes."""
    torch.manual_seed(0)
    net = network(width=32 if device == "cuda" else 4, depth=24 if device == "cuda" else 2).to(device)
    images = [torch.randn(batch, 3, size, size, device=device) for _ in range(steps)]
    made = arms(net, device, compiled)
    for _, step in made.values():
        seconds(step, images, device)  # compiling and recording are not measured
    times: dict[str, list[float]] = {name: [] for name in made}
    for number in range(rounds):
        order = list(made) if number % 2 == 0 else list(reversed(made))
        for name in order:
            times[name].append(seconds(made[name][1], images, device))
    eager = made["eager"][0].state_dict()
    same = {name: bool(same_bytes(eager, made[name][0].state_dict())) for name in ("region", "step")}
    spread = {n: [round(1e3 * min(t), 3), round(1e3 * max(t), 3)] for n, t in times.items()}
    median = {n: round(1e3 * statistics.median(t), 3) for n, t in times.items()}
    return {"batch": batch, "ms": median, "range_ms": spread, "same_bytes_as_eager": same}


def main() -> None:
    """Measure, print and write the table."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--device", choices=("cuda", "cpu"), default="cuda")
    options = parser.parse_args()
    gpu = options.device == "cuda"
    if gpu and not torch.cuda.is_available():
        parser.error("no CUDA device; --device cpu checks the script without one")
    torch.backends.cudnn.deterministic, torch.backends.cudnn.benchmark = True, False
    batches, rounds, steps, size = ((4, 16, 64), 9, 20, 128) if gpu else ((1, 2), 2, 4, 8)
    rows = [measure(batch, options.device, rounds, steps, size, compiled=gpu) for batch in batches]
    names = list(rows[0]["ms"])
    print("| batch | " + " | ".join(f"{name}, ms" for name in names) + " | same bytes |")
    print("|---|" + "---|" * (len(names) + 1))
    for row in rows:
        cells = " | ".join(str(row["ms"][name]) for name in names)
        print(f"| {row['batch']} | {cells} | {all(row['same_bytes_as_eager'].values())} |")
    if gpu:
        machine = {
            "device": torch.cuda.get_device_name(),
            "torch": torch.__version__,
            "cuda": torch.version.cuda,
            "python": platform.python_version(),
            "host": platform.processor() or platform.machine(),
        }
        RESULTS.write_text(json.dumps({"machine": machine, "rows": rows}, indent=2) + "\n", encoding="utf-8")


if __name__ == "__main__":
    main()
