"""Decoding without suppression: the deployed path.

B images, A anchor points, C classes, k detections. Source: Wang et al., "YOLOv10", arXiv:2405.14458,
section 3.1.
"""

import torch
from torch import Tensor
from torch.nn.functional import pad

from lucid_models.assign import decode_branch, rows_at
from lucid_models.heads import BranchOutput


def end_to_end(
    output: BranchOutput, points: Tensor, strides: Tensor, max_detections: int = 300, confidence: float = 0.0
) -> tuple[Tensor, Tensor]:
    """Return detections (B, k, 6) float32 and their anchors (B, k) int64, best score first.

    A row is (x1, y1, x2, y2, score, class) in canvas pixels; of an oriented branch (B, k, 7) with (cx, cy, w,
    h, theta, score, class), canonical. The k = ``max_detections`` anchors of best class
    are selected first, then the k best (anchor, class) pairs among them, so one anchor may give several
    classes. Rows without a pair are zeros with anchor -1; a score below ``confidence`` becomes 0 and keeps
    its row. Gather every other per-anchor output by the returned anchors. Raises ValueError when
    ``max_detections`` is below 1.

    >>> logits = torch.tensor([[[2.0, 1.0], [-3.0, -4.0]]])
    >>> branch = BranchOutput(cls=logits, box=torch.ones(1, 2, 4))
    >>> points, strides = torch.tensor([[4.0, 4.0], [12.0, 4.0]]), torch.tensor([8.0, 8.0])
    >>> detections, anchors = end_to_end(branch, points, strides, max_detections=3)
    >>> detections[0, :, 5].tolist(), anchors.tolist()
    ([0.0, 1.0, 0.0], [[0, 0, 1]])
    """
    if max_detections < 1:
        raise ValueError(f"max_detections must be at least 1, got {max_detections}")
    logits = output.cls.float()
    classes = logits.shape[-1]
    anchor = logits.amax(-1).topk(min(max_detections, logits.shape[1]), sorted=False).indices
    pairs = logits.gather(1, anchor[..., None].expand(-1, -1, classes)).flatten(1)
    best, flat = pairs.topk(min(max_detections, pairs.shape[1]))
    label = flat % classes
    anchor = anchor.gather(1, flat.div(classes, rounding_mode="floor"))
    # the sigmoid is monotone, so only the survivors need it
    score = best.sigmoid()
    score = torch.where(score < confidence, 0.0, score)
    angle = None if output.angle is None else rows_at(output.angle, anchor)
    chosen = output._replace(box=rows_at(output.box, anchor), angle=angle)
    boxes = decode_branch(chosen, points[anchor], strides[anchor])
    rows = torch.cat((boxes, score[..., None], label[..., None].float()), -1)
    missing = max_detections - anchor.shape[1]
    return pad(rows, (0, 0, 0, missing)), pad(anchor, (0, missing), value=-1)
