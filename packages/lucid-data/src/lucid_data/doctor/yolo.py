"""Findings about a YOLO tree."""

from __future__ import annotations

from collections import Counter
from pathlib import Path

from lucid_data.doctor.boxes import check_box
from lucid_data.doctor.findings import Findings
from lucid_data.doctor.pictures import Progress, examine_pictures
from lucid_data.formats.parsed import RowError
from lucid_data.formats.yolo import (
    DatasetFile,
    label_path,
    list_images,
    orphan_labels,
    read_dataset_file,
    row_kind,
)
from lucid_data.formats.yolo_rows import Row, RowKind, parse_row
from lucid_data.source import Source
from lucid_data.tasks import TaskNeeds


def check_yolo(
    sources: list[Source], needs: TaskNeeds, *, decode: bool, progress: Progress, found: Findings
) -> None:
    """Add findings about the dataset file, the pictures and the label files of every split."""
    try:
        data = read_dataset_file(sources[0].labels)
        kind = row_kind(needs, data)
    except ValueError as error:
        found.add("yolo-dataset-file", "error", sources[0].labels, "", str(error), "correct the dataset file")
        return
    if needs.keypoints and not data.flip_index and not data.keypoint_names:
        message = "neither flip_idx nor kpt_names says which points change places in a mirror"
        remedy = "add flip_idx; without it mirrored people keep left on the left of the picture"
        found.add("yolo-no-flip-index", "warning", data.path, "flip_idx", message, remedy)
    pictures: list[Path] = []
    for source in sources:
        try:
            pictures += list_images(data, source)
        except OSError as error:
            found.add("yolo-split", "error", data.path, source.split, str(error), "correct the split's entry")
    unique = list(dict.fromkeys(pictures))
    known = examine_pictures(unique, decode=decode, progress=progress, found=found)
    used: Counter[int] = Counter()
    unlabelled = []
    for picture in unique:
        labels = label_path(picture)
        if labels.is_file():
            _check_file(labels, known[picture].size, kind, data, used, found)
        else:
            unlabelled.append(picture)
    if unlabelled:
        message = f"pictures without a label file: {len(unlabelled)}, such as {unlabelled[0].name}"
        found.add(
            "yolo-no-label-file", "note", data.path, "", message, "nothing to do if they show no object"
        )
    for label, name in enumerate(data.names):
        if not used[label]:
            found.add(
                "yolo-class-unused",
                "note",
                data.path,
                f"class {label}",
                f"{name!r} has no object",
                "nothing to do",
            )
    for path in orphan_labels(unique):
        message = "a label file without a picture"
        found.add("yolo-orphan-label", "warning", path, "", message, "restore the picture or delete it")


def _check_file(
    file: Path,
    size: tuple[int, int] | None,
    kind: RowKind,
    data: DatasetFile,
    used: Counter[int],
    found: Findings,
) -> None:
    raw = file.read_bytes()
    if raw.startswith(b"\xef\xbb\xbf"):
        message = "the file begins with a byte-order mark"
        found.add(
            "yolo-bom", "note", file, "", message, "save it as UTF-8 without one; other tools may refuse it"
        )
    try:
        text = raw.decode("utf-8-sig")
    except UnicodeDecodeError as error:
        found.add("yolo-not-text", "error", file, "", f"not UTF-8 text: {error}", "export the file again")
        return
    first: dict[Row, int] = {}
    forms: Counter[bool] = Counter()
    for number, line in enumerate(text.splitlines(), 1):
        if not line.strip():
            continue
        where = f"line {number}"
        try:
            row = parse_row(line, kind, len(data.names), where)
        except RowError as error:
            found.add(f"yolo-{error.code}", "error", file, where, error.reason, error.remedy)
            continue
        used[row.label] += 1
        forms[len(row.values) == 4] += 1
        if "." in line.split()[0]:
            message = f"the class is written as {line.split()[0]}"
            found.add("yolo-float-class", "note", file, where, message, "write a whole number")
        if row in first:
            message = f"repeats line {first[row]}"
            found.add("yolo-row-repeated", "warning", file, where, message, "delete it; it is left out")
            continue
        first[row] = number
        if size is not None and (kind.name == "pose" or len(row.values) == 4):
            cx, cy, w, h = row.values[:4]
            height, width = size
            box = ((cx - w / 2) * width, (cy - h / 2) * height, (cx + w / 2) * width, (cy + h / 2) * height)
            check_box(box, size, "yolo", file, where, found)
        elif size is not None:
            x, y = [v * size[1] for v in row.values[::2]], [v * size[0] for v in row.values[1::2]]
            check_box((min(x), min(y), max(x), max(y)), size, "yolo", file, where, found)
    if kind.name == "detect" and forms[False]:
        message = f"{forms[False]} rows are outlines, {forms[True]} are boxes"
        found.add(
            "yolo-mixed-rows", "note", file, "", message, "nothing to do: outlines are read as their boxes"
        )
