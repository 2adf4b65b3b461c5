"""``lucid bench replay``: one training step eager, compiled, with its network replayed, and replayed whole."""

import copy
import statistics
from collections.abc import Callable
from typing import Any

import torch
import typer
from torch import Tensor, nn

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
from lucid_app.bench.record import Record, Row, command_line, finish, machine, today
from lucid_app.bench.turns import times
from lucid_capture import CudaBackend, GraphedStep, GuardedRegion, ModuleCertificate, TapeBackend, same_bytes

Step = Callable[[Tensor], Any]
REFERENCE = "eager"


def replay(
    context: typer.Context,
    device: MeasuredDeviceOption = "cuda",
    threads: ThreadsOption = None,
    rounds: RoundsOption = 9,
    quick: QuickOption = False,
    as_json: JsonOption = False,
    output: OutputOption = None,
) -> None:
    """Measure one training step eager, compiled, with its network replayed, and replayed whole, by batch.

    The network is a stack of small convolutions, whose kernels are short: what replay can win is largest there and
    shrinks with the batch. Every form starts from the same weights, and eager and replayed ones must end on the same
    bytes. On the CPU the tape stands in for CUDA graphs, which shows that it works and nothing about speed.

    Examples:
        lucid bench replay

        lucid bench replay --device cpu --quick
    """
    device = prepare(device, threads, output, rounds)
    gpu = device.startswith("cuda")
    torch.backends.cudnn.deterministic, torch.backends.cudnn.benchmark = True, False
    batches: tuple[int, ...]
    batches, images, size = ((4, 16, 64), 20, 128) if gpu else ((1, 2), 4, 8)
    if quick:
        batches, images, rounds = (1,), 2, 1
    width, depth = (32, 24) if gpu and not quick else (4, 2)
    rows, notes = [], []
    rate = matrix_rate(device, torch.float32, side=None if gpu and not quick else 128)
    for batch in batches:
        row, flops = measured(batch, device, rounds, images, size, (width, depth), compiled=gpu and not quick)
        rows.append(row)
        notes.append(compute_limit(f"batch {batch}, {REFERENCE}", flops, rate, row[f"{REFERENCE}, ms"]))
    title = f"One training step of {depth} convolutions, {width} channels, {size} px, float32"
    if not gpu:
        notes.append("the tape stands in for CUDA graphs: these times say nothing about replay")
    libraries = ("triton",)
    record = Record(
        "replay", command_line(context), machine(device, libraries), {title: rows}, tuple(notes), today()
    )
    finish(record, as_json, output)


def measured(
    batch: int,
    device: str,
    rounds: int,
    count: int,
    size: int,
    shape: tuple[int, int],
    compiled: bool,
) -> tuple[Row, int]:
    """Return the row of one batch size, and the operations of a step."""
    torch.manual_seed(0)
    net = network(*shape).to(device)
    images = [torch.randn(batch, 3, size, size, device=device) for _ in range(count)]
    made = forms(net, device, compiled)

    def steps(step: Step) -> Callable[[], object]:
        return lambda: [step(image) for image in images]

    calls = {name: steps(step) for name, (_, step) in made.items()}
    # compiling and recording are in the first, unmeasured round
    taken = {name: [ms / count for ms in found] for name, found in times(calls, rounds, device).items()}
    eager = made[REFERENCE][0].state_dict()
    same = all(
        same_bytes(eager, made[name][0].state_dict()) for name in ("network replayed", "step replayed")
    )
    middle = {name: statistics.median(found) for name, found in taken.items()}
    row: Row = {"batch": batch}
    row |= {f"{name}, ms": round(ms, 3) for name, ms in middle.items()}
    row |= {
        f"{name} of eager": round(ms / middle[REFERENCE], 3)
        for name, ms in middle.items()
        if name != REFERENCE
    }
    return row | {"same bytes": same}, flops_of(lambda: made[REFERENCE][1](images[0]))


def network(width: int, depth: int) -> nn.Sequential:
    """Return a stack of convolutions with statistics, as detectors have them."""
    layers: list[nn.Module] = [nn.Conv2d(3, width, 3, 2, 1)]
    for _ in range(depth):
        layers += [nn.Conv2d(width, width, 3, 1, 1, bias=False), nn.BatchNorm2d(width), nn.SiLU()]
    return nn.Sequential(*layers, nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(width, 10))


def sgd(net: nn.Module, device: str) -> torch.optim.Optimizer:
    """Return the optimizer of every form, with its rate on the device as a whole step keeps it."""
    return torch.optim.SGD(net.parameters(), lr=torch.tensor(1e-3, device=device), momentum=0.9, fused=True)


def loop(net: nn.Module, forward: Callable[[Tensor], Tensor], optimizer: torch.optim.Optimizer) -> Step:
    """Return a step of a plain loop around ``forward``."""

    def step(images: Tensor) -> Tensor:
        loss = forward(images).square().mean()
        optimizer.zero_grad()
        torch.autograd.backward(loss)
        torch.nn.utils.clip_grad_norm_(net.parameters(), 1.0)
        optimizer.step()
        return loss

    return step


def forms(net: nn.Module, device: str, compiled: bool) -> dict[str, tuple[nn.Module, Step]]:
    """Return the forms of the step by name, each around its own copy of ``net``."""

    def backend() -> CudaBackend | TapeBackend:
        return CudaBackend() if device.startswith("cuda") else TapeBackend()

    made: dict[str, tuple[nn.Module, Step]] = {}
    own = copy.deepcopy(net)
    made[REFERENCE] = (own, loop(own, own, sgd(own, device)))
    if compiled:
        own = copy.deepcopy(net)
        made["compiled"] = (own, loop(own, torch.compile(own, mode="reduce-overhead"), sgd(own, device)))
    own = copy.deepcopy(net)
    region = GuardedRegion(
        "network", own, backend=backend(), certificate=ModuleCertificate(own), differentiable=True
    )
    made["network replayed"] = (own, loop(own, region, sgd(own, device)))
    whole = copy.deepcopy(net)

    def loss(images: Tensor) -> Tensor:
        found: Tensor = whole(images).square().mean()
        return found

    made["step replayed"] = (
        whole,
        GraphedStep(whole, loss, sgd(whole, device), backend=backend(), clip_norm=1.0),
    )
    return made
