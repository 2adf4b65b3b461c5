"""From a batch's dense outputs to one `Predictions` per original image.

B images, k detections each, K keypoints.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass

from torch import Tensor

from lucid_geometry import Letterbox, clip_boxes, rboxes_to_boxes
from lucid_models.assign import rows_at
from lucid_models.decode.keypoints import decode_keypoints
from lucid_models.decode.masks import image_masks
from lucid_models.decode.topk import end_to_end
from lucid_models.heads import BranchOutput
from lucid_models.predictions import Predictions

Decoder = Callable[[BranchOutput, Tensor, Tensor, int], tuple[Tensor, Tensor]]
"""`end_to_end` or `with_nms`."""


@dataclass(frozen=True)
class Extras:
    """What stands beside the rows of a decoder, gathered by its anchors; None where the task has none."""

    keypoints: Tensor | None = None
    """(B, k, K, 3) on the canvas."""
    coeff: Tensor | None = None
    """(B, k, 32)."""
    prototypes: Tensor | None = None
    """(B, 32, h, w)."""


def decode_batch(
    output: BranchOutput,
    points: Tensor,
    strides: Tensor,
    letterboxes: Sequence[Letterbox],
    names: tuple[str, ...],
    *,
    decoder: Decoder = end_to_end,
    max_detections: int = 300,
    confidence: float = 0.0,
) -> list[Predictions]:
    """Return one `Predictions` per image of a branch's dense output, for every task, on the CPU.

    ``decoder`` selects once; coefficients, keypoints and angles follow its anchors. Detections that score at
    most ``confidence`` are dropped before their masks are made.

    >>> import torch
    >>> from lucid_models import build_detector, make_points
    >>> detector = build_detector("segment", "n", names=["a"]).eval()
    >>> with torch.inference_mode():
    ...     output = detector(torch.rand(1, 3, 64, 64)).o2o
    >>> frames = [Letterbox(20, 40, 64, 64)]
    >>> decode_batch(output, *make_points(64, 64), frames, ("a",), max_detections=5)[0].masks.shape
    torch.Size([5, 20, 40])
    """
    detections, anchors = decoder(output, points, strides, max_detections)
    points_of = None
    if output.keypoints is not None:
        points_of = decode_keypoints(output, points, strides, anchors)
    coeff = None if output.coeff is None else rows_at(output.coeff, anchors.clamp(min=0))
    extras = Extras(points_of, coeff, output.prototypes)
    return to_predictions(detections, letterboxes, names, confidence, extras)


def to_predictions(
    detections: Tensor,
    letterboxes: Sequence[Letterbox],
    names: tuple[str, ...],
    confidence: float = 0.0,
    extras: Extras | None = None,
) -> list[Predictions]:
    """Return one `Predictions` per image of canvas detections, sorted rows as decoders give them.

    Rows (B, k, 6) are upright boxes, rows (B, k, 7) rotated ones. Rows that are padding, score at most
    ``confidence`` or are not finite are dropped; boxes, and what ``extras`` holds, go through the inverse of
    the image's letterbox, and upright boxes are clipped to the image.

    >>> import torch
    >>> rows = torch.tensor([[[0.0, 140, 320, 500, 0.9, 1], [0, 0, 0, 0, 0, 0]]])
    >>> to_predictions(rows, [Letterbox(1080, 1920, 640, 640)], ("a", "b"))[0].boxes
    tensor([[   0.,    0.,  960., 1080.]])
    """
    extras = Extras() if extras is None else extras
    rows_cpu = detections.float().cpu()
    results = []
    for image, (rows, letterbox) in enumerate(zip(rows_cpu, letterboxes, strict=True)):
        score = rows[:, -2]
        usable = (score > 0) & (score.double() > confidence) & rows.isfinite().all(-1)
        kept = usable.nonzero()[:, 0]
        rows = rows[kept]
        masks = keypoints = rboxes = None
        if rows.shape[-1] == 7:
            rboxes = letterbox.inverse_rboxes(rows[:, :5])
            boxes = rboxes_to_boxes(rboxes)
        else:
            boxes = letterbox.inverse_boxes(rows[:, :4])
        if extras.keypoints is not None:
            canvas = extras.keypoints[image].float().cpu()[kept]
            keypoints = canvas.clone()
            keypoints[..., :2] = letterbox.inverse_points(canvas[..., :2])
        if extras.coeff is not None and extras.prototypes is not None:
            device = extras.coeff.device
            coeff = extras.coeff[image][kept.to(device)]
            masks = image_masks(coeff, extras.prototypes[image], rows[:, :4].to(device), letterbox)
        results.append(
            Predictions(
                boxes=clip_boxes(boxes, letterbox.height, letterbox.width),
                scores=rows[:, -2].clone(),
                labels=rows[:, -1].long(),
                names=names,
                image_size=(letterbox.height, letterbox.width),
                masks=masks,
                keypoints=keypoints,
                rboxes=rboxes,
            )
        )
    return results
