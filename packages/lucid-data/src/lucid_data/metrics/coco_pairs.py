"""COCO ground truth and results as tensors, image by image, for measures that look at pairs of boxes."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from lucid_data.metrics.coco_checks import checked_results, load_results
from lucid_data.metrics.coco_truth import checked_truth, class_name


@dataclass(frozen=True, eq=False)
class CocoPairs:
    """Predictions and objects of the same images.

    Attributes:
        predictions: per image boxes (N, 4) xyxy, scores (N,), labels (N,).
        truths: per image boxes (M, 4) xyxy, labels (M,); crowds are left out.
        class_names: in label order, which is that of the ids.
    """

    predictions: list[tuple[Tensor, Tensor, Tensor]]
    truths: list[tuple[Tensor, Tensor]]
    class_names: tuple[str, ...]


def coco_pairs(
    ground_truth: str | Path | Mapping[str, Any], results: str | Path | Sequence[Mapping[str, Any]]
) -> CocoPairs:
    """Return the boxes of a COCO document and of a result list, or of their files, image by image.

    They are what ``confusion_matrix`` and ``error_split`` take. Labels and results are read as ``score_coco`` reads
    them, with its errors.

    >>> truth = {"images": [{"id": 1}], "categories": [{"id": 5, "name": "a"}],
    ...          "annotations": [{"image_id": 1, "category_id": 5, "bbox": [1, 2, 3, 4]}]}
    >>> coco_pairs(truth, []).truths[0][0].tolist()
    [[1.0, 2.0, 4.0, 6.0]]
    """
    found = load_results(results) if isinstance(results, str | Path) else results
    document, known = checked_truth(ground_truth, "bbox")
    rows, _not_finite = checked_results(found, known, "bbox")
    categories = sorted(document["categories"], key=lambda category: int(category["id"]))
    label_of = {category["id"]: label for label, category in enumerate(categories)}
    objects = [a for a in document["annotations"] if not a["iscrowd"]]
    truths, predictions = _by_image(objects, label_of), _by_image(rows, label_of)
    images = [image["id"] for image in document["images"]]
    return CocoPairs(
        [predictions[image].tensors() for image in images],
        [truths[image].tensors()[::2] for image in images],
        tuple(map(class_name, categories)),
    )


class _Rows:
    def __init__(self) -> None:
        self.boxes: list[list[float]] = []
        self.scores: list[float] = []
        self.labels: list[int] = []

    def tensors(self) -> tuple[Tensor, Tensor, Tensor]:
        corners = torch.tensor(self.boxes, dtype=torch.float64).view(-1, 4)
        corners[:, 2:] += corners[:, :2]
        return (
            corners,
            torch.tensor(self.scores, dtype=torch.float64),
            torch.tensor(self.labels, dtype=torch.int64),
        )


def _by_image(rows: Sequence[Mapping[str, Any]], label_of: Mapping[int, int]) -> defaultdict[int, _Rows]:
    out: defaultdict[int, _Rows] = defaultdict(_Rows)
    for row in rows:
        mine = out[row["image_id"]]
        mine.boxes.append(row["bbox"])
        mine.scores.append(row.get("score", 1.0))
        mine.labels.append(label_of[row["category_id"]])
    return out
