"""Scores a checkpoint on a split with the COCO protocol: the function behind ``lucid eval``."""

import platform
import time
from collections.abc import Callable
from importlib.metadata import version
from pathlib import Path
from typing import Any, Literal

import torch

from lucid_data import Catalog, EvalPipeline, Layout, available_splits, eval_loader, open_catalog
from lucid_models import Detector, describe, load, make_points
from lucid_train.device import chosen_device
from lucid_train.files import write_json
from lucid_train.results import DecodingPath, ResultCollector, scoring_backend
from lucid_train.splits import default_splits, missing_split
from lucid_train.tasks import task_row

PathName = Literal[DecodingPath, "both"]
"""What is scored: a path of decoding, or both."""


def evaluate(
    checkpoint: str | Path,
    data: str | Path,
    *,
    split: str | None = None,
    layout: Layout | None = None,
    path: PathName = "both",
    limit: int = 0,
    batch: int | None = None,
    image_size: int | None = None,
    device: str = "auto",
    workers: int | None = None,
    rect: bool = False,
    engine: str = "pycocotools",
    predictions: str | Path | None = None,
    observer: Callable[[int, int], None] | None = None,
) -> dict[str, Any]:
    """Return the report of a checkpoint's averaged weights on one split.

    Args:
        checkpoint: a lucid checkpoint; it states task, size, classes and canvas.
        data: the data set's folder.
        split: which split; ``None`` takes the one that a fit validates on.
        layout: format of the folder where it fits several.
        path: ``e2e`` (one-to-one branch, no suppression), ``nms`` (one-to-many branch) or ``both``.
        limit: images to score, 0 for all.
        batch: images per step; ``None`` takes the task's.
        image_size: canvas side; ``None`` takes the checkpoint's.
        workers: loader processes; ``None`` chooses.
        rect: canvases as small as the pictures allow instead of square ones; fewer grey pixels, other numbers.
        device: ``cpu``, ``cuda``, ``cuda:1``, ``mps``, or ``auto`` for the best one here.
        engine: what computes the COCO protocol: ``pycocotools``, or ``faster``, which gives its numbers sooner.
        predictions: write the COCO results that were scored to this file (one per path: ``-nms`` is appended).
        observer: called with images done and images in all.

    Returns:
        ``{"info": …, "images": int, "seconds": float, "report": {"e2e": …, "nms": …}}``.

    Raises:
        ValueError: arguments out of range, or classes that do not fit the checkpoint.
        ImportError: the engine is not installed.
        FileNotFoundError: no such file or split.
    """
    if limit < 0:
        raise ValueError(f"limit = {limit}: give 0 for all images, or a positive number")
    if batch is not None and batch < 1:
        raise ValueError(f"batch = {batch}: give a positive number")
    device = chosen_device(device)
    header = describe(checkpoint)
    backend = scoring_backend(header.task, engine)
    canvas = header.image_size if image_size is None else image_size
    if canvas <= 0 or canvas % 32:
        raise ValueError(f"image size {canvas}: give a positive multiple of 32")
    detector = load(checkpoint).to(device).eval()
    chosen = split or default_split(Path(data), header.task, layout)
    catalog = open_catalog(data, chosen, header.task, layout=layout)
    require_same_classes(catalog, detector)
    if limit:
        catalog = catalog.subset(range(min(limit, len(catalog))))
    loader = eval_loader(
        EvalPipeline(catalog, canvas, rect=rect), batch or task_row(header.task).eval_batch, workers=workers
    )
    names: tuple[DecodingPath, ...] = ("e2e", "nms") if path == "both" else (path,)
    collectors = {name: ResultCollector(catalog, engine=engine) for name in names}
    started, done = time.perf_counter(), 0
    detector = detector.to(memory_format=torch.channels_last)
    with torch.inference_mode():
        for part in loader:
            images = part.images.to(device).to(torch.float32, memory_format=torch.channels_last).div_(255)
            height, width = images.shape[-2:]
            points, strides = make_points(height, width, detector.strides, device=images.device)
            output = detector(images)
            for name, collector in collectors.items():
                collector.add_output(name, output, points, strides, part, detector.names)
            done += len(images)
            if observer:
                observer(done, len(catalog))
    if predictions is not None:
        for name, collector in collectors.items():
            write_json(results_file(Path(predictions), name, len(collectors)), collector.results)
    return {
        "info": {
            "checkpoint": str(checkpoint),
            **training_state(checkpoint),
            "task": header.task,
            "size": header.size,
            "image_size": canvas,
            "rect": rect,
            "data": str(data),
            "split": catalog.split,
            "device": device,
            "eval_backend": backend,
            "versions": {
                name: version(name) for name in ("torch", "torchvision", "pycocotools", "lucid-train")
            },
            "machine": platform.machine(),
        },
        "images": len(catalog),
        "seconds": round(time.perf_counter() - started, 1),
        "report": {name: collector.score() for name, collector in collectors.items()},
    }


def training_state(checkpoint: str | Path) -> dict[str, Any]:
    """Return where in training a checkpoint was written and whether its weights are the average; None is unknown.

    Keys ``epoch`` (finished ones), ``global_step``, ``ema`` and ``ema_updates``.
    """
    stored = torch.load(checkpoint, map_location="cpu", weights_only=True, mmap=True)
    average = stored.get("callbacks", {}).get("EmaCallback") or {}
    epoch = stored.get("epoch")
    return {
        "epoch": None if epoch is None else epoch + 1,
        "global_step": stored.get("global_step"),
        "ema": "shadow" in average if "callbacks" in stored else None,
        "ema_updates": average.get("num_updates"),
    }


def default_split(data: Path, task: str = "detect", layout: Layout | None = None) -> str:
    """Return the split that is scored when none is named: the one a fit validates on.

    Raises:
        ValueError: the data set has none that could serve.
    """
    present = available_splits(data, task, layout=layout)
    chosen = default_splits(present)[1]
    if chosen is None:
        raise missing_split(data, "validation", present, "--split NAME")
    return chosen


def require_same_classes(catalog: Catalog, detector: Detector) -> None:
    """Raise ValueError where the data's classes are not the checkpoint's."""
    if len(catalog.class_names) != len(detector.names):
        count = len(catalog.class_names)
        raise ValueError(
            f"{catalog.root}: {count} class{'es' * (count != 1)}, but the checkpoint was trained on "
            f"{len(detector.names)} ({', '.join(detector.names[:5])}{', …' if len(detector.names) > 5 else ''})"
        )
    if catalog.num_keypoints != detector.num_keypoints:
        raise ValueError(
            f"{catalog.root}: {catalog.num_keypoints} keypoints, but the checkpoint was trained on "
            f"{detector.num_keypoints}"
        )
    for label, (ours, theirs) in enumerate(zip(detector.names, catalog.class_names, strict=True)):
        if ours != theirs:
            raise ValueError(f"{catalog.root}: class {label} is {theirs!r}, but {ours!r} in the checkpoint")


def results_file(path: Path, name: str, count: int) -> Path:
    """Return the file of one path's results: the given one, with the path's name appended for a second path."""
    return path if count == 1 or name == "e2e" else path.with_name(f"{path.stem}-{name}{path.suffix}")
