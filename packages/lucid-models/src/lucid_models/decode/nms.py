"""Decoding with class-aware non-maximum suppression: the comparison path."""

import torch
from torch import Tensor
from torch.nn.functional import pad

from lucid_geometry import nms, rotated_nms
from lucid_models.assign import decode_branch
from lucid_models.heads import BranchOutput


def with_nms(
    output: BranchOutput,
    points: Tensor,
    strides: Tensor,
    max_detections: int = 300,
    confidence: float = 0.001,
    iou_threshold: float = 0.7,
    multi_label: bool = False,
) -> tuple[Tensor, Tensor]:
    """Return detections (B, k, 6 or 7) float32 and anchors (B, k) int64, as `end_to_end` returns them.

    Each anchor offers its best class, or every class with ``multi_label``. Scores below ``confidence`` and
    boxes that are not finite or have a side that is not positive are dropped; a box whose IoU with a better
    one of its class is above ``iou_threshold`` is suppressed, oriented boxes by their exact rotated IoU.
    Raises ValueError when ``max_detections`` is below 1.

    >>> branch = BranchOutput(cls=torch.tensor([[[2.0], [1.0]]]), box=torch.ones(1, 2, 4))
    >>> points, strides = torch.tensor([[4.0, 4.0], [5.0, 4.0]]), torch.tensor([8.0, 8.0])
    >>> with_nms(branch, points, strides, max_detections=2)[1]
    tensor([[ 0, -1]])
    """
    if max_detections < 1:
        raise ValueError(f"max_detections must be at least 1, got {max_detections}")
    boxes = decode_branch(output, points, strides)
    scores = output.cls.float().sigmoid()
    rotated = output.angle is not None
    suppress = rotated_nms if rotated else nms
    sides = boxes[..., 2:4] if rotated else boxes[..., 2:] - boxes[..., :2]
    usable = boxes.isfinite().all(-1) & (sides > 0).all(-1)
    offered = scores >= confidence
    if not multi_label:
        best = scores.argmax(-1, keepdim=True)
        offered &= torch.zeros_like(offered).scatter_(-1, best, True)
    offered &= usable[..., None]
    rows, anchors = [], []
    for image_boxes, image_scores, image_offered in zip(boxes, scores, offered, strict=True):
        anchor, label = image_offered.nonzero(as_tuple=True)
        score = image_scores[anchor, label]
        kept = suppress(image_boxes[anchor], score, iou_threshold, label, limit=max_detections)
        anchor, label, score = anchor[kept], label[kept], score[kept]
        row = torch.cat((image_boxes[anchor], score[:, None], label[:, None].float()), -1)
        missing = max_detections - len(kept)
        rows.append(pad(row, (0, 0, 0, missing)))
        anchors.append(pad(anchor, (0, missing), value=-1))
    return torch.stack(rows), torch.stack(anchors)
