"""From dense detections on the canvas to scored COCO results on the original images."""

from typing import Any

import torch
from torch import Tensor

from lucid_data import Catalog, score_coco
from lucid_geometry import Letterbox, clip_boxes


class ResultCollector:
    """Collects detections of a catalog's images and scores them with the COCO protocol."""

    def __init__(self, catalog: Catalog) -> None:
        self.catalog = catalog
        self.results: list[dict[str, Any]] = []
        self.images: set[int] = set()

    def add(self, detections: Tensor, indices: Tensor, sizes: Tensor, canvas: tuple[int, int]) -> None:
        """Take in one batch.

        Args:
            detections: (B, K, 6) float, x1 y1 x2 y2 score class on the canvas; rows of score 0 are padding.
            indices: (B,) int64 catalog positions.
            sizes: (B, 2) int64 original height and width.
            canvas: height and width of the network canvas.
        """
        detections = detections.detach().float().cpu()
        for rows, index, (height, width) in zip(detections, indices.tolist(), sizes.tolist(), strict=True):
            if index in self.images:
                continue
            self.images.add(index)
            rows = rows[rows[:, 4] > 0]
            boxes = Letterbox(height, width, *canvas).inverse_boxes(rows[:, :4])
            self.results += coco_rows(
                clip_boxes(boxes, height, width),
                rows[:, 4],
                rows[:, 5].long(),
                self.catalog.image_ids[index],
                self.catalog.category_ids,
            )

    def score(self) -> dict[str, Any]:
        """Return the COCO report over the results of all processes; -1 where a number is undefined."""
        gathered = gather_lists(self.results)
        return score_coco(self.catalog.to_coco(), gathered, kind="bbox").to_dict()


def coco_rows(
    boxes: Tensor, scores: Tensor, labels: Tensor, image_id: int, category_ids: Any
) -> list[dict[str, Any]]:
    """Return COCO result records of boxes (N, 4) xyxy, scores (N,) and labels (N,) of one image."""
    corner_size = torch.cat([boxes[:, :2], boxes[:, 2:] - boxes[:, :2]], dim=1).double()
    return [
        {"image_id": image_id, "category_id": int(category_ids[label]), "bbox": box, "score": score}
        for box, score, label in zip(
            corner_size.tolist(), scores.double().tolist(), labels.tolist(), strict=True
        )
    ]


def gather_lists(rows: list[dict[str, Any]]) -> list[dict[str, Any]]:
    """Return the rows of every process, in rank order; the rows themselves outside distributed runs."""
    if not (torch.distributed.is_available() and torch.distributed.is_initialized()):
        return rows
    shards: list[list[dict[str, Any]]] = [[] for _ in range(torch.distributed.get_world_size())]
    torch.distributed.all_gather_object(shards, rows)
    seen: set[Any] = set()
    merged: list[dict[str, Any]] = []
    for shard in shards:
        fresh = {row["image_id"] for row in shard} - seen
        merged += [row for row in shard if row["image_id"] in fresh]
        seen |= fresh
    return merged
