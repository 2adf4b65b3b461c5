"""Compare MuSGD with SGD and AdamW at equal steps: a regression, and a small image classification.

One command, under four minutes on one core::

    python packages/lucid-optim/benchmarks/convergence.py

It prints the tables, writes them into ``docs/convergence.md``, the plots beside it and the numbers to
``benchmarks/convergence.json``. Both tasks are made by torch from seeds; nothing is downloaded. Each optimizer
gets the best of a grid of learning rates, chosen on a seed that is not among the reported ones.
"""

import argparse
import json
import math
import statistics
from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

import matplotlib

matplotlib.use("agg")
import matplotlib.pyplot as plt
import torch
from torch import Tensor, nn
from torch.nn.functional import cross_entropy, interpolate

from lucid_optim import MuSGD, param_groups, warmup_linear_decay

HERE = Path(__file__).resolve().parent
DOCS = HERE.parent / "docs"
SEEDS, TUNING_SEED = (0, 1, 2), 100
Make = Callable[..., torch.optim.Optimizer]


@dataclass(frozen=True)
class Arm:
    """An optimizer with its grid of learning rates and its colour."""

    make: Make
    rates: tuple[float, ...]
    colour: str


def musgd(model: nn.Module, lr: float, weight_decay: float) -> torch.optim.Optimizer:
    """Return MuSGD over the groups of ``model``."""
    return MuSGD(param_groups(model), lr=lr, weight_decay=weight_decay)


def sgd(model: nn.Module, lr: float, weight_decay: float, nesterov: bool) -> torch.optim.Optimizer:
    """Return SGD with momentum, the vectors undecayed."""
    return torch.optim.SGD(by_rank(model, weight_decay), lr=lr, momentum=0.95, nesterov=nesterov)


def adamw(model: nn.Module, lr: float, weight_decay: float) -> torch.optim.Optimizer:
    """Return AdamW, the vectors undecayed."""
    return torch.optim.AdamW(by_rank(model, weight_decay), lr=lr)


def by_rank(model: nn.Module, weight_decay: float) -> list[dict[str, Any]]:
    """Return matrices with decay and vectors without."""
    ps = list(model.parameters())
    return [
        {"params": [p for p in ps if p.dim() >= 2], "weight_decay": weight_decay},
        {"params": [p for p in ps if p.dim() < 2], "weight_decay": 0.0},
    ]


ARMS = {
    "MuSGD": Arm(musgd, (0.001, 0.003, 0.01, 0.03, 0.1, 0.3), "tab:blue"),
    "SGD, Nesterov": Arm(
        partial(sgd, nesterov=True), (0.001, 0.003, 0.01, 0.03, 0.1, 0.3, 1.0), "tab:orange"
    ),
    "SGD": Arm(partial(sgd, nesterov=False), (0.001, 0.003, 0.01, 0.03, 0.1, 0.3, 1.0), "tab:red"),
    "AdamW": Arm(adamw, (0.001, 0.003, 0.01, 0.03, 0.1, 0.3), "tab:green"),
}


def toy(arm: Arm, rate: float, seed: int, steps: int = 150) -> list[float]:
    """Return the loss before each step of a two-convolution regression on one fixed batch."""
    inputs = torch.randn(8, 3, 8, 8, generator=torch.Generator().manual_seed(101 + seed))
    targets = inputs.flatten(1) @ torch.randn(192, 4, generator=torch.Generator().manual_seed(202 + seed))
    torch.manual_seed(303 + seed)
    model = nn.Sequential(
        nn.Conv2d(3, 8, 3, padding=1),
        nn.ReLU(),
        nn.Conv2d(8, 8, 3, padding=1),
        nn.ReLU(),
        nn.Flatten(),
        nn.Linear(512, 4),
    )
    optimizer = arm.make(model, lr=rate, weight_decay=0.0)
    losses = []
    for _ in range(steps):
        loss = (model(inputs) - targets).square().mean()
        losses.append(loss.item())
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
    return losses


def pictures(count: int, seed: int) -> tuple[Tensor, Tensor]:
    """Return (count, 3, 24, 24) pictures and their classes: eight shapes, any size, place and colour, in noise."""
    g = torch.Generator().manual_seed(seed)
    labels = torch.randint(0, 8, (count,), generator=g)
    # a class is a picture of 5 x 5 bits that is placed, stretched and coloured
    glyphs = (torch.rand(8, 1, 5, 5, generator=torch.Generator().manual_seed(7)) > 0.5).float()
    images = torch.empty(count, 3, 24, 24)
    for i, label in enumerate(labels.tolist()):
        height, width = (int(n) for n in torch.randint(12, 19, (2,), generator=g))
        top, left = (
            int(torch.randint(0, 25 - height, (), generator=g)),
            int(torch.randint(0, 25 - width, (), generator=g)),
        )
        dark, light = 0.4 * torch.rand(2, 3, 1, 1, generator=g)
        ink, paper = (dark, 1 - light) if i % 2 else (1 - light, dark)
        shape = torch.zeros(1, 24, 24)
        shape[:, top : top + height, left : left + width] = interpolate(glyphs[label][None], (height, width))[
            0
        ]
        images[i] = paper + shape * (ink - paper)
    return images + 0.2 * torch.randn(images.shape, generator=g), labels


class Small(nn.Module):
    """Four convolutions with batch normalisation, one of them depthwise, and a linear head."""

    def __init__(self) -> None:
        super().__init__()

        def block(inner: int, outer: int, stride: int, groups: int = 1) -> nn.Sequential:
            convolution = nn.Conv2d(inner, outer, 3, stride, 1, groups=groups, bias=False)
            return nn.Sequential(convolution, nn.BatchNorm2d(outer), nn.SiLU())

        self.body = nn.Sequential(block(3, 16, 1), block(16, 32, 2), block(32, 32, 1, 32), block(32, 48, 2))
        self.head = nn.Linear(48, 8)

    def forward(self, x: Tensor) -> Tensor:
        """Return (B, 8) logits."""
        return self.head(self.body(x).mean((2, 3)))


def classification(
    arm: Arm,
    rate: float,
    seed: int,
    data: tuple[Tensor, Tensor, Tensor, Tensor],
    steps: int = 200,
    batch: int = 32,
) -> tuple[list[float], list[tuple[int, float]]]:
    """Return the training loss of each step and (step, accuracy on held-out pictures) now and then."""
    images, labels, held_out, truth = data
    torch.manual_seed(seed)
    model = Small()
    optimizer = arm.make(model, lr=rate, weight_decay=5e-4)
    scheduler = torch.optim.lr_scheduler.LambdaLR(
        optimizer, partial(warmup_linear_decay, total_steps=steps, warmup_steps=10, final_factor=0.01)
    )
    order = torch.Generator().manual_seed(seed)
    losses, accuracy = [], []
    for step in range(1, steps + 1):
        chosen = torch.randint(0, len(images), (batch,), generator=order)
        loss = cross_entropy(model(images[chosen]), labels[chosen])
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        scheduler.step()
        losses.append(loss.item())
        if step % 25 == 0:
            model.eval()
            with torch.no_grad():
                accuracy.append((step, (model(held_out).argmax(1) == truth).float().mean().item()))
            model.train()
    return losses, accuracy


def best(rates: tuple[float, ...], score: Callable[[float], float]) -> float:
    """Return the learning rate with the lowest finite score."""
    scores = {rate: score(rate) for rate in rates}
    return min((rate for rate in rates if math.isfinite(scores[rate])), key=scores.__getitem__)


def first_below(losses: list[float], level: float) -> int | None:
    """Return the number of steps before the loss was at most ``level``."""
    return next((step for step, loss in enumerate(losses) if loss <= level), None)


def spread(values: list[float], digits: int) -> str:
    """Return mean and range as text."""
    return f"{statistics.mean(values):.{digits}f} ({min(values):.{digits}f} to {max(values):.{digits}f})"


def draw(curves: dict[str, list[list[float]]], xs: list[int], label: str, log: bool, path: Path) -> None:
    """Write a plot of the mean over seeds of each arm, with the range shaded."""
    figure, axes = plt.subplots(figsize=(5.2, 3.2), layout="constrained")
    for name, runs in curves.items():
        values = torch.tensor(runs)
        axes.plot(xs, values.mean(0), label=name, color=ARMS[name].colour)
        axes.fill_between(xs, values.amin(0), values.amax(0), alpha=0.2, color=ARMS[name].colour, linewidth=0)
    axes.set_xlabel("optimizer steps")
    axes.set_ylabel(label)
    axes.set_yscale("log" if log else "linear")
    axes.grid(alpha=0.3)
    axes.legend(frameon=False)
    figure.savefig(path, dpi=100)
    plt.close(figure)


def markdown(table: list[dict[str, Any]]) -> str:
    """Return a table as Markdown."""
    head = list(table[0])
    lines = ["| " + " | ".join(head) + " |", "|" + "---|" * len(head)]
    return "\n".join(lines + ["| " + " | ".join(str(row[key]) for key in head) + " |" for row in table])


def run_toy() -> list[dict[str, Any]]:
    """Return a row per arm, after writing the plot."""
    table, curves = [], {}
    for name, arm in ARMS.items():
        rate = best(arm.rates, lambda r, arm=arm: toy(arm, r, TUNING_SEED)[-1])
        runs = [toy(arm, rate, seed) for seed in SEEDS]
        curves[name] = runs
        counts = [first_below(losses, 0.1) for losses in runs]
        table.append(
            {"optimizer": name, "learning rate": rate}
            | {"steps to a loss of 0.1, by seed": ", ".join("more" if c is None else str(c) for c in counts)}
            | {"loss after 150 steps": spread([losses[-1] for losses in runs], 5)}
        )
    draw(curves, list(range(150)), "mean squared error", True, DOCS / "convergence-regression.png")
    return table


def run_classification() -> list[dict[str, Any]]:
    """Return a row per arm, after writing the plots."""
    data = (*pictures(4000, 1), *pictures(1000, 2))
    table, losses, accuracies, xs = [], {}, {}, []
    for name, arm in ARMS.items():
        rate = best(
            arm.rates, lambda r, arm=arm: statistics.mean(classification(arm, r, TUNING_SEED, data)[0][-50:])
        )
        runs = [classification(arm, rate, seed, data) for seed in SEEDS]
        xs = [step for step, _ in runs[0][1]]
        losses[name] = [loss for loss, _ in runs]
        accuracies[name] = [[value for _, value in accuracy] for _, accuracy in runs]
        table.append(
            {"optimizer": name, "learning rate": rate}
            | {
                "training loss, last 50 steps": spread(
                    [statistics.mean(run[-50:]) for run in losses[name]], 3
                )
            }
            | {f"held-out accuracy at step {xs[3]}": spread([run[3] for run in accuracies[name]], 3)}
            | {f"at step {xs[-1]}": spread([run[-1] for run in accuracies[name]], 3)}
        )
    draw(accuracies, xs, "held-out accuracy", False, DOCS / "convergence-classification.png")
    return table


def main() -> None:
    """Train, print, write."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--threads", type=int, default=1, help="torch threads")
    options = parser.parse_args()
    torch.set_num_threads(options.threads)
    tables = {"Regression": run_toy(), "Classification": run_classification()}
    (HERE / "convergence.json").write_text(json.dumps(tables, indent=1) + "\n")
    page = DOCS / "convergence.md"
    text = page.read_text(encoding="utf-8")
    for title, table in tables.items():
        print(f"{title}\n\n{markdown(table)}\n")
        begin, end = f"<!-- {title} -->", "<!-- end -->"
        head, rest = text.split(begin)
        text = f"{head}{begin}\n\n{markdown(table)}\n\n{end}{rest.split(end, 1)[1]}"
    page.write_text(text, encoding="utf-8")


if __name__ == "__main__":
    main()
