"""The doctor: every problem of a data set, with its place and its remedy."""

from __future__ import annotations

from collections import defaultdict
from pathlib import Path
from typing import get_args

from lucid_data.catalog import open_catalog
from lucid_data.doctor.coco import check_coco, check_unlisted
from lucid_data.doctor.dota import check_dota
from lucid_data.doctor.findings import Finding, Findings
from lucid_data.doctor.pictures import Progress, examine_pictures
from lucid_data.doctor.voc import check_voc
from lucid_data.doctor.yolo import check_yolo
from lucid_data.images import IMAGE_SUFFIXES
from lucid_data.layout import available_splits, coco_files, coco_folders, fitting_sources
from lucid_data.source import Layout, Source
from lucid_data.tasks import TASK_NEEDS, as_task
from lucid_data.whole import Observer, nothing


def check(
    path: str | Path,
    task: str = "detect",
    *,
    layout: Layout | None = None,
    decode: bool = True,
    dota_version: str | None = None,
    observer: Observer = nothing,
) -> list[Finding]:
    """Return every problem of the data set at ``path``, errors first; nothing is changed.

    Args:
        path: a COCO, YOLO, Pascal VOC or DOTA tree, a COCO JSON or a YOLO dataset file.
        task: what the labels are for; the row kind of YOLO files depends on it.
        layout: ``coco``, ``yolo``, ``voc`` or ``dota``; None checks every format that fits.
        decode: read every picture's pixels, not only its header; finds cut-off files, takes longer.
        dota_version: the class list that DOTA labels must keep to; None takes the list that fits.
        observer: is told (pictures examined, pictures known so far); each split makes more known.

    A path that is not recognised is one finding of its own; FileNotFoundError when it does not exist.

    >>> [finding for finding in check("scenes") if finding.severity != "note"]
    []
    >>> check("scenes", "pose")[0].severity
    'error'
    """
    needs = TASK_NEEDS[as_task(task)]
    found = Findings()
    progress = Progress(observer)
    root = Path(path)
    sources: list[Source] = []
    problems: list[str] = []
    try:
        splits = available_splits(root, task, layout=layout) or ("train",)
    except ValueError as error:
        found.add("yolo-dataset-file", "error", root, "", str(error), "correct the dataset file")
        return found.all()
    for split in splits:
        try:
            sources += fitting_sources(
                root, split, layout=layout, keypoints=needs.keypoints, rboxes=needs.rboxes
            )
        except (FileNotFoundError, ValueError) as error:
            problems.append(str(error))
    if not sources:
        loose = [Source("coco", "all", root, coco_folders(file, "all"), file) for file in coco_files(root)]
        if loose:
            names = ", ".join(source.labels.name for source in loose)
            message = f"{len(loose)} annotation files, none named for a split: {names}"
            found.add("layout", "warning", root, "", message, "give the path of the one that is meant")
            sources = loose
        else:
            pictures = [p for p in sorted(root.rglob("*")) if p.suffix.lower() in IMAGE_SUFFIXES]
            examine_pictures(pictures, decode=decode, progress=progress, found=found)
            remedy = "lay it out as one of COCO, YOLO, Pascal VOC or DOTA, or say --layout (layout=)"
            found.add("layout", "error", root, "", problems[0], remedy)
            return found.all()
    _check_layouts(root, sources, found)
    kinds = {kind: [source for source in sources if source.layout == kind] for kind in get_args(Layout)}
    listed: set[Path] = set()
    for source in kinds["coco"]:
        listed |= check_coco(
            source.labels, source.images, needs, decode=decode, progress=progress, found=found
        )
    check_unlisted([folder for source in kinds["coco"] for folder in source.images], listed, found)
    if kinds["yolo"]:
        check_yolo(kinds["yolo"], needs, decode=decode, progress=progress, found=found)
    # a plain folder of XML beside per-split COCO files repeats them
    if kinds["voc"] and not kinds["coco"]:
        check_voc(kinds["voc"], decode=decode, progress=progress, found=found)
    if kinds["dota"]:
        # what a COCO file beside them lists has been decoded already
        unseen = decode and not kinds["coco"]
        check_dota(kinds["dota"], dota_version, decode=unseen, progress=progress, found=found)
    if not any(finding.severity == "error" for finding in found.all()):
        _check_opening(path, sources, task, dota_version, found)
    return found.all()


def _check_layouts(root: Path, sources: list[Source], found: Findings) -> None:
    """Add that a folder fits several formats: what opens it is told which, or takes the one that has its split."""
    splits: defaultdict[str, list[str]] = defaultdict(list)
    for source in sources:
        splits[source.layout].append(source.split)
    if len(splits) > 1:
        fits = " and ".join(f"{layout} ({', '.join(names)})" for layout, names in splits.items())
        remedy = "say --layout (layout=), or part the folders; a split of one of them alone is opened as that"
        found.add("layout-ambiguous", "warning", root, "", f"the folder fits {fits}", remedy)


def _check_opening(
    path: str | Path, sources: list[Source], task: str, dota_version: str | None, found: Findings
) -> None:
    """Add what keeps a split from being opened for the task, where nothing said so already."""
    for source in sources:
        try:
            place = source.labels if source.labels.suffix == ".json" else path
            open_catalog(place, source.split, task, layout=source.layout, dota_version=dota_version)
        except (OSError, ValueError) as error:
            remedy = "correct the labels, or choose a task they are made for"
            found.add("cannot-open", "error", source.labels, source.split, str(error), remedy)
