"""``lucid report``: a run as one HTML file."""

import json
import math
import platform
import time
from importlib.metadata import version
from itertools import islice
from pathlib import Path
from typing import Annotated, Any

import typer

from lucid_app.checks import check_at_least, check_data, check_file_target, choose_device
from lucid_app.console import Quiet, counting, out, print_json
from lucid_app.judged import OVERLAP, Judged, judge
from lucid_app.options import DeviceOption
from lucid_app.sheets import mosaic_end
from lucid_data import CocoReport, confusion_matrix, error_split
from lucid_train import REPLAY_SWITCHES, DetectionDataModule, find_run, stored_config, task_row, write_text
from lucid_viz import (
    RenderOptions,
    ReportFigure,
    ReportSection,
    ReportTable,
    comparison_sheet,
    nothing_above,
    plot_confusion,
    plot_curves,
    plot_precision_recall,
    read_metrics,
    skeleton_of,
)
from lucid_viz import report as render

READABLE = {
    "map": "AP50-95",
    **{f"map_{overlap}": f"AP{overlap}" for overlap in (50, 75)},
    **{f"map_{size}": f"AP50-95 of {size} objects" for size in ("small", "medium", "large")},
    **{f"mar_{most}": f"recall, at most {most} per image" for most in (1, 10, 20, 100, 300)},
    **{f"mar_{size}": f"recall of {size} objects" for size in ("small", "medium", "large")},
}
NAMED = {"bbox": "boxes", "segm": "masks", "keypoints": "keypoints", "rotated": "oriented boxes"}
SHOWN = 3
CONFIDENCE, CONFUSED = 0.25, 0.45
HIT, BACKGROUND = 0.5, 0.1


def report(
    run: Annotated[Path, typer.Argument(help="Folder of a run.")],
    output: Annotated[
        Path | None, typer.Option(help="HTML file; report.html in the run when absent.")
    ] = None,
    limit: Annotated[int, typer.Option(help="Judge this many validation images; 0 for all.")] = 500,
    device: DeviceOption = "auto",
    data: Annotated[
        Path | None, typer.Option(help="Where the data lie now; as in the run when absent.")
    ] = None,
    as_json: Annotated[bool, typer.Option("--json", help="Print the file and the scores as JSON.")] = False,
    quiet: Quiet = False,
) -> None:
    """Write a run as one HTML file: settings, curves, scores, confusions, errors, best and worst images.

    The best checkpoint (the last one where there is no best) is run on the validation images. The file loads nothing
    from elsewhere.

    Examples:
        lucid report runs/detect-n-1

        lucid report runs/detect-n-1 --output report.html --limit 0
    """
    check_at_least("--limit", limit, 0)
    check_file_target("--output", output)
    device = choose_device(device)
    config = stored_config(run)
    if data is not None:
        check_data(data, "--data")
        config = config.updated(data={"path": data})
    started = time.perf_counter()
    checkpoint = _checkpoint(run)
    catalog = DetectionDataModule(config).val_catalog
    if limit:
        catalog = catalog.subset(range(min(limit, len(catalog))))
    with counting("judging", quiet=quiet or as_json) as observe:
        judged = judge(checkpoint, catalog, device, observe)
    sections = [
        _scores(judged),
        _curves(run, mosaic_end(config)),
        *_quality(judged),
        *_images(judged),
        _epochs(run),
        *_replay(run),
        _settings(config.model_dump(mode="json")),
        _environment(device, checkpoint, time.perf_counter() - started),
    ]
    file = output or run / "report.html"
    images = f"{len(catalog)} validation images of {catalog.root.name} (split {catalog.split})"
    subtitle = f"{config.model.task}, size {config.model.size}, {images}"
    write_text(file, render(run.resolve().name, sections, subtitle=subtitle))
    if as_json:
        scores = {kind: found.numbers for kind, found in judged.reports.items()}
        print_json({"file": str(file), "images": len(catalog), "scores": scores})
    else:
        out.print(str(file), soft_wrap=True)


def _checkpoint(run: Path) -> Path:
    _, last = find_run(run, "last")
    best = run / "checkpoints" / "best.ckpt"
    if best.is_file():
        return best
    if last is None:
        raise FileNotFoundError(f"{run}: no checkpoint yet; let the run finish an epoch")
    return last


def _scores(judged: Judged) -> ReportSection:
    prefixes = task_row(judged.catalog.task).scores
    numbers = tuple(
        (prefixes[kind].replace("_", " ") + READABLE.get(name, name), float(value))
        for kind, found in judged.reports.items()
        for name, value in found.numbers.items()
    )
    tables = [ReportTable(("number", "value"), numbers)]
    for kind, found in judged.reports.items():
        rows = tuple(
            (name, float(one["map"]), float(one["map_50"]), int(one["ground_truths"]))
            for name, one in found.to_dict()["per_class"].items()
        )
        tables.append(ReportTable(("class", "AP50-95", "AP50", "objects"), rows, f"{NAMED[kind]} by class"))
    return ReportSection(
        "Scores", "End-to-end predictions; -1 where there is nothing to score.", tables=tuple(tables)
    )


def _curves(run: Path, mosaic: int | None) -> ReportSection:
    figure = ReportFigure(plot_curves(run, mark_epoch=mosaic), "Scores and losses by epoch")
    return ReportSection("Curves", figures=(figure,))


def _quality(judged: Judged) -> list[ReportSection]:
    curves = tuple(
        ReportFigure(plot_precision_recall(found.curves), f"Precision against recall ({NAMED[kind]})")
        for kind, found in judged.reports.items()
        if isinstance(found, CocoReport)
    )
    sections = [ReportSection("Precision and recall", figures=curves)] if curves else []
    pairs = judged.pairs()
    matrix = confusion_matrix(
        *pairs, judged.catalog.class_names, iou_threshold=CONFUSED, confidence=CONFIDENCE
    )
    words = f"Confusions of boxes that score above {CONFIDENCE} and overlap by more than {CONFUSED}"
    figure = ReportFigure(plot_confusion(matrix), words)
    split = error_split(*pairs, judged.catalog.class_names, hit=HIT, background=BACKGROUND)
    rows = tuple((kind, split.counts[kind], 100 * split.gains[kind]) for kind in split.counts)
    table = ReportTable(
        ("error", "count", "gain, points"),
        rows,
        f"What mending a kind of error adds to the AP50 of boxes, {split.map_50:.4f}; of every "
        f"detection, low scores too, with hits from overlap {HIT} and background below {BACKGROUND}",
    )
    return [*sections, ReportSection("Confusions and errors", tables=(table,), figures=(figure,))]


def _images(judged: Judged) -> list[ReportSection]:
    quality = judged.quality(CONFIDENCE)
    how = f"by F1 of boxes that score above {CONFIDENCE} and overlap by more than {OVERLAP}"
    if quality and not any(quality.values()):
        highest = max(one.highest_score or 0.0 for one in judged.predictions)
        said = (
            nothing_above(CONFIDENCE, highest)
            if highest <= CONFIDENCE
            else f"nothing that scores above {CONFIDENCE} overlaps an object of its class by more than {OVERLAP}"
        )
        return [ReportSection("Best and worst images", f"No image is better than another: {said}.")]
    best = dict(islice(((index, f1) for index, f1 in quality.items() if f1), SHOWN))
    worst = dict([pair for pair in reversed(quality.items()) if pair[0] not in best][:SHOWN])
    return [
        ReportSection(
            title, f"Labels left, predictions right; {how}.", figures=(_sheet(judged, chosen, title),)
        )
        for title, chosen in (("Best images", best), ("Worst images", worst))
        if chosen
    ]


def _sheet(judged: Judged, chosen: dict[int, float], title: str) -> ReportFigure:
    images, targets = zip(*(judged.catalog.sample(index)[:2] for index in chosen), strict=True)
    found = [judged.predictions[index] for index in chosen]
    names = ", ".join(f"{judged.catalog.file_names[index]} ({f1:.2f})" for index, f1 in chosen.items())
    options = RenderOptions(confidence=CONFIDENCE, skeleton=skeleton_of(judged.catalog))
    figure = comparison_sheet(images, found, targets, options)
    return ReportFigure(figure, f"{title}: {names}")


def _epochs(run: Path) -> ReportSection:
    columns = read_metrics(run)
    shown = [name for name in columns if name in ("epoch", "lr", "train/loss", "val/loss") or "mAP" in name]
    rows = tuple(zip(*(_column(name, columns[name]) for name in shown), strict=True))
    return ReportSection("Epochs", tables=(ReportTable(tuple(shown), rows),))


def _column(name: str, values: list[float]) -> list[float | int | None]:
    # epochs are counted from 1 wherever people read them, from 0 in the table of the run
    if name == "epoch":
        return [int(value) + 1 for value in values]
    return [None if math.isnan(value) else value for value in values]


def _replay(run: Path) -> list[ReportSection]:
    """Return the table of what replayed; nothing for a run that recorded nothing."""
    file = run / "replay.json"
    options = json.loads(file.read_text(encoding="utf-8"))["options"] if file.is_file() else {}
    rows = tuple(
        (
            option,
            region["name"],
            region["state"],
            region["recorded"],
            region["replayed"],
            ", ".join(f"{count} {reason}" for reason, count in region["native"].items()),
        )
        for option, regions in options.items()
        for region in regions
    )
    header = ("option", "region", "state", "recorded", "replayed", "native, by reason")
    close = [option for option in options if option in REPLAY_SWITCHES and REPLAY_SWITCHES[option].bounded]
    learned = f"{', '.join(close)} learned what is close" if close else "bytes learned are the same"
    text = f"How often recordings were launched in place of native calls; {learned}."
    return [ReportSection("Replay", text, tables=(ReportTable(header, rows),))] if rows else []


def _settings(document: dict[str, Any]) -> ReportSection:
    rows = tuple(
        (f"{section}.{key}", "" if value is None else str(value))
        for section, values in document.items()
        for key, value in values.items()
    )
    return ReportSection("Settings", tables=(ReportTable(("setting", "value"), rows),))


def _environment(device: str, checkpoint: Path, seconds: float) -> ReportSection:
    packages = ("lucid-app", "torch", "torchvision", "pycocotools", "matplotlib")
    rows = (
        ("checkpoint", checkpoint.name),
        ("device of this report", device),
        ("seconds it took", f"{seconds:.0f}"),
        ("Python", platform.python_version()),
        ("machine", f"{platform.system()} {platform.machine()}"),
        *((name, version(name)) for name in packages),
    )
    return ReportSection("Environment", tables=(ReportTable(("what", "value"), rows),))
