"""``lucid fit``: train a detector on your own images."""

from collections import Counter
from pathlib import Path
from typing import Annotated, Any

import typer

from lucid_app import sheets
from lucid_app.checks import check_checkpoint, check_data
from lucid_app.console import err, fit_progress, named_scores, out, print_json
from lucid_app.keys import naming_options
from lucid_app.settings import given, setting
from lucid_train import (
    REPLAY_SWITCHES,
    TASK_TABLE,
    ConfigError,
    FitConfig,
    FitResult,
    Observer,
    Progress,
    find_run,
    is_main_process,
    load_config,
    recipes,
)
from lucid_train import fit as train

CANVASES = ", ".join(f"{row.image_size} for {task}" for task, row in TASK_TABLE.items())

HELP = """Train a detector on your own images.

What no option says is left to the recipe; the defaults shown are those of the recipe detect.

Examples:

    lucid fit --data ~/photos --epochs 100

    lucid fit --data coco --size s --batch 32 --precision bf16-mixed

    lucid fit --data nuclei --task segment --image-size 256

    lucid fit --data ~/photos --replay auto

    lucid fit --resume last --output runs/detect-n-1
"""


REPLAY, CLOSE, SAME = (
    "Replay (same bytes learned)",
    "Speed (close, not the same bytes)",
    "Speed (same bytes learned)",
)


def replayed(name: str) -> Any:
    """Return the option of a replay switch."""
    switch = REPLAY_SWITCHES[name]
    return setting(name, switch.help, CLOSE if switch.bounded else REPLAY)


def fit(
    data: Annotated[
        Path | None,
        setting("data", "Folder of images and labels: COCO, YOLO, Pascal VOC or DOTA; or a dataset YAML."),
    ] = None,
    layout: Annotated[
        str | None, setting("layout", "Format of the folder, found by looking unless it fits several")
    ] = None,
    task: Annotated[str | None, setting("task", "What to learn")] = None,
    size: Annotated[str | None, setting("size", "Size of the network")] = None,
    recipe: Annotated[
        str | None,
        typer.Option(
            help=f"A packaged recipe ({', '.join(recipes())}), or a YAML file. That of --task when absent.",
            autocompletion=lambda: list(recipes()),
        ),
    ] = None,
    epochs: Annotated[int | None, setting("epochs", "Passes over the training images.")] = None,
    batch: Annotated[
        str | None,
        setting("batch", "Images per step of each process; auto is the most that fit, up to 64."),
    ] = None,
    image_size: Annotated[
        int | None,
        setting("image_size", f"Side of the square canvas, a multiple of 32; when absent {CANVASES}."),
    ] = None,
    device: Annotated[
        str | None,
        setting("device", "Where to train", more="One GPU of several: CUDA_VISIBLE_DEVICES=1 lucid fit ..."),
    ] = None,
    devices: Annotated[int | None, setting("devices", "Processes that train together, one a device.")] = None,
    precision: Annotated[str | None, setting("precision", "Precision of the network")] = None,
    workers: Annotated[
        int | None, setting("workers", "Loader processes; chosen by the number of cores when absent.")
    ] = None,
    seed: Annotated[int | None, setting("seed", "Seed of weights, order and augmentation.")] = None,
    output: Annotated[
        Path | None, setting("output", "Folder of the run; numbered under runs/ when absent.")
    ] = None,
    resume: Annotated[
        str | None,
        typer.Option(
            help="Continue a run exactly: a checkpoint, or 'last', of --output or of the newest run."
        ),
    ] = None,
    freeze: Annotated[
        list[str] | None,
        setting("freeze", "Stage that learns nothing", more="Again for more; none when absent."),
    ] = None,
    patience: Annotated[
        int | None,
        setting("patience", "End after so many validations without a higher score; never when absent."),
    ] = None,
    logger: Annotated[
        list[str] | None, setting("logger", "Where numbers go besides metrics.csv", more="Again for more.")
    ] = None,
    skip_nonfinite: Annotated[
        int | None,
        setting(
            "skip_nonfinite",
            "Leave out so many steps in a row whose loss is not finite; 0 stops at the first.",
        ),
    ] = None,
    init: Annotated[
        Path | None,
        setting("init", "Checkpoint to start from; what fits is taken. Random weights when absent."),
    ] = None,
    replay: Annotated[
        str | None,
        setting(
            "replay",
            "Which switches of this panel are on",
            REPLAY,
            "step: every one that fits the run, but --capture-step, which wants its name. auto: the same where there "
            "is a CUDA device, if it is faster here. none: those named.",
        ),
    ] = None,
    replay_backend: Annotated[
        str | None, setting("replay_backend", "What records", REPLAY, "tape is a slow stand-in on a CPU.")
    ] = None,
    capture_network: Annotated[bool | None, replayed("capture_network")] = None,
    capture_segment_heads: Annotated[bool | None, replayed("capture_segment_heads")] = None,
    capture_loss: Annotated[bool | None, replayed("capture_loss")] = None,
    capture_orthogonalization: Annotated[bool | None, replayed("capture_orthogonalization")] = None,
    capture_updates: Annotated[bool | None, replayed("capture_updates")] = None,
    capture_gradient_norm: Annotated[bool | None, replayed("capture_gradient_norm")] = None,
    capture_step: Annotated[bool | None, replayed("capture_step")] = None,
    compile_step: Annotated[bool | None, replayed("compile_step")] = None,
    fused_assignment: Annotated[
        bool | None,
        setting(
            "fused_assignment",
            "Assign labels by Triton kernels on an NVIDIA device; pays for oriented boxes. Compiling them can "
            "outweigh the gain of a short run.",
            SAME,
        ),
    ] = None,
    device_hsv: Annotated[
        bool | None,
        setting(
            "device_hsv",
            "Colour on the training device. Costs its time where the device is the bottleneck.",
            SAME,
        ),
    ] = None,
    fused_hsv: Annotated[
        bool | None,
        setting(
            "fused_hsv",
            "Colour on the CPU in one compiled pass; needs Numba, which takes a second to compile it once.",
            SAME,
        ),
    ] = None,
    epoch_prefetch: Annotated[
        bool | None,
        setting(
            "epoch_prefetch",
            "Workers begin the next epoch during validation. Queued batches stay in memory.",
            SAME,
        ),
    ] = None,
    cache_train_images: Annotated[
        bool | None,
        setting("cache_train_images", "Keep decoded training images in memory: 3 bytes a pixel.", SAME),
    ] = None,
    cache_prepared_train_images: Annotated[
        bool | None,
        setting(
            "cache_prepared_train_images",
            "Keep training images fitted to the canvas in memory; no gain for one epoch.",
            SAME,
        ),
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
    overrides = given(locals() | {"fingerprint": fingerprint or None})
    asked = dict(split_setting(one) for one in settings or ())
    base = recipe or (task if task in recipes() else "detect")
    if resume is not None and recipe is None:
        base = str(find_run(output, resume)[0] / "config.yaml")
    with naming_options(overrides.keys() - asked.keys()):
        config = load_config(base, overrides, settings=asked)
        # under torchrun every process comes here, and one of them speaks
        result = run_fit(config, resume=resume, quiet=quiet or not is_main_process())
    if is_main_process():
        report(result, as_json)


fit.__doc__ = HELP


def run_fit(config: FitConfig, *, resume: str | None = None, quiet: bool = False) -> FitResult:
    """Train with progress on stderr and draw the run's plots; a picture that fails is one line of warning."""
    if config.data.path is None:
        raise ConfigError("no data: say where the images and labels are with --data DIR")
    check_data(config.data.path, key="data.path")
    if config.model.init is not None:
        check_checkpoint(config.model.init)
    with fit_progress(quiet) as observe:
        result = train(config, resume=resume, observer=warned_of_few(config, observe))
    if result.transfer and not quiet:
        err.print(result.transfer)
    for failure in sheets.draw_run(result.run) if is_main_process() else ():
        err.print(f"warning: {failure}", style="yellow", soft_wrap=True)
    return result


def warned_of_few(config: FitConfig, observe: Observer) -> Observer:
    """Return an observer that also warns, once, of a training set that is a single batch."""
    data = config.data
    by_heart = data.train_split is not None and data.train_split == data.val_split
    warned = by_heart or not is_main_process()

    def tell(progress: Progress) -> None:
        nonlocal warned
        if not warned and progress.phase == "train" and progress.steps < 2:
            err.print(
                "warning: one batch holds every training image, so learning may be unstable; give more images or a "
                "smaller --batch, or use --recipe overfit to see that a few can be learned by heart",
                style="yellow",
                soft_wrap=True,
            )
        warned = warned or progress.phase == "train"
        observe(progress)

    return tell


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
    if result.best_checkpoint is not None:
        out.print(f"best checkpoint {result.best_checkpoint}", soft_wrap=True)
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
