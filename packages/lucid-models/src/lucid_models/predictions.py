"""One image's detections on the original image, and their forms for files."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from torch import Tensor

from lucid_geometry import Letterbox, clip_boxes, xyxy_to_xywh


@dataclass(frozen=True, eq=False)
class Predictions:
    """Detections of one image, best score first.

    ``boxes`` (N, 4) float32 xyxy in pixels of the original image, ``scores`` (N,) float32, ``labels`` (N,)
    int64 indices into ``names``, ``image_size`` (height, width). ``masks``, ``keypoints`` and ``rboxes`` are
    None unless the task predicts them.
    """

    boxes: Tensor
    scores: Tensor
    labels: Tensor
    names: tuple[str, ...]
    image_size: tuple[int, int]
    masks: Tensor | None = None
    keypoints: Tensor | None = None
    rboxes: Tensor | None = None

    def __len__(self) -> int:
        return len(self.scores)

    def to_coco(self, image_id: int, category_ids: Sequence[int] | None = None) -> list[dict[str, Any]]:
        """Return COCO result entries: image_id, category_id, bbox (x, y, width, height) and score.

        ``category_ids`` gives the file's id of each label; by default labels count from 1. Raises ValueError
        when it does not give one id per name. Source: the results format of cocodataset.org.

        >>> import torch
        >>> box, score, label = torch.tensor([[1.0, 2, 5, 9]]), torch.tensor([0.5]), torch.tensor([0])
        >>> one = Predictions(box, score, label, ("cat",), (9, 9))
        >>> one.to_coco(7, [18])
        [{'image_id': 7, 'category_id': 18, 'bbox': [1.0, 2.0, 4.0, 7.0], 'score': 0.5}]
        """
        ids = range(1, len(self.names) + 1) if category_ids is None else category_ids
        if len(ids) != len(self.names):
            raise ValueError(f"{len(ids)} category ids for {len(self.names)} names; give one per name")
        rows = zip(self.labels.tolist(), xyxy_to_xywh(self.boxes).tolist(), self.scores.tolist(), strict=True)
        return [
            {"image_id": image_id, "category_id": ids[label], "bbox": bbox, "score": score}
            for label, bbox, score in rows
        ]

    def to_dict(self) -> dict[str, Any]:
        """Return plain values for JSON: image_size and a list of detections (box, score, label, name).

        >>> import torch
        >>> Predictions(torch.zeros(0, 4), torch.zeros(0), torch.zeros(0).long(), ("a",), (9, 8)).to_dict()
        {'image_size': [9, 8], 'detections': []}
        """
        rows = zip(self.boxes.tolist(), self.scores.tolist(), self.labels.tolist(), strict=True)
        return {
            "image_size": list(self.image_size),
            "detections": [
                {"box": box, "score": score, "label": label, "name": self.names[label]}
                for box, score, label in rows
            ],
        }


def to_predictions(
    detections: Tensor, letterboxes: Sequence[Letterbox], names: tuple[str, ...], confidence: float = 0.0
) -> list[Predictions]:
    """Return one `Predictions` per image of canvas detections (B, k, 6), sorted rows as decoders give them.

    Rows that are padding, score at most ``confidence`` or are not finite are dropped; boxes go through the
    inverse of the image's letterbox and are clipped to the image.

    >>> import torch
    >>> rows = torch.tensor([[[0.0, 140, 320, 500, 0.9, 1], [0, 0, 0, 0, 0, 0]]])
    >>> to_predictions(rows, [Letterbox(1080, 1920, 640, 640)], ("a", "b"))[0].boxes
    tensor([[   0.,    0.,  960., 1080.]])
    """
    results = []
    for rows, letterbox in zip(detections.float().cpu(), letterboxes, strict=True):
        kept = rows[(rows[:, 4] > 0) & (rows[:, 4].double() > confidence) & rows.isfinite().all(-1)]
        boxes = letterbox.inverse_boxes(kept[:, :4])
        results.append(
            Predictions(
                boxes=clip_boxes(boxes, letterbox.height, letterbox.width),
                scores=kept[:, 4].clone(),
                labels=kept[:, 5].long(),
                names=names,
                image_size=(letterbox.height, letterbox.width),
            )
        )
    return results
