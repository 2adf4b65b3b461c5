"""``lucid export``: a checkpoint as a file that runs elsewhere."""

from dataclasses import asdict
from pathlib import Path
from typing import Annotated

import typer

from lucid_app.checks import check_at_least, check_canvas, check_checkpoint, check_file_target
from lucid_app.console import Quiet, err, out, print_json, waiting
from lucid_app.options import choice
from lucid_models import EXPORT_FORMATS, parity
from lucid_models import export as write
from lucid_train import ConfigError


def export(
    checkpoint: Annotated[Path, typer.Argument(help="A checkpoint of lucid fit.")],
    format_name: Annotated[str, choice("What to write", EXPORT_FORMATS, "--format")] = "onnx",
    output: Annotated[
        Path | None, typer.Option(help="File to write; beside the checkpoint when absent.")
    ] = None,
    image_size: Annotated[int | None, typer.Option(help="Canvas; the checkpoint's when absent.")] = None,
    batch: Annotated[int | None, typer.Option(help="Fix the number of images; any when absent.")] = None,
    max_detections: Annotated[int, typer.Option(help="Rows per image.")] = 300,
    check: Annotated[
        list[Path] | None,
        typer.Option(
            help="Image or folder on which the file must agree with the checkpoint; again for more."
        ),
    ] = None,
    conf: Annotated[float, typer.Option(help="Compare detections scoring above this.")] = 0.25,
    as_json: Annotated[bool, typer.Option("--json", help="Print what was written as JSON.")] = False,
    quiet: Quiet = False,
) -> None:
    """Write the deployed network, selection of rows included: no suppression is left to do.

    With --check, the file and the checkpoint must find the same on the images given (scores within 1e-4, boxes within
    0.02 px), else the exit status is 1.

    Examples:
        lucid export best.ckpt --output pets.onnx --check photos

        lucid export best.ckpt --format torchscript --batch 1
    """
    check_canvas(image_size)
    check_at_least("--batch", batch, 1)
    check_at_least("--max-detections", max_detections, 1)
    check_checkpoint(checkpoint)
    suffix = EXPORT_FORMATS[format_name].suffix
    target = output or checkpoint.with_suffix(suffix)
    check_file_target("--output", target)
    if target.suffix != suffix:
        raise ConfigError(
            f"--output {target}: what reads a {format_name} file knows it by its suffix; end the name in {suffix}"
        )
    for source in check or ():
        if not source.exists():
            raise ConfigError(f"--check {source}: no such image or folder")
    target.parent.mkdir(parents=True, exist_ok=True)
    with waiting("exporting", quiet=quiet or as_json):
        file = write(
            checkpoint, target, format_name, image_size=image_size, batch=batch, max_detections=max_detections
        )
    found = None
    if check:
        if not quiet:
            err.print(f"{file} is written and not yet compared", soft_wrap=True)
        with waiting("comparing with the checkpoint", quiet=quiet or as_json):
            found = parity(
                checkpoint, file, check, format=format_name, confidence=conf, batch_size=batch or 8
            )
    if as_json:
        print_json(
            {"file": str(file), "format": format_name, "parity": None if found is None else asdict(found)}
        )
    else:
        out.print(f"{file}  {file.stat().st_size / 2**20:.1f} MiB", soft_wrap=True)
        if found is not None:
            verdict = "agrees" if found.passed else "DIFFERS"
            out.print(
                f"{verdict} on {found.images} images, {found.detections} detections: lost {found.lost}, "
                f"extra {found.extra}, largest difference of scores {found.score:.1e}, boxes {found.box:.1e} px",
                soft_wrap=True,
            )
    if found is not None and not found.passed:
        err.print(
            f"error: {file} does not agree with {checkpoint}; do not deploy it", style="red", soft_wrap=True
        )
        raise typer.Exit(1)
    if found is not None and not found.detections:
        err.print(
            f"error: nothing was found above --conf {conf:g}, so nothing was compared; lower --conf, or give other "
            "pictures",
            style="red",
            soft_wrap=True,
        )
        raise typer.Exit(1)
