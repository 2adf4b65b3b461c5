"""From predictions on the original images to scored results, over all processes of a run."""

from collections import defaultdict
from collections.abc import Callable, Iterable, Mapping
from typing import Any

import torch

from lucid_data import Catalog, CocoReport, RotatedReport, score_coco, score_rotated
from lucid_models import Predictions
from lucid_train.tasks import task_row

Rows = list[dict[str, Any]]


class ResultCollector:
    """Collects the predictions of a catalog's images and scores them by the task's protocols."""

    def __init__(self, catalog: Catalog) -> None:
        self.catalog = catalog
        # results carry the source's own ids, which may be text
        self._ids: list[Any] = list(catalog.image_ids)
        self.scores = task_row(catalog.task).scores
        self.results: Rows = []
        self.images: set[int] = set()

    def add(self, predictions: Iterable[Predictions], indices: Iterable[int]) -> None:
        """Take in one batch: predictions on the original images, and those images' catalog positions.

        An image that comes twice counts once. Masks are kept as run lengths.
        """
        for found, index in zip(predictions, indices, strict=True):
            if index in self.images:
                continue
            self.images.add(index)
            self.results += found.to_coco(self._ids[index], self.catalog.category_ids)
            if found.rboxes is not None:
                rows = self.results[len(self.results) - len(found) :]
                for row, rbox, label in zip(rows, found.rboxes.tolist(), found.labels.tolist(), strict=True):
                    row |= {"rbox": rbox, "label": label}

    def score(self) -> dict[str, Any]:
        """Return the report over the results of all processes; -1 where a number is undefined.

        Numbers of the task's second protocol carry its prefix, such as ``segm_map``.
        """
        return {
            self.scores[kind] + name: value
            for kind, report in self.reports().items()
            for name, value in report.to_dict().items()
        }

    def reports(self) -> dict[str, CocoReport | RotatedReport]:
        """Return the scorers' own reports by kind, curves and all, over the results of all processes."""
        gathered = gather_lists(self.results)
        return {kind: _SCORERS[kind](self.catalog, gathered) for kind in self.scores}


def _coco(kind: str) -> Callable[[Catalog, Rows], CocoReport]:
    return lambda catalog, rows: score_coco(catalog.to_coco(), rows, kind=kind)


def _rotated(catalog: Catalog, rows: Rows) -> RotatedReport:
    by_image: defaultdict[Any, Rows] = defaultdict(list)
    for row in rows:
        by_image[row["image_id"]].append(row)
    predictions = []
    for image_id in catalog.image_ids:
        mine = by_image[image_id]
        boxes = torch.tensor([row["rbox"] for row in mine], dtype=torch.float32).view(-1, 5)
        scores = torch.tensor([row["score"] for row in mine], dtype=torch.float32)
        predictions.append((boxes, scores, torch.tensor([row["label"] for row in mine], dtype=torch.int64)))
    truths = [catalog.targets(index) for index in range(len(catalog))]
    return score_rotated(predictions, truths, catalog.class_names)


_SCORERS: Mapping[str, Callable[[Catalog, Rows], CocoReport | RotatedReport]] = {
    "bbox": _coco("bbox"),
    "segm": _coco("segm"),
    "keypoints": _coco("keypoints"),
    "rotated": _rotated,
}


def gather_lists(rows: Rows) -> Rows:
    """Return the rows of every process, in rank order; the rows themselves outside distributed runs."""
    if not (torch.distributed.is_available() and torch.distributed.is_initialized()):
        return rows
    shards: list[Rows] = [[] for _ in range(torch.distributed.get_world_size())]
    torch.distributed.all_gather_object(shards, rows)
    seen: set[Any] = set()
    merged: Rows = []
    for shard in shards:
        fresh = {row["image_id"] for row in shard} - seen
        merged += [row for row in shard if row["image_id"] in fresh]
        seen |= fresh
    return merged
