"""``lucid fit``: train a detector on your own images."""

from collections import Counter
from pathlib import Path
from typing import Annotated, Any

import typer

from lucid_app import sheets
from lucid_app.console import err, fit_progress, named_scores, out, print_json
from lucid_train import (
    REPLAY_SWITCHES,
    ConfigError,
    FitConfig,
    FitResult,
    find_run,
    is_main_process,
    load_config,
    recipes,
)
from lucid_train import fit as train

HELP = """Train a detector on your own images.

Examples:

    lucid fit --data ~/photos --epochs 100

    lucid fit --data coco --size s --batch 32 --precision bf16-mixed

    lucid fit --data nuclei --task segment --image-size 256

    lucid fit --data ~/photos --replay auto

    lucid fit --resume last --output runs/detect-n-1
"""


def replayed(name: str) -> Any:
    """Return the option of a replay switch."""
    return typer.Option(help=REPLAY_SWITCHES[name].help, rich_help_panel="Replay (same bytes learned)")


def bounded(name: str) -> Any:
    """Return the option of a switch that learns what is close to the native bytes."""
    return typer.Option(help=REPLAY_SWITCHES[name].help, rich_help_panel="Speed (close, not the same bytes)")


def sooner(words: str) -> Any:
    """Return the option of a switch that takes time off a step or its batches."""
    return typer.Option(help=words, rich_help_panel="Speed (same bytes learned)")


def fit(
    data: Annotated[
        Path | None, typer.Option(help="Folder of images and labels: COCO, YOLO, Pascal VOC or DOTA.")
    ] = None,
    layout: Annotated[
        str | None,
        typer.Option(help="Format of the folder where it fits several: coco, yolo, voc or dota."),
    ] = None,
    task: Annotated[str | None, typer.Option(help="What to learn: detect, segment, pose or obb.")] = None,
    size: Annotated[str | None, typer.Option(help="Size of the network: n, s, m, l or x.")] = None,
    recipe: Annotated[
        str | None, typer.Option(help=f"A packaged recipe ({', '.join(recipes())}), or a YAML file.")
    ] = None,
    epochs: Annotated[int | None, typer.Option(help="Passes over the training images.")] = None,
    batch: Annotated[
        str | None, typer.Option(help="Images per step of each process; auto is the most that fit, up to 64.")
    ] = None,
    image_size: Annotated[
        int | None, typer.Option(help="Side of the square canvas, a multiple of 32.")
    ] = None,
    device: Annotated[
        str | None,
        typer.Option(
            help="auto, cpu, cuda or mps; for one GPU of several: CUDA_VISIBLE_DEVICES=1 lucid fit ..."
        ),
    ] = None,
    devices: Annotated[int | None, typer.Option(help="Processes that train together, one a device.")] = None,
    precision: Annotated[str | None, typer.Option(help="32, 16-mixed or bf16-mixed.")] = None,
    workers: Annotated[int | None, typer.Option(help="Loader processes; chosen when absent.")] = None,
    seed: Annotated[int | None, typer.Option(help="Seed of weights, order and augmentation.")] = None,
    output: Annotated[
        Path | None, typer.Option(help="Folder of the run; numbered under runs/ when absent.")
    ] = None,
    resume: Annotated[
        str | None, typer.Option(help="'last' or a checkpoint: continue a run exactly.")
    ] = None,
    freeze: Annotated[
        list[str] | None,
        typer.Option(help="Stage that learns nothing: backbone, neck or head; repeat as needed."),
    ] = None,
    patience: Annotated[
        int | None, typer.Option(help="End after so many validations without a higher score.")
    ] = None,
    logger: Annotated[
        list[str] | None,
        typer.Option(help="tensorboard, wandb or mlflow besides metrics.csv; repeat as needed."),
    ] = None,
    skip_nonfinite: Annotated[
        int | None,
        typer.Option(help="Leave out so many steps in a row whose loss is not finite; 0 stops at the first."),
    ] = None,
    init: Annotated[Path | None, typer.Option(help="Checkpoint to start from; what fits is taken.")] = None,
    replay: Annotated[
        str | None,
        typer.Option(
            help="step: every switch of this panel that fits the run, but --capture-step, which wants its name. "
            "auto: the same where there is a CUDA device, if it is faster here. none: those named.",
            rich_help_panel="Replay (same bytes learned)",
        ),
    ] = None,
    replay_backend: Annotated[
        str | None,
        typer.Option(
            help="auto, cuda, or tape: a slow stand-in on a CPU.",
            rich_help_panel="Replay (same bytes learned)",
        ),
    ] = None,
    capture_network: Annotated[bool | None, replayed("capture_network")] = None,
    capture_segment_heads: Annotated[bool | None, replayed("capture_segment_heads")] = None,
    capture_loss: Annotated[bool | None, replayed("capture_loss")] = None,
    capture_orthogonalization: Annotated[bool | None, replayed("capture_orthogonalization")] = None,
    capture_updates: Annotated[bool | None, replayed("capture_updates")] = None,
    capture_gradient_norm: Annotated[bool | None, replayed("capture_gradient_norm")] = None,
    capture_step: Annotated[bool | None, replayed("capture_step")] = None,
    compile_step: Annotated[bool | None, bounded("compile_step")] = None,
    fused_assignment: Annotated[
        bool | None,
        sooner(
            "Assign labels by Triton kernels on an NVIDIA device; pays for oriented boxes. Compiling them can outweigh "
            "the gain of a short run."
        ),
    ] = None,
    device_hsv: Annotated[
        bool | None,
        sooner("Colour on the training device. Costs its time where the device is the bottleneck."),
    ] = None,
    epoch_prefetch: Annotated[
        bool | None, sooner("Workers begin the next epoch during validation. Queued batches stay in memory.")
    ] = None,
    cache_train_images: Annotated[
        bool | None, sooner("Keep decoded training images in memory: 3 bytes a pixel.")
    ] = None,
    cache_prepared_train_images: Annotated[
        bool | None, sooner("Keep training images fitted to the canvas in memory; no gain for one epoch.")
    ] = None,
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
        "data.layout": layout,
        "data.batch": batch,
        "data.image_size": image_size,
        "data.workers": workers,
        "model.task": task,
        "model.size": size,
        "model.init": init,
        "model.freeze": freeze or None,
        "optimizer.skip_nonfinite": skip_nonfinite,
        "run.patience": patience,
        "run.loggers": logger or None,
        "run.epochs": epochs,
        "run.device": device,
        "run.devices": devices,
        "run.precision": precision,
        "run.seed": seed,
        "run.output": output,
        "run.fingerprint": fingerprint or None,
        "replay.mode": replay,
        "replay.backend": replay_backend,
        "replay.capture_network": capture_network,
        "replay.capture_segment_heads": capture_segment_heads,
        "replay.capture_loss": capture_loss,
        "replay.capture_orthogonalization": capture_orthogonalization,
        "replay.capture_updates": capture_updates,
        "replay.capture_gradient_norm": capture_gradient_norm,
        "replay.capture_step": capture_step,
        "replay.compile_step": compile_step,
        "loss.fused_assignment": fused_assignment,
        "data.device_hsv": device_hsv,
        "data.epoch_prefetch": epoch_prefetch,
        "data.cache_train_images": cache_train_images,
        "data.cache_prepared_train_images": cache_prepared_train_images,
    }
    overrides = {key: value for key, value in options.items() if value is not None}
    base = recipe or (task if task in recipes() else "detect")
    if resume is not None and recipe is None:
        base = str(find_run(output, resume)[0] / "config.yaml")
    config = load_config(base, overrides, settings=dict(split_setting(one) for one in settings or ()))
    # under torchrun every process comes here, and one of them speaks
    result = run_fit(config, resume=resume, quiet=quiet or not is_main_process())
    if is_main_process():
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
    for failure in sheets.draw_run(result.run) if is_main_process() else ():
        err.print(f"warning: {failure}", style="yellow", soft_wrap=True)
    return result


def report(result: FitResult, as_json: bool) -> None:
    """Print what a fit left behind."""
    if as_json:
        print_json(result.to_dict())
        return
    if scores := named_scores(result.metrics):
        out.print(scores)
    if skipped := int(result.metrics.get("skipped", 0)):
        out.print(f"{skipped} steps left out: their loss was not finite")
    if result.fingerprint:
        out.print(f"fingerprint {result.fingerprint['all']}")
    for line in replay_lines(result.replay):
        out.print(line, soft_wrap=True)
    out.print(f"last checkpoint {result.last_checkpoint}", soft_wrap=True)
    out.print(f"curves and pictures {result.run / 'plots'}", soft_wrap=True)


def replay_lines(replay: dict[str, Any]) -> list[str]:
    """Return one line per replay switch that was on: what replayed, how often, and why not."""
    lines = []
    for name, regions in replay.get("options", {}).items():
        count = Counter({key: sum(region[key] for region in regions) for key in ("recorded", "replayed")})
        native: Counter[str] = sum((Counter(region["native"]) for region in regions), Counter())
        why = ", ".join(f"{number} {reason}" for reason, number in native.items()) or "0"
        ended = {region["retired_by"] for region in regions} - {None}
        retired = f"; given up: {', '.join(sorted(ended))}" if ended else ""
        lines.append(
            f"{name}: {count['recorded']} recorded, {count['replayed']} replayed, native {why}{retired}"
        )
    if replay.get("kept"):
        lines.append(f"kept the faster: {replay['kept']} steps")
    return lines


def split_setting(setting: str) -> tuple[str, str]:
    """Return key and value of ``section.key=value``.

    Raises:
        ConfigError: there is no equals sign.
    """
    key, equals, value = setting.partition("=")
    if not equals:
        raise ConfigError(f"--set {setting}: write it as section.key=value, for example run.epochs=50")
    return key.strip(), value.strip()
