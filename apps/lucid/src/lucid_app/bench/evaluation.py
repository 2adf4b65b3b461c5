"""``lucid bench eval``: scoring by the COCO protocol, beside the engines called directly."""

import io
from collections.abc import Callable
from contextlib import redirect_stdout
from importlib import import_module
from importlib.util import find_spec
from typing import Annotated, Any

import typer

from lucid_app.bench.made import CLASSES, scored_scenes
from lucid_app.bench.options import JsonOption, OutputOption, QuickOption, RoundsOption, prepare
from lucid_app.bench.record import Record, command_line, finish, machine, today
from lucid_app.bench.turns import medians
from lucid_app.checks import check_at_least
from lucid_data import score_coco

REFERENCE, FAST = "pycocotools", "faster-coco-eval"
OURS = {"lucid, engine pycocotools": REFERENCE, "lucid, engine faster": FAST}
"""Our scorers, and the engine that each calls."""
NUMBERS = (
    *("map", "map_50", "map_75", "map_small", "map_medium", "map_large"),
    *("mar_1", "mar_10", "mar_100", "mar_small", "mar_medium", "mar_large"),
)


def evaluation(
    context: typer.Context,
    images: Annotated[int, typer.Option(help="Images, generated.")] = 5000,
    detections: Annotated[int, typer.Option(help="Detections per image.")] = 100,
    rounds: RoundsOption = 1,
    quick: QuickOption = False,
    as_json: JsonOption = False,
    output: OutputOption = None,
) -> None:
    """Measure COCO scoring of generated detections of 80 classes, beside pycocotools and faster-coco-eval.

    The reference is pycocotools called directly. All twelve numbers of the protocol must be equal to the last bit for
    the same engine, and within 1e-12 between engines; exit status 1 where they are not. It always runs on the CPU.

    Examples:
        lucid bench eval

        lucid bench eval --images 500
    """
    check_at_least("--images", images, 1)
    check_at_least("--detections", detections, 1)
    prepare("cpu", None, output, rounds)
    if quick:
        images, detections = min(images, 8), min(detections, 20)
    truth, results = scored_scenes(images, detections)
    found: dict[str, list[float]] = {}
    calls = scorers(truth, results, found)
    taken = medians(calls, rounds, warm=0)
    apart = {
        name: max(abs(a - b) for a, b in zip(found[REFERENCE], numbers, strict=True))
        for name, numbers in found.items()
    }
    title = f"Scoring {images:,} images x {detections} detections x {CLASSES} classes, boxes"
    tables = {
        title: [
            {
                "scorer": name,
                "s": round(ms / 1e3, 2),
                "of pycocotools": round(ms / taken[REFERENCE], 3),
                "AP": round(found[name][0], 6),
                "largest difference in 12 numbers": f"{apart[name]:.1e}",
            }
            for name, ms in taken.items()
        ]
    }
    notes = [] if find_spec("faster_coco_eval") else ["faster-coco-eval is not installed: left out"]
    libraries = ("pycocotools", FAST)
    record = Record("eval", command_line(context), machine("cpu", libraries), tables, tuple(notes), today())
    finish(record, as_json, output)
    if wrong := [name for name, distance in apart.items() if not distance <= 1e-12]:
        raise ValueError(f"{', '.join(wrong)}: other numbers than {REFERENCE} on the same detections")
    if wrong := [name for name, engine in OURS.items() if name in found and found[name] != found[engine]]:
        raise ValueError(f"{', '.join(wrong)}: other numbers than the engine called directly")


def scorers(
    truth: dict[str, Any], results: list[dict[str, Any]], found: dict[str, list[float]]
) -> dict[str, Callable[[], object]]:
    """Return each scorer by name; a call leaves its twelve numbers in ``found``."""
    engines = {REFERENCE: ("pycocotools.coco", "pycocotools.cocoeval", "COCOeval")}
    lucid = {"lucid, engine pycocotools": "pycocotools"}
    if find_spec("faster_coco_eval"):
        engines[FAST] = ("faster_coco_eval", "faster_coco_eval", "COCOeval_faster")
        lucid["lucid, engine faster"] = "faster"
    calls: dict[str, Callable[[], object]] = {}
    for name, (index, scorer, kind) in engines.items():
        # imported here, so that no timed call imports anything
        parts = import_module(index).COCO, getattr(import_module(scorer), kind)
        calls[name] = lambda name=name, parts=parts: found.update({name: directly(truth, results, *parts)})  # type: ignore[misc]
    for name, engine in lucid.items():
        calls[name] = lambda name=name, engine=engine: found.update({name: by_lucid(truth, results, engine)})  # type: ignore[misc]
    return calls


def directly(
    truth: dict[str, Any], results: list[dict[str, Any]], index: type[Any], scorer: type[Any]
) -> list[float]:
    """Return the twelve numbers of an engine called as its own documentation calls it."""
    with redirect_stdout(io.StringIO()):
        coco = index()
        coco.dataset = truth
        coco.createIndex()
        evaluator = scorer(coco, coco.loadRes([dict(row) for row in results]), "bbox")
        evaluator.evaluate()
        evaluator.accumulate()
        evaluator.summarize()
    return [float(value) for value in evaluator.stats[:12]]


def by_lucid(truth: dict[str, Any], results: list[dict[str, Any]], engine: str) -> list[float]:
    """Return the twelve numbers of ``score_coco``."""
    report = score_coco(truth, results, engine=engine)
    return [float(report[name]) for name in NUMBERS]
