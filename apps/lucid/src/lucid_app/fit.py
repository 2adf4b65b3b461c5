"""``lucid fit``: train a detector on your own images."""

from pathlib import Path
from typing import Annotated, Any

import typer

from lucid_app import sheets
from lucid_app.console import err, fit_progress, named_scores, out, print_json
from lucid_train import ConfigError, FitConfig, FitResult, find_run, load_config, recipes
from lucid_train import fit as train

HELP = """Train a detector on your own images.

Examples:

    lucid fit --data ~/photos --epochs 100

    lucid fit --data coco --size s --batch 32 --precision bf16-mixed

    lucid fit --data nuclei --task segment --image-size 256

    lucid fit --resume last --output runs/detect-n-1
"""


def fit(
    data: Annotated[
        Path | None, typer.Option(help="Folder of images and labels: COCO, YOLO, Pascal VOC or DOTA.")
    ] = None,
    task: Annotated[str | None, typer.Option(help="What to learn: detect, segment, pose or obb.")] = None,
    size: Annotated[str | None, typer.Option(help="Size of the network: n, s, m, l or x.")] = None,
    recipe: Annotated[str | None, typer.Option(help="A packaged recipe, or a YAML file.")] = None,
    epochs: Annotated[int | None, typer.Option(help="Passes over the training images.")] = None,
    batch: Annotated[int | None, typer.Option(help="Images per step.")] = None,
    image_size: Annotated[
        int | None, typer.Option(help="Side of the square canvas, a multiple of 32.")
    ] = None,
    device: Annotated[str | None, typer.Option(help="auto, cpu, cuda or mps.")] = None,
    devices: Annotated[int | None, typer.Option(help="How many devices.")] = None,
    precision: Annotated[str | None, typer.Option(help="32, 16-mixed or bf16-mixed.")] = None,
    workers: Annotated[int | None, typer.Option(help="Loader processes; chosen when absent.")] = None,
    seed: Annotated[int | None, typer.Option(help="Seed of weights, order and augmentation.")] = None,
    output: Annotated[
        Path | None, typer.Option(help="Folder of the run; numbered under runs/ when absent.")
    ] = None,
    resume: Annotated[
        str | None, typer.Option(help="'last' or a checkpoint: continue a run exactly.")
    ] = None,
    init: Annotated[Path | None, typer.Option(help="Checkpoint to start from; what fits is taken.")] = None,
    fingerprint: Annotated[
        bool, typer.Option("--fingerprint", help="Write SHA-256 digests of what was learned.")
    ] = False,
    settings: Annotated[
        list[str] | None, typer.Option("--set", help="section.key=value; repeat as needed.")
    ] = None,
    as_json: Annotated[bool, typer.Option("--json", help="Print the result as JSON.")] = False,
    quiet: Annotated[bool, typer.Option("--quiet", help="No progress.")] = False,
) -> None:
    """Train a detector on your own images."""
    options: dict[str, Any] = {
        "data.path": data,
        "data.batch": batch,
        "data.image_size": image_size,
        "data.workers": workers,
        "model.task": task,
        "model.size": size,
        "model.init": init,
        "run.epochs": epochs,
        "run.device": device,
        "run.devices": devices,
        "run.precision": precision,
        "run.seed": seed,
        "run.output": output,
        "run.fingerprint": fingerprint or None,
    }
    overrides = {key: value for key, value in options.items() if value is not None}
    base = recipe or (task if task in recipes() else "detect")
    if resume is not None and recipe is None:
        base = str(find_run(output, resume)[0] / "config.yaml")
    config = load_config(base, overrides, settings=dict(split_setting(one) for one in settings or ()))
    result = run_fit(config, resume=resume, quiet=quiet)
    report(result, as_json)


fit.__doc__ = HELP


def run_fit(config: FitConfig, *, resume: str | None = None, quiet: bool = False) -> FitResult:
    """Train with progress on stderr and draw the run's plots; a picture that fails is one line of warning."""
    if config.data.path is None:
        raise ConfigError("no data: say where the images and labels are with --data DIR")
    if not config.data.path.exists():
        raise FileNotFoundError(
            f"{config.data.path}: no such folder; give --data the folder of images and labels"
        )
    with fit_progress(quiet) as observe:
        result = train(config, resume=resume, observer=observe)
    if result.transfer and not quiet:
        err.print(result.transfer)
    for failure in sheets.draw_run(result.run):
        err.print(f"warning: {failure}", style="yellow", soft_wrap=True)
    return result


def report(result: FitResult, as_json: bool) -> None:
    """Print what a fit left behind."""
    if as_json:
        print_json(result.to_dict())
        return
    if scores := named_scores(result.metrics):
        out.print(scores)
    if result.fingerprint:
        out.print(f"fingerprint {result.fingerprint['all']}")
    out.print(f"last checkpoint {result.last_checkpoint}", soft_wrap=True)
    out.print(f"curves and pictures {result.run / 'plots'}", soft_wrap=True)


def split_setting(setting: str) -> tuple[str, str]:
    """Return key and value of ``section.key=value``.

    Raises:
        ConfigError: there is no equals sign.
    """
    key, equals, value = setting.partition("=")
    if not equals:
        raise ConfigError(f"--set {setting}: write it as section.key=value, for example run.epochs=50")
    return key.strip(), value.strip()
