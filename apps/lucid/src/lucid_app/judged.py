"""A checkpoint's predictions on a split, judged: reports, pairs of boxes, and which images went well."""

from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

from torch import Tensor

from lucid_data import Catalog, CocoReport, ConfusionMatrix, RotatedReport, confusion_matrix
from lucid_models import Predictions, Predictor
from lucid_train import ResultCollector, task_row

OVERLAP = 0.5
"""More than this, and a box has found its object, where images are compared."""


@dataclass(eq=False)
class Judged:
    """Predictions per image of a catalog, and what they score.

    Attributes:
        catalog: the images.
        predictions: on the original images, in catalog order.
        reports: what the task's protocols say of them, by kind.
    """

    catalog: Catalog
    predictions: list[Predictions]
    reports: dict[str, CocoReport | RotatedReport]

    def pairs(self) -> tuple[list[tuple[Tensor, Tensor, Tensor]], list[tuple[Tensor, Tensor]]]:
        """Return predicted boxes, scores and labels, and true boxes and labels, image by image."""
        found = [(p.boxes.double(), p.scores.double(), p.labels) for p in self.predictions]
        targets = [self.catalog.targets(index) for index in range(len(self.catalog))]
        return found, [(t.boxes.double(), t.labels) for t in targets]

    def quality(self, confidence: float) -> dict[int, float]:
        """Return F1 by image, of those that have objects, best first, ties in catalog order.

        A box has found an object that it overlaps by more than 0.5.
        """
        names = self.catalog.class_names
        scored = {
            index: _f1(confusion_matrix([f], [t], names, iou_threshold=OVERLAP, confidence=confidence))
            for index, (f, t) in enumerate(zip(*self.pairs(), strict=True))
            if len(t[1])
        }
        return dict(sorted(scored.items(), key=lambda pair: -pair[1]))


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
    return Judged(catalog, predictions, collector.reports())


def _f1(matrix: ConfusionMatrix) -> float:
    counts = matrix.counts  # the last row and column are background
    return float(2 * counts.diagonal()[:-1].sum() / max(1, counts[:-1].sum() + counts[:, :-1].sum()))
