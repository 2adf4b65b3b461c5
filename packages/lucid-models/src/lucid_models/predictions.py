"""One image's detections on the original image, and their forms for files."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from importlib import import_module
from typing import Any

from torch import Tensor

from lucid_geometry import rboxes_to_polygons, xyxy_to_xywh
from lucid_models.rle import encode_masks


@dataclass(frozen=True, eq=False)
class Predictions:
    """Detections of one image, best score first.

    ``boxes`` (N, 4) float32 xyxy in pixels of the original image, ``scores`` (N,) float32, ``labels`` (N,)
    int64 indices into ``names``, ``image_size`` (height, width). What the task does not predict is None:
    ``masks`` (N, H, W) bool; ``keypoints`` (N, K, 3) float32 x, y in pixels, possibly outside the image, and
    the probability that the point is visible; ``rboxes`` (N, 5) float32 cx, cy, w, h, theta, canonical, whose
    envelopes, clipped to the image, the boxes then are. ``highest_score`` is the best one before any detection was
    dropped for its score, 0 where there was none; None where nobody has said.
    """

    boxes: Tensor
    scores: Tensor
    labels: Tensor
    names: tuple[str, ...]
    image_size: tuple[int, int]
    masks: Tensor | None = None
    keypoints: Tensor | None = None
    rboxes: Tensor | None = None
    highest_score: float | None = None

    def __len__(self) -> int:
        return len(self.scores)

    def to_coco(self, image_id: int, category_ids: Sequence[int] | None = None) -> list[dict[str, Any]]:
        """Return COCO result entries: image_id, category_id, bbox (x, y, width, height), score.

        Masks are added as ``segmentation`` in compressed run lengths, keypoints as ``keypoints`` (x, y,
        visibility, flat; half a pixel less, as COCO names a pixel by its index where we name its centre),
        rotated boxes as ``segmentation`` with one polygon of four corners.
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
        entries: list[dict[str, Any]] = [
            {"image_id": image_id, "category_id": ids[label], "bbox": bbox, "score": score}
            for label, bbox, score in rows
        ]
        segmentation = self._corners() if self.masks is None else self._run_lengths()
        points = None
        if self.keypoints is not None:
            half = self.keypoints.new_tensor((0.5, 0.5, 0.0))
            points = (self.keypoints - half).flatten(1).tolist()
        _add(entries, {"segmentation": segmentation, "keypoints": points})
        return entries

    def to_dict(self) -> dict[str, Any]:
        """Return plain values for JSON: image_size and a list of detections (box, score, label, name).

        A detection also holds, where the task predicts it, its ``mask`` in COCO's compressed run lengths, its
        ``keypoints`` (rows of x, y, visibility) and its ``rbox``.

        >>> import torch
        >>> Predictions(torch.zeros(0, 4), torch.zeros(0), torch.zeros(0).long(), ("a",), (9, 8)).to_dict()
        {'image_size': [9, 8], 'detections': []}
        """
        rows = zip(self.boxes.tolist(), self.scores.tolist(), self.labels.tolist(), strict=True)
        detections: list[dict[str, Any]] = [
            {"box": box, "score": score, "label": label, "name": self.names[label]}
            for box, score, label in rows
        ]
        extra = {
            "mask": self._run_lengths(),
            "keypoints": None if self.keypoints is None else self.keypoints.tolist(),
            "rbox": None if self.rboxes is None else self.rboxes.tolist(),
        }
        _add(detections, extra)
        return {"image_size": list(self.image_size), "detections": detections}

    def to_supervision(self) -> Any:
        """Return the ``supervision.Detections`` of the same boxes, scores, labels, names and masks.

        Corners of rotated boxes go to its data under the key its oriented annotators read. Keypoints have no
        place there. Raises ImportError in one line where the library is not installed.
        """
        try:
            supervision = import_module("supervision")
        except ModuleNotFoundError:
            raise ImportError(
                "to_supervision needs the package supervision; pip install supervision"
            ) from None
        data: dict[str, Any] = {"class_name": [self.names[label] for label in self.labels.tolist()]}
        if self.rboxes is not None:
            data["xyxyxyxy"] = rboxes_to_polygons(self.rboxes).numpy()
        return supervision.Detections(
            xyxy=self.boxes.numpy(),
            confidence=self.scores.numpy(),
            class_id=self.labels.numpy(),
            mask=None if self.masks is None else self.masks.numpy(),
            data=data,
        )

    def _run_lengths(self) -> list[dict[str, Any]] | None:
        if self.masks is None:
            return None
        return [{"size": list(self.image_size), "counts": counts} for counts in encode_masks(self.masks)]

    def _corners(self) -> list[list[list[float]]] | None:
        if self.rboxes is None:
            return None
        return [[corners] for corners in rboxes_to_polygons(self.rboxes).flatten(1).tolist()]


def _add(entries: list[dict[str, Any]], columns: Mapping[str, list[Any] | None]) -> None:
    """Put one value of each column that there is into each entry."""
    for key, values in columns.items():
        if values is not None:
            for entry, value in zip(entries, values, strict=True):
                entry[key] = value
