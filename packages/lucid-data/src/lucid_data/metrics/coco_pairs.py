"""COCO ground truth and results as tensors, image by image, for measures that look at pairs of boxes."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from lucid_data.formats.coco_json import load_document
from lucid_data.formats.coco_values import id_key, numbers
from lucid_data.metrics.coco import load_results


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

    They are what ``confusion_matrix`` and ``error_split`` take.
    Raises ValueError for a document or results without the fields, FileNotFoundError for a file that is not there.

    >>> truth = {"images": [{"id": 1}], "categories": [{"id": 5, "name": "a"}],
    ...          "annotations": [{"image_id": 1, "category_id": 5, "bbox": [1, 2, 3, 4]}]}
    >>> coco_pairs(truth, []).truths[0][0].tolist()
    [[1.0, 2.0, 4.0, 6.0]]
    """
    document = load_document(ground_truth) if isinstance(ground_truth, str | Path) else ground_truth
    found = load_results(results) if isinstance(results, str | Path) else results
    categories = sorted(document["categories"], key=lambda category: int(category["id"]))
    label_of = {id_key(category["id"]): label for label, category in enumerate(categories)}
    objects = [a for a in document["annotations"] if not a.get("iscrowd")]
    truths, predictions = _by_image(objects, label_of), _by_image(found, label_of)
    images = [id_key(image["id"]) for image in document["images"]]
    return CocoPairs(
        [predictions[image].tensors() for image in images],
        [truths[image].tensors()[::2] for image in images],
        tuple(str(category["name"]) for category in categories),
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


def _by_image(rows: Sequence[Mapping[str, Any]], label_of: Mapping[str, int]) -> defaultdict[str, _Rows]:
    out: defaultdict[str, _Rows] = defaultdict(_Rows)
    for position, row in enumerate(rows):
        label = label_of.get(id_key(row.get("category_id")))
        if label is None:
            raise ValueError(f"row {position}: category {row.get('category_id')!r} is not in 'categories'")
        mine = out[id_key(row.get("image_id"))]
        mine.boxes.append(numbers(row.get("bbox"), 4, f"row {position}: bbox"))
        mine.scores.append(float(row.get("score", 1.0)))
        mine.labels.append(label)
    return out
