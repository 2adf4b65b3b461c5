"""A checkpoint's predictions on a split, judged: scores, curves, pairs of boxes, and which images went well."""

from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from lucid_data import Catalog, Curves, Targets, score_coco
from lucid_geometry import box_iou
from lucid_models import Predictions, Predictor
from lucid_train import ResultCollector, task_row

_OVERLAP = 0.5


@dataclass(eq=False)
class Judged:
    """Predictions per image of a catalog, and what they score.

    Attributes:
        catalog: the images.
        predictions: on the original images, in catalog order.
        numbers: the report of the task's protocols.
        curves: precision against recall by kind, for COCO's protocols.
    """

    catalog: Catalog
    predictions: list[Predictions]
    numbers: dict[str, Any]
    curves: dict[str, Curves] = field(default_factory=dict)

    def pairs(self) -> tuple[list[tuple[Tensor, Tensor, Tensor]], list[tuple[Tensor, Tensor]]]:
        """Return predicted boxes, scores and labels, and true boxes and labels, image by image."""
        found = [(p.boxes.double(), p.scores.double(), p.labels) for p in self.predictions]
        truths = [(t.boxes.double(), t.labels) for t in self._targets()]
        return found, truths

    def by_quality(self, confidence: float) -> list[int]:
        """Return the images that have objects, best first by F1 of boxes at overlap 0.5, ties in catalog order."""
        scored = [
            (_f1(found, targets, confidence), index)
            for index, (found, targets) in enumerate(zip(self.predictions, self._targets(), strict=True))
            if len(targets)
        ]
        return [index for _, index in sorted(scored, key=lambda pair: (-pair[0], pair[1]))]

    def _targets(self) -> list[Targets]:
        return [self.catalog.targets(index) for index in range(len(self.catalog))]


def judge(
    checkpoint: Path, catalog: Catalog, device: str, observe: Callable[[int, int], None], batch: int = 8
) -> Judged:
    """Return a checkpoint's judged predictions on every image of a catalog; ``observe`` hears images done and all."""
    row = task_row(catalog.task)
    predictor = Predictor(checkpoint, device=device, confidence=row.least_score, batch_size=batch)
    predictions: list[Predictions] = []
    for start in range(0, len(catalog), batch):
        indices = range(start, min(start + batch, len(catalog)))
        predictions += predictor([catalog.sample(index)[0] for index in indices])
        observe(len(predictions), len(catalog))
    collector = ResultCollector(catalog)
    collector.add(predictions, range(len(catalog)))
    truth, curves = catalog.to_coco(), {}
    for kind in row.scores:
        if kind != "rotated":
            curves[kind] = score_coco(truth, collector.results, kind).curves
    return Judged(catalog, predictions, collector.score(), curves)


def _f1(found: Predictions, targets: Targets, confidence: float) -> float:
    sure = found.scores > confidence
    boxes, labels = found.boxes[sure], found.labels[sure]
    overlap = box_iou(boxes, targets.boxes) * (labels[:, None] == targets.labels)
    free = torch.ones(len(targets), dtype=torch.bool)
    hits = 0
    for row in overlap:
        best = torch.where(free, row, -1.0)
        if len(best) and best.max() >= _OVERLAP:
            free[int(best.argmax())] = False
            hits += 1
    return 2 * hits / max(1, len(boxes) + len(targets))
