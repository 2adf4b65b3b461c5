"""``lucid score``: score anyone's results."""

import time
from dataclasses import asdict
from importlib.metadata import version
from pathlib import Path
from typing import Annotated, Any

import typer

from lucid_app.checks import check_at_least, check_data, check_file, check_file_target
from lucid_app.console import Quiet, err, figure, out, print_json, waiting
from lucid_app.options import DotaVersionOption, LayoutOption, as_layout, choice
from lucid_app.scoring import EngineOption, SplitOption
from lucid_data import (
    CocoPairs,
    CocoReport,
    DotaReport,
    coco_pairs,
    confusion_matrix,
    error_split,
    open_catalog,
    score_coco,
    score_dota,
)
from lucid_train import ConfigError, default_split, write_json
from lucid_viz import plot_confusion, plot_precision_recall, save_figure

KINDS = ("bbox", "segm", "keypoints", "dota")
_TASKS = {"segm": "segment", "keypoints": "pose"}


def score(
    ground_truth: Annotated[
        Path,
        typer.Argument(help="COCO ground truth, or a folder of images and labels; of label files for dota."),
    ],
    results: Annotated[
        Path, typer.Argument(help="COCO result list, or a folder of Task1_<class>.txt files.")
    ],
    kind: Annotated[str, choice("What is scored", KINDS)] = "bbox",
    split: SplitOption = None,
    layout: LayoutOption = None,
    max_detections: Annotated[
        int | None, typer.Option(help="Detections per image and class that count.")
    ] = None,
    class_agnostic: Annotated[
        bool, typer.Option("--class-agnostic", help="Score all classes as one.")
    ] = False,
    exact_recall: Annotated[
        bool, typer.Option("--exact-recall", help="Recall grid without rounding; published numbers have it.")
    ] = False,
    engine: EngineOption = "pycocotools",
    dota_version: DotaVersionOption = None,
    errors: Annotated[
        bool, typer.Option("--errors", help="Split the loss of box AP by kind of error.")
    ] = False,
    plot: Annotated[
        Path | None,
        typer.Option(help="Draw precision against recall here, and for boxes confusions beside it."),
    ] = None,
    output: Annotated[Path | None, typer.Option(help="Write the report to this JSON file.")] = None,
    as_json: Annotated[bool, typer.Option("--json", help="Print the report as JSON.")] = False,
    quiet: Quiet = False,
) -> None:
    """Score any tool's COCO results or DOTA Task 1 files.

    Box, mask and keypoint numbers are pycocotools' own; dota follows the development kit (VOC 2007 and area AP).

    Examples:
        lucid score instances_val.json results.json

        lucid score instances_val.json results.json --kind segm --plot curves.png --output report.json

        lucid score DOTA/val/labelTxt Task1_results --kind dota
    """
    if kind == "dota":
        only = {
            "--class-agnostic": class_agnostic,
            "--exact-recall": exact_recall,
            "--plot": plot is not None,
            "--split": split is not None,
        }
        refused = [
            name for name, given in {**only, "--max-detections": max_detections is not None}.items() if given
        ]
        if refused:
            raise ConfigError(f"{refused[0]}: not for --kind dota")
    if errors and kind != "bbox":
        raise ConfigError(f"--errors: for --kind bbox only, not {kind}")
    check_file_target("--output", output)
    check_file_target("--plot", plot)
    caps = _caps(kind, max_detections)
    _check_given(ground_truth, results, kind)
    started = time.perf_counter()
    chosen = None if kind == "dota" else _split(ground_truth, kind, split, layout)
    document: dict[str, Any] = {
        "info": {
            "kind": kind,
            "ground_truth": str(ground_truth),
            "split": chosen,
            "results": str(results),
            "eval_backend": "dota" if kind == "dota" else engine,
            "versions": {"lucid": version("lucid-app"), "pycocotools": version("pycocotools")},
        }
    }
    report: CocoReport | DotaReport
    with waiting("scoring", quiet=quiet or as_json):
        if kind == "dota":
            report = score_dota(ground_truth, results, version=dota_version)
            rows = _dota_rows(report)
        else:
            truth = _opened(ground_truth, kind, chosen, layout)
            report = score_coco(
                truth,
                results,
                kind,
                max_detections=caps,
                class_agnostic=class_agnostic,
                exact_recall=exact_recall,
                engine=engine,
            )
            rows = _coco_rows(report)
            pairs = coco_pairs(truth, results) if errors or (plot is not None and kind == "bbox") else None
            if errors and pairs is not None:
                document["errors"] = asdict(error_split(pairs.predictions, pairs.truths, pairs.class_names))
            if plot is not None:
                _draw(report, pairs, plot)
    document |= {
        "images": report["images"],
        "seconds": round(time.perf_counter() - started, 1),
        "report": {kind: report.to_dict()},
    }
    if output is not None:
        write_json(output, document)
    if as_json:
        print_json(document)
        return
    _print(report, rows, document.get("errors"))
    if output is not None:
        out.print(f"report {output}", soft_wrap=True)


def _check_given(ground_truth: Path, results: Path, kind: str) -> None:
    """Raise ConfigError where what is scored is not there, or a file where a folder is asked for."""
    if kind != "dota":
        check_data(ground_truth)
        check_file(results, f"result file {results} does not exist", "give a COCO result list")
        return
    for path, what in ((ground_truth, "label files"), (results, "Task1_<class>.txt files")):
        if not path.is_dir():
            raise ConfigError(f"{path}: no such folder; --kind dota takes a folder of {what}")


def _split(ground_truth: Path, kind: str, split: str | None, layout: str | None) -> str | None:
    """Return the split of a folder of images and labels that is scored; a file has none."""
    if ground_truth.is_dir():
        return split or default_split(ground_truth, _TASKS.get(kind, "detect"), as_layout(layout))
    if split is not None:
        raise ConfigError(f"--split {split}: {ground_truth} is one split already; leave the option out")
    return None


def _opened(ground_truth: Path, kind: str, split: str | None, layout: str | None) -> Any:
    """Return a file as it is, and a split of a folder of images and labels as a COCO document."""
    if split is None:
        return ground_truth
    return open_catalog(ground_truth, split, _TASKS.get(kind, "detect"), layout=as_layout(layout)).to_coco()


def _caps(kind: str, most: int | None) -> tuple[int, ...] | None:
    if most is None:
        return None
    check_at_least("--max-detections", most, 1)
    return (most,) if kind == "keypoints" else tuple(sorted({1, min(10, most), most}))


def _draw(report: CocoReport, pairs: CocoPairs | None, plot: Path) -> None:
    save_figure(plot_precision_recall(report.curves), plot)
    if pairs is not None and report.kind == "bbox":
        matrix = confusion_matrix(pairs.predictions, pairs.truths, pairs.class_names)
        save_figure(plot_confusion(matrix), plot.with_name(f"{plot.stem}-confusion{plot.suffix}"))


def _coco_rows(report: CocoReport) -> dict[str, str]:
    return {
        name: f"AP {figure(row.map)}  AP50 {figure(row.map_50)}  F1 {row.best_f1:.4f} at {row.best_confidence:.3f}"
        for name, row in report.per_class.items()
    }


def _dota_rows(report: DotaReport) -> dict[str, str]:
    return {
        name: f"voc07 {row.voc07_50:.4f}  voc12 {row.voc12_50:.4f}  objects {row.ground_truths}"
        for name, row in report.per_class.items()
    }


def _print(report: CocoReport | DotaReport, rows: dict[str, str], errors: Any) -> None:
    found = report.detections if isinstance(report, DotaReport) else report.predictions
    out.print(f"{report.images} images, {report.ground_truths} objects, {found} predictions")
    for name, value in report.numbers.items():
        out.print(f"{name:16s} {figure(value)}")
    for name, figures in rows.items():
        out.print(f"  {name:20s} {figures}", soft_wrap=True)
    if errors is not None:
        # pairs are made anew here, without crowds and limits per image, so the last digits may differ from map_50
        out.print(f"where AP50 is lost ({errors['map_50']:.4f} when every detection counts):")
        for name, count in errors["counts"].items():
            out.print(f"  {name:12s} {count:6d}  mending gains {100 * errors['gains'][name]:.2f} points")
    if report.dropped:
        err.print(
            f"{report.dropped} results left out: not finite, or of an image not asked for", style="yellow"
        )
