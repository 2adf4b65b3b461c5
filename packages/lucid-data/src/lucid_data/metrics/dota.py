"""DOTA's own protocol for oriented boxes on whole images, Task 1 (Xia et al., CVPR 2018), after PASCAL VOC.

Per class, detections go by falling score; the object of the image that overlaps one most, difficult ones included,
decides: a difficult object neither counts nor punishes, a free one makes a hit and is taken, a taken one or an overlap
that is not strictly above the threshold makes a false alarm.
"""

from __future__ import annotations

import math
from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

import numpy as np
import torch
from torch import Tensor

from lucid_data.formats.dota import DotaObject, read_dota_file
from lucid_data.formats.dota_classes import DOTA_CLASSES, class_list, label_of, spelled
from lucid_data.metrics.average_precision import average_precision_11, average_precision_area
from lucid_data.metrics.quad_iou import quad_iou
from lucid_data.whole import whole_folder

_THRESHOLDS: Final = (0.5, 0.75)


@dataclass(frozen=True)
class DotaClassScore:
    """One class at IoU 0.5 and 0.75: VOC 2007 and area average precision, the recall reached; -1 is undefined."""

    voc07_50: float
    voc12_50: float
    recall_50: float
    voc07_75: float
    voc12_75: float
    recall_75: float
    ground_truths: int
    difficult: int
    detections: int


@dataclass(frozen=True)
class DotaReport:
    """The DOTA numbers of one result folder; ``report["voc07_map_50"]`` reads one of them.

    Attributes:
        numbers: ``voc07_map_50`` (the published one), ``voc12_map_50``, ``voc07_map_75``, ``voc12_map_75``: means
            over the classes that have an object that is not difficult; -1 when none has.
        per_class: by class name.
        images, ground_truths, detections, dropped: what was scored; dropped lines are of images not asked for or not
            finite.
    """

    numbers: Mapping[str, float]
    per_class: Mapping[str, DotaClassScore]
    images: int
    ground_truths: int
    detections: int
    dropped: int

    def __getitem__(self, name: str) -> Any:
        return self.to_dict()[name]

    def keys(self) -> Iterable[str]:
        """Return the names that ``to_dict`` has."""
        return self.to_dict().keys()

    def to_dict(self) -> dict[str, Any]:
        """Return everything as plain values, ready for JSON."""
        return {
            **self.numbers,
            "per_class": {name: dict(score.__dict__) for name, score in self.per_class.items()},
            "images": self.images,
            "ground_truths": self.ground_truths,
            "detections": self.detections,
            "dropped": self.dropped,
            "kind": "dota",
        }


@dataclass(frozen=True)
class Task1Detections:
    """The detections of one class: image names, scores (D,) float64 and corners (D, 4, 2) float64."""

    images: tuple[str, ...]
    scores: Tensor
    quads: Tensor


def score_dota(
    labels: str | Path,
    results: str | Path | Mapping[str, Task1Detections],
    *,
    images: str | Path | Sequence[str] | None = None,
    version: str | None = None,
) -> DotaReport:
    """Return the DOTA scores of ``results`` against the label files in ``labels``.

    Args:
        labels: a folder of DOTA label files, or one that holds it as ``labelTxt``.
        results: a folder of ``Task1_<class>.txt`` files (``image score x1 y1 ... x4 y4``), or their contents.
        images: names of the images that count, or a file of them; default every label file.
        version: the class list; None chooses by the names found. Results for a class that is not in DOTA's list are
            refused; beside labels with names of their own they are a class without objects, which no mean counts.

    Raises FileNotFoundError for folders and files that are not there, ValueError with file and line.

    >>> from lucid_data import synthetic
    >>> truth = synthetic.write_dota("aerial", splits={"val": 1}, size=64)
    >>> score_dota(truth / "val", {}).numbers["voc07_map_50"]
    0.0
    """
    truth = _read_truth(_label_folder(Path(labels)), images)
    found = read_task1(results) if isinstance(results, str | Path) else dict(results)
    classes = class_list({item.name for items in truth.values() for item in items}, version)
    known = {spelled(name) for name in classes}
    strange = [name for name in found if spelled(name) not in known]
    if strange and classes in DOTA_CLASSES.values():
        raise ValueError(f"results for the class {strange[0]!r}, which is none of {', '.join(classes)}")
    # a list of its own is known by what the labels name, and these pictures may lack what others have
    classes = (*classes, *strange)
    by_class: dict[str, dict[str, list[DotaObject]]] = {name: defaultdict(list) for name in classes}
    for image, items in truth.items():
        for item in items:
            label = label_of(item.name, classes)
            if label is None:
                raise ValueError(f"{labels}: {image} has the class {item.name!r}, which the list lacks")
            by_class[classes[label]][image].append(item)
    spelling = {spelled(name): name for name in classes}
    results_of = {spelling[spelled(name)]: detections for name, detections in found.items()}
    per_class: dict[str, DotaClassScore] = {}
    dropped = 0
    for name in classes:
        per_class[name], left_out = _score_class(by_class[name], results_of.get(name), set(truth))
        dropped += left_out
    scored = [score for score in per_class.values() if score.ground_truths > score.difficult]
    numbers = {
        f"{rule}_map_{at}": float(np.mean([getattr(s, f"{rule}_{at}") for s in scored])) if scored else -1.0
        for at in (50, 75)
        for rule in ("voc07", "voc12")
    }
    objects = sum(len(items) for items in truth.values())
    return DotaReport(
        numbers, per_class, len(truth), objects, sum(s.detections for s in per_class.values()), dropped
    )


def _score_class(
    truth: Mapping[str, list[DotaObject]], found: Task1Detections | None, images: set[str]
) -> tuple[DotaClassScore, int]:
    difficult = {image: [item.difficulty != 0 for item in items] for image, items in truth.items()}
    total = sum(map(len, difficult.values()))
    hard = sum(map(sum, difficult.values()))
    if found is None:
        empty: dict[str, float] = {}
        for at in (50, 75):
            value = 0.0 if total > hard else -1.0
            empty |= {f"voc07_{at}": value, f"voc12_{at}": value, f"recall_{at}": value}
        return DotaClassScore(**empty, ground_truths=total, difficult=hard, detections=0), 0
    use = torch.isfinite(found.scores) & torch.isfinite(found.quads).flatten(1).all(1)
    use &= torch.tensor([image in images for image in found.images], dtype=torch.bool)
    rows = np.flatnonzero(use.numpy())
    # the development kit's own order, ties included
    order = rows[np.argsort(-found.scores.numpy()[rows])]
    names = [found.images[i] for i in order]
    best, which = _best_overlaps(truth, names, found.quads[torch.from_numpy(order)])
    numbers: dict[str, float] = {}
    for threshold in _THRESHOLDS:
        hits = _hits(names, best, which, difficult, threshold)
        at = round(100 * threshold)
        positives = total - hard
        numbers[f"voc07_{at}"] = average_precision_11(hits, positives)
        numbers[f"voc12_{at}"] = average_precision_area(hits, positives)
        numbers[f"recall_{at}"] = float(np.sum(hits)) / positives if positives else -1.0
    score = DotaClassScore(**numbers, ground_truths=total, difficult=hard, detections=len(order))
    return score, len(found.images) - len(order)


def _best_overlaps(
    truth: Mapping[str, list[DotaObject]], names: list[str], quads: Tensor
) -> tuple[list[float], list[int]]:
    """Return, per detection, the largest overlap with an object of its image and which object that is."""
    best, which = [0.0] * len(names), [-1] * len(names)
    rows: defaultdict[str, list[int]] = defaultdict(list)
    for at, name in enumerate(names):
        rows[name].append(at)
    for name, mine in rows.items():
        if truth.get(name):
            objects = torch.tensor([item.quad for item in truth[name]], dtype=torch.float64).view(-1, 4, 2)
            iou, index = quad_iou(objects, quads[mine]).max(0)
            for at, value, number in zip(mine, iou.tolist(), index.tolist(), strict=True):
                best[at], which[at] = value, number
    return best, which


def _hits(
    names: list[str],
    best: list[float],
    which: list[int],
    difficult: Mapping[str, list[bool]],
    threshold: float,
) -> list[bool]:
    """Return hit or false alarm for every detection that counts, in order."""
    taken: set[tuple[str, int]] = set()
    hits = []
    for name, iou, number in zip(names, best, which, strict=True):
        if not iou > threshold:
            hits.append(False)
        elif not difficult[name][number]:
            hits.append((name, number) not in taken)
            taken.add((name, number))
    return hits


def _label_folder(folder: Path) -> Path:
    place = folder / "labelTxt" if (folder / "labelTxt").is_dir() else folder
    if not place.is_dir():
        raise FileNotFoundError(f"label folder {place} does not exist")
    return place


def _read_truth(folder: Path, images: str | Path | Sequence[str] | None) -> dict[str, list[DotaObject]]:
    if images is None:
        names = [path.stem for path in sorted(folder.glob("*.txt"))]
    elif isinstance(images, str | Path):
        names = [Path(line.strip()).name for line in Path(images).read_text(encoding="utf-8-sig").split("\n")]
        names = [name for name in names if name]
    else:
        names = list(images)
    missing = [name for name in names if not (folder / f"{name}.txt").is_file()]
    if missing:
        raise FileNotFoundError(f"{folder} has no label file {missing[0]}.txt")
    if not names:
        raise FileNotFoundError(f"{folder} holds no label files")
    return {name: read_dota_file(folder / f"{name}.txt") for name in names}


def read_task1(folder: str | Path) -> dict[str, Task1Detections]:
    """Return the detections of every ``Task1_<class>.txt`` in ``folder``, by class as the file is named.

    Raises FileNotFoundError when there is none, ValueError with file and line for a line of another form.

    >>> quad = torch.tensor([[[1.0, 1], [9, 1], [9, 5], [1, 5]]])
    >>> _ = write_task1("written", {"P0001": (quad, torch.tensor([0.9]), torch.tensor([0]))}, ["plane"])
    >>> read_task1("written")["plane"].images
    ('P0001',)
    """
    files = sorted(Path(folder).glob("Task1_*.txt"))
    if not files:
        raise FileNotFoundError(f"{folder} has no Task1_<class>.txt files")
    return {path.stem.removeprefix("Task1_"): _read_task1_file(path) for path in files}


def _read_task1_file(path: Path) -> Task1Detections:
    names: list[str] = []
    values: list[list[float]] = []
    for number, line in enumerate(path.read_text(encoding="utf-8-sig").splitlines(), 1):
        fields = line.split()
        if not fields:
            continue
        try:
            row = [float(field) for field in fields[1:]]
        except ValueError:
            row = []
        if len(row) != 9:
            raise ValueError(f"{path}:{number}: a Task 1 line is: image score x1 y1 x2 y2 x3 y3 x4 y4")
        names.append(fields[0])
        values.append(row)
    table = torch.tensor(values, dtype=torch.float64).view(-1, 9)
    return Task1Detections(tuple(names), table[:, 0], table[:, 1:].reshape(-1, 4, 2))


def write_task1(
    folder: str | Path,
    predictions: Mapping[str, tuple[Tensor, Tensor, Tensor]],
    class_names: Sequence[str],
) -> list[Path]:
    """Write ``Task1_<class>.txt`` files, one per class, for submission or ``score_dota``, and return them.

    ``folder`` must be empty or absent and has all of the files or none. ``predictions``: by image name, corners
    (N, 4, 2), scores (N,), labels (N,). Raises ValueError for a number that is not finite and for an image name with
    a space, FileExistsError for a ``folder`` with content.

    >>> quad = torch.tensor([[[1.0, 1], [9, 1], [9, 5], [1, 5]]])
    >>> write_task1("results", {"P0001": (quad, torch.tensor([0.9]), torch.tensor([0]))}, ["plane"])[0].name
    'Task1_plane.txt'
    """
    lines: list[list[str]] = [[] for _ in class_names]
    for image, (quads, scores, labels) in predictions.items():
        if image.split() != [image]:
            raise ValueError(f"the image name {image!r}: a Task 1 line has spaces between its columns only")
        for quad, score, label in zip(
            quads.double().flatten(1).tolist(), scores.double().tolist(), labels.tolist(), strict=True
        ):
            if not all(map(math.isfinite, (score, *quad))):
                raise ValueError(f"a detection of {image} is not finite: {score}, {quad}")
            lines[label].append(" ".join([image, f"{score:.6f}", *(f"{v:.4f}" for v in quad)]))
    names = [f"Task1_{'-'.join(name.split())}.txt" for name in class_names]
    with whole_folder(folder) as part:
        for name, rows in zip(names, lines, strict=True):
            (part / name).write_text("".join(f"{row}\n" for row in rows), encoding="utf-8")
    return [Path(folder) / name for name in names]
