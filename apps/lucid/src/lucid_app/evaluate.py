"""``lucid eval``: score a checkpoint."""

from collections.abc import Mapping
from pathlib import Path
from typing import Annotated, Any, cast, get_args

import typer

from lucid_app.checks import (
    check_at_least,
    check_canvas,
    check_checkpoint,
    check_data,
    check_file_target,
    choose_device,
)
from lucid_app.console import Quiet, counting, figure, out, print_json
from lucid_app.options import DeviceOption, LayoutOption, as_layout, choice
from lucid_app.scoring import EngineOption, SplitOption
from lucid_train import PathName, task_row, write_json
from lucid_train import evaluate as score


def evaluate(
    checkpoint: Annotated[Path, typer.Argument(help="A checkpoint of lucid fit.")],
    data: Annotated[Path, typer.Option(help="Folder of images and labels.")],
    split: SplitOption = None,
    layout: LayoutOption = None,
    path: Annotated[str, choice("Branches to score", get_args(PathName))] = "both",
    limit: Annotated[int, typer.Option(help="Score this many images; 0 for all.")] = 0,
    batch: Annotated[int | None, typer.Option(help="Images per step.")] = None,
    image_size: Annotated[int | None, typer.Option(help="Canvas; the checkpoint's when absent.")] = None,
    rect: Annotated[
        bool, typer.Option("--rect", help="Canvases as small as pictures allow, not square.")
    ] = False,
    device: DeviceOption = "auto",
    workers: Annotated[int | None, typer.Option(help="Loader processes.")] = None,
    engine: EngineOption = "pycocotools",
    output: Annotated[Path | None, typer.Option(help="Write the report to this JSON file.")] = None,
    save_predictions: Annotated[
        Path | None,
        typer.Option(
            help="Write the scored COCO results here; with --path both those of nms go to NAME-nms beside it."
        ),
    ] = None,
    as_json: Annotated[bool, typer.Option("--json", help="Print the report as JSON.")] = False,
    quiet: Quiet = False,
) -> None:
    """Score a checkpoint's averaged weights with the COCO protocol.

    Two paths are reported: e2e (one-to-one branch, as deployed) and nms (one-to-many branch with suppression). The last
    line says how many points of AP, hundredths, e2e is below or above nms: what doing without suppression costs. S/M/L
    is AP of small, medium and large objects; a dash stands where there are none.

    Examples:
        lucid eval runs/detect-n-1/checkpoints/last.ckpt --data ~/photos

        lucid eval best.ckpt --data coco --split val --output report.json
    """
    check_at_least("--batch", batch, 1)
    check_at_least("--limit", limit, 0)
    check_at_least("--workers", workers, 0)
    check_canvas(image_size)
    check_file_target("--output", output)
    check_file_target("--save-predictions", save_predictions)
    if save_predictions is not None and path == "both":
        second = f"{save_predictions.stem}-nms{save_predictions.suffix}"
        check_file_target("--save-predictions", save_predictions.with_name(second))
    device = choose_device(device)
    check_checkpoint(checkpoint)
    check_data(data, "--data")
    with counting("scoring", quiet=quiet or as_json) as observe:
        report = score(
            checkpoint,
            data,
            split=split,
            layout=as_layout(layout),
            path=cast(PathName, path),
            limit=limit,
            batch=batch,
            image_size=image_size,
            device=device,
            workers=workers,
            rect=rect,
            engine=engine,
            predictions=save_predictions,
            observer=observe,
        )
    if output is not None:
        write_json(output, report)
    if as_json:
        print_json(report)
        return
    info = report["info"]
    out.print(
        f"{report['images']} images of {info['split']} at {info['image_size']} px in {report['seconds']} s"
    )
    protocols = task_row(info["task"]).scores
    for name, numbers in report["report"].items():
        for kind, prefix in protocols.items():
            out.print(f"{name:4s} {score_line(kind, prefix, numbers)}")
            for class_name, row in numbers.get(f"{prefix}per_class", {}).items():
                out.print(
                    f"     {class_name:20s} AP {figure(row['map'])}  AP50 {figure(row['map_50'])}",
                    soft_wrap=True,
                )
    if len(report["report"]) == 2:
        first = f"{next(iter(protocols.values()))}map"
        e2e, nms = (report["report"][name][first] for name in ("e2e", "nms"))
        if -1 not in (e2e, nms):  # there was something to score
            out.print(compared(e2e, nms))
    if output is not None:
        out.print(f"report {output}", soft_wrap=True)


def compared(e2e: float, nms: float) -> str:
    """Return how far apart the two paths are, in points of AP.

    Example:
        >>> compared(0.5, 0.515)
        'e2e is 1.50 AP points below nms'
        >>> compared(0.5, 0.50001)
        'e2e equals nms'
    """
    points = round(100 * (e2e - nms), 2)
    if not points:
        return "e2e equals nms"
    return f"e2e is {abs(points):.2f} AP points {'above' if points > 0 else 'below'} nms"


_KINDS = {"bbox": "", "segm": "mask ", "keypoints": "OKS ", "rotated": "rotated "}
_AREAS = ("small", "medium", "large")


def score_line(kind: str, prefix: str, numbers: Mapping[str, Any]) -> str:
    """Return one protocol's headline numbers; areas where the protocol has them."""
    said = _KINDS[kind]
    parts = [f"{said}AP50-95 {figure(numbers[prefix + 'map'])}"]
    parts += [f"AP{at} {figure(numbers[f'{prefix}map_{at}'])}" for at in (50, 75)]
    areas = [name for name in _AREAS if f"{prefix}map_{name}" in numbers]
    if areas:
        initials = "/".join(name[0].upper() for name in areas)
        parts.append(" ".join([initials, *(figure(numbers[f"{prefix}map_{name}"]) for name in areas)]))
    return "  ".join(parts)
