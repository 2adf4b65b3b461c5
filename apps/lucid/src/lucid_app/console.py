"""Where things are printed: results to stdout, everything else to stderr."""

import json
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from typing import TYPE_CHECKING, Annotated, Any

import typer
from rich.console import Console
from rich.progress import (
    BarColumn,
    MofNCompleteColumn,
    Progress,
    TextColumn,
    TimeElapsedColumn,
    TimeRemainingColumn,
)

if TYPE_CHECKING:  # torch comes with it, and a mistyped word is told without
    from lucid_train import Progress as FitProgress

Quiet = Annotated[bool, typer.Option("--quiet", help="Show no progress.")]
"""The option of commands that show how far they are."""

# names of classes and files are printed as they are: neither markup nor :emoji: codes are looked for
out = Console(highlight=False, markup=False, emoji=False)
err = Console(stderr=True, highlight=False, markup=False, emoji=False)


def print_json(document: Any) -> None:
    """Print one JSON document to stdout; NaN is refused, and bytes of file names that are no text are escaped."""
    text = json.dumps(document, allow_nan=False, ensure_ascii=False)
    plain = text.isascii() or text.encode("utf-8", "replace").decode("utf-8") == text
    print(text if plain else json.dumps(document, allow_nan=False), flush=True)


@contextmanager
def counting(title: str, quiet: bool = False) -> Iterator[Callable[[int, int], None]]:
    """Yield a function of (done, total) that moves a bar on a terminal."""
    with _bar(quiet) as bar:
        task = bar.add_task(title, total=None)
        yield lambda done, total: bar.update(task, completed=done, total=total)


@contextmanager
def waiting(title: str, quiet: bool = False) -> Iterator[None]:
    """Turn a spinner on a terminal while work lasts that cannot tell how far it is."""
    if quiet or not err.is_terminal:
        yield
        return
    with err.status(title):
        yield


@contextmanager
def fit_progress(quiet: bool = False) -> Iterator[Callable[["FitProgress"], None]]:
    """Yield an observer of a fit: a bar within the epoch, one line when it ends."""
    with _bar(quiet) as bar:
        task = bar.add_task("starting", total=None)
        state = {"loss": float("nan"), "speed": 0.0, "said": time.monotonic()}

        def observe(progress: "FitProgress") -> None:
            head = f"epoch {progress.epoch + 1}/{progress.epochs}"
            if progress.phase == "epoch":
                if not quiet:
                    err.print(epoch_line(head, state["loss"], state["speed"], progress.metrics))
                state["said"] = time.monotonic()
                return
            if progress.loss is not None and progress.images_per_second is not None:
                state["loss"], state["speed"] = progress.loss, progress.images_per_second
            bar.update(
                task, description=f"{head} {progress.phase}", completed=progress.step, total=progress.steps
            )
            # a log file has no bar: a line a minute shows that the run is alive
            if not quiet and not err.is_terminal and time.monotonic() - state["said"] > 60:
                err.print(f"{head} {progress.phase} {progress.step}/{progress.steps}")
                state["said"] = time.monotonic()

        yield observe


_SCORES = {
    "val/mAP": "AP",
    "val/mAP50": "AP50",
    "val/segm_mAP": "mask AP",
    "val/segm_mAP50": "mask AP50",
    "val/oks_mAP": "OKS AP",
    "val/oks_mAP50": "OKS AP50",
    "val/rotated_mAP": "rotated AP",
    "val/rotated_mAP50": "rotated AP50",
}


def figure(score: float) -> str:
    """Return a score with four decimals, or a dash for the -1 that stands where there is nothing to score.

    Example:
        >>> figure(0.5), figure(-1.0)
        ('0.5000', '–')
    """
    return "–" if score == -1 else f"{score:.4f}"


def named_scores(metrics: Mapping[str, float]) -> str:
    """Return the scores among a run's metrics on one line, empty when there are none.

    Example:
        >>> named_scores({"val/mAP": 0.5, "val/mAP50": 0.75, "train/loss": 1.0})
        'AP 0.5000  AP50 0.7500'
    """
    return "  ".join(
        f"{name} {figure(metrics[column])}" for column, name in _SCORES.items() if column in metrics
    )


def epoch_line(head: str, loss: float, speed: float, metrics: dict[str, float]) -> str:
    """Return the line of a finished epoch."""
    parts = [head, f"loss {metrics.get('train/loss', loss):.3f}"]
    if scores := named_scores(metrics):
        parts.append(scores)
    return "  ".join([*parts, f"{speed:.1f} images/s"])


def _bar(quiet: bool) -> Progress:
    return Progress(
        TextColumn("{task.description}", markup=False),
        BarColumn(),
        MofNCompleteColumn(),
        TimeElapsedColumn(),
        TimeRemainingColumn(),
        console=err,
        transient=True,
        disable=quiet or not err.is_terminal,
    )
