"""``lucid bench optim``: one optimizer step, its orthogonalisation alone, and the moving average."""

import math
from collections.abc import Callable
from functools import partial
from typing import Annotated

import torch
import torchvision
import typer
from torch import Tensor, nn

from lucid_app.bench.limits import compute_limit, copy_rate, flops_of, matrix_rate, memory_limit
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
from lucid_app.bench.turns import medians
from lucid_capture import same_bytes
from lucid_models import build_detector
from lucid_optim import ModelEMA, MuSGD, newton_schulz, newton_schulz_batch
from lucid_train import ConfigError

Build = Callable[[], nn.Module]
OPTIMIZERS: dict[str, Callable[..., torch.optim.Optimizer]] = {
    "SGD": partial(torch.optim.SGD, momentum=0.95, nesterov=True),
    "AdamW": torch.optim.AdamW,
    "torch.optim.Muon": partial(torch.optim.Muon, adjust_lr_fn="match_rms_adamw"),
    "MuSGD, one at a time": partial(MuSGD, batched=False),
    "MuSGD": MuSGD,
    "MuSGD, direct route": partial(MuSGD, route="direct"),
    "MuSGD, gram route": partial(MuSGD, route="gram"),
}
REFERENCE, ALONE, DEFAULT = "torch.optim.Muon", "MuSGD, one at a time", "MuSGD"
MODELS: dict[str, Build] = {
    "detector of size n": partial(build_detector, "detect", "n"),
    "detector of size m": partial(build_detector, "detect", "m"),
    "ResNet-50": torchvision.models.resnet50,
    "ConvNeXt-tiny": torchvision.models.convnext_tiny,
}


def optim(
    context: typer.Context,
    only: Annotated[
        str | None, typer.Option(help="Only the models whose names contain this, and no routes.")
    ] = None,
    device: MeasuredDeviceOption = "cpu",
    threads: ThreadsOption = None,
    rounds: RoundsOption = 7,
    quick: QuickOption = False,
    as_json: JsonOption = False,
    output: OutputOption = None,
) -> None:
    """Measure one optimizer step over the matrices of a model, beside torch's optimizers.

    Every optimizer moves the same tensors: those of two or more axes, as matrices, which is all that
    ``torch.optim.Muon``, the reference, takes. Then one orthogonalisation by form and route, and the moving average
    of weights against a loop over its tensors.

    Examples:
        lucid bench optim

        lucid bench optim --only detector --device cuda
    """
    models = {name: build for name, build in MODELS.items() if only is None or only in name}
    if not models:
        raise ConfigError(f"--only {only}: no such model; known: {', '.join(MODELS)}")
    device = prepare(device, threads, output, rounds)
    if quick:
        models, rounds = {"two layers": two_layers}, 1
    tables: dict[str, Table] = {}
    rate = matrix_rate(device, torch.float32, side=128 if quick else None)
    notes = []
    for name, build in models.items():
        table, flops, size = steps(build, rounds, device)
        tables[f"One step over {size} of {name}"] = table
        ms = next(row["ms per step"] for row in table if row["optimizer"] == ALONE)
        notes.append(compute_limit(f"{name}, {ALONE}", flops, rate, ms))
    if only is None:
        tables["Orthogonalisation alone, ms"] = orthogonalisation(
            rounds, device, sides=(8,) if quick else None
        )
    average, moved = averages(next(iter(models.values())), rounds, device)
    tables[f"One update of the average of {next(iter(models))}"] = average
    copying = copy_rate(device, bytes_moved=1 << 20 if quick else None)
    notes.append(memory_limit("average, all tensors at once", moved, copying, average[1]["ms"]))
    libraries = ("torchvision",)
    record = Record("optim", command_line(context), machine(device, libraries), tables, tuple(notes), today())
    finish(record, as_json, output)


def two_layers() -> nn.Module:
    """Return a network small enough to try the command with."""
    return nn.Sequential(nn.Linear(8, 8), nn.BatchNorm1d(8), nn.Linear(8, 8))


def steps(build: Build, rounds: int, device: str) -> tuple[Table, int, str]:
    """Return a row per optimizer for one step over the matrices of a model, the operations one at a time, the size."""
    torch.manual_seed(0)
    matrices = [p.detach().flatten(1).to(device) for p in build().parameters() if p.dim() >= 2]
    grads = [torch.randn_like(m) for m in matrices]
    calls, moved = {}, {}
    for method, make in OPTIMIZERS.items():
        parameters = [nn.Parameter(m.clone()) for m in matrices]
        for parameter, grad in zip(parameters, grads, strict=True):
            parameter.grad = grad
        optimizer = make(parameters, lr=1e-5)
        optimizer.step()
        moved[method] = [p.detach() - m for p, m in zip(parameters, matrices, strict=True)]
        calls[method] = optimizer.step
    taken = medians(calls, rounds, device, warm=0)
    size = f"the {len(matrices)} matrices ({sum(m.numel() for m in matrices) / 1e6:.1f} M elements)"
    table = [
        {"optimizer": method, "ms per step": round(ms, 1)}
        | {
            f"/ {REFERENCE}": round(ms / taken[REFERENCE], 2),
            "/ one at a time": round(ms / taken[ALONE], 2),
            "largest difference": _apart(moved[method], moved[ALONE]) if "MuSGD" in method else "",
        }
        for method, ms in taken.items()
    ]
    return table, flops_of(calls[ALONE]), size


def orthogonalisation(rounds: int, device: str, sides: tuple[int, ...] | None = None) -> Table:
    """Return the time of one orthogonalisation by form and route over the ratio of the sides."""
    table = []
    for side in sides or (32, 64, 128, 256, 512):
        for ratio in (1, 1.5, 2, 4.5, 9):
            x = torch.randn(2, side, round(side * ratio), device=device)
            calls: dict[str, Callable[[], Tensor | list[Tensor]]] = {
                "one at a time": lambda x=x: [newton_schulz(matrix) for matrix in x],  # type: ignore[misc]
                "direct": partial(newton_schulz_batch, x, route="direct"),
                "staged": partial(newton_schulz_batch, x, route="staged"),
                "gram": partial(newton_schulz_batch, x, route="gram"),
            }
            repeat = 1 if sides else 1 + int(2e8 / (side**3 * ratio * 40))
            taken = medians(calls, rounds, device, repeat=repeat)
            shown = {name: round(ms, 3) for name, ms in taken.items()}
            table.append({"2 matrices": f"{side} x {x.shape[2]}"} | shown)
    return table


def averages(build: Build, rounds: int, device: str) -> tuple[Table, int]:
    """Return a row for the loop over tensors and one for `ModelEMA`, and the bytes that an update moves."""
    module = build().to(device)
    average = ModelEMA(module)
    alone = {name: tensor.clone() for name, tensor in average.shadow.items()}
    live = {n: t.detach() for n, t in (*module.named_parameters(), *module.named_buffers()) if n in alone}
    updates = [0]

    @torch.no_grad()
    def one_by_one() -> None:
        updates[0] += 1
        weight = 1.0 - average.decay * (1.0 - math.exp(-updates[0] / average.tau))
        for name, shadow in alone.items():
            shadow.lerp_(live[name], weight)

    with torch.no_grad():
        for tensor in live.values():
            tensor.add_(0.5)
    calls = {"one tensor at a time": one_by_one, "ModelEMA, all at once": lambda: average.update(module)}
    taken = medians(calls, rounds, device)
    equal = bool(same_bytes(alone, average.shadow))
    base = taken["one tensor at a time"]
    table = [
        {"form": name, "ms": round(ms, 3), "of one at a time": round(ms / base, 3), "bytes equal": equal}
        for name, ms in taken.items()
    ]
    # an update reads the average and the weights, and writes the average
    return table, 3 * sum(tensor.numel() * tensor.element_size() for tensor in alone.values())


def _apart(found: list[Tensor], expected: list[Tensor]) -> str:
    furthest = max((a - b).abs().max().item() for a, b in zip(found, expected, strict=True))
    largest = max(b.abs().max().item() for b in expected)
    return f"{furthest / largest:.1e}"
