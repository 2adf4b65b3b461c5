"""From a batch's dense outputs to one `Predictions` per original image.

B images, k detections each.
"""

from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace
from functools import partial

import torch
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
    each = decode_each(
        output,
        points,
        strides,
        letterboxes,
        names,
        decoder=decoder,
        max_detections=max_detections,
        confidence=confidence,
    )
    return list(each)


def decode_each(
    output: BranchOutput,
    points: Tensor,
    strides: Tensor,
    letterboxes: Sequence[Letterbox],
    names: tuple[str, ...],
    *,
    decoder: Decoder = end_to_end,
    max_detections: int = 300,
    confidence: float = 0.0,
) -> Iterator[Predictions]:
    """Yield what `decode_batch` returns, image by image, so that one image's masks exist at a time.

    >>> import torch
    >>> branch = BranchOutput(cls=torch.zeros(1, 1, 1), box=torch.ones(1, 1, 4))
    >>> grid = torch.tensor([[8.0, 8.0]]), torch.tensor([4.0])
    >>> [found.boxes.tolist() for found in decode_each(branch, *grid, [Letterbox(32, 32, 32, 32)], ("a",))]
    [[[4.0, 4.0, 12.0, 12.0]]]
    """
    output = BranchOutput._make(None if value is None else value.detach() for value in output)
    detections, anchors = decoder(output, points, strides, max_detections)
    keypoints = coeff = None
    if output.keypoints is not None:
        keypoints = decode_keypoints(output, points, strides, anchors)
    if output.coeff is not None:
        coeff = rows_at(output.coeff, anchors.clamp(min=0))
    rows_cpu = detections.float().cpu()
    for image, (rows, letterbox) in enumerate(zip(rows_cpu, letterboxes, strict=True)):
        masks: Callable[[Tensor], Tensor] | None = None
        if coeff is not None and output.prototypes is not None:
            masks = partial(_masks_of, rows, coeff[image], output.prototypes[image], letterbox)
        canvas_points = None if keypoints is None else keypoints[image].cpu()
        yield place_on_image(rows, letterbox, names, confidence, canvas_points, masks)


def _masks_of(rows: Tensor, coeff: Tensor, prototypes: Tensor, letterbox: Letterbox, kept: Tensor) -> Tensor:
    place = coeff.device
    return image_masks(coeff[kept.to(place)], prototypes, rows[kept, :4].to(place), letterbox)


def to_predictions(
    detections: Tensor, letterboxes: Sequence[Letterbox], names: tuple[str, ...], confidence: float = 0.0
) -> list[Predictions]:
    """Return one `Predictions` per image of canvas detections, sorted rows as decoders give them.

    Rows (B, k, 6) are upright boxes, rows (B, k, 7) rotated ones. Rows that are padding, score at most
    ``confidence`` or are not finite are dropped; boxes go through the inverse of the image's letterbox, and
    upright ones are clipped to the image.

    >>> import torch
    >>> rows = torch.tensor([[[0.0, 140, 320, 500, 0.9, 1], [0, 0, 0, 0, 0, 0]]])
    >>> to_predictions(rows, [Letterbox(1080, 1920, 640, 640)], ("a", "b"))[0].boxes
    tensor([[   0.,    0.,  960., 1080.]])
    """
    images = zip(detections.float().cpu(), letterboxes, strict=True)
    return [place_on_image(rows, letterbox, names, confidence) for rows, letterbox in images]


def place_on_image(
    rows: Tensor,
    letterbox: Letterbox,
    names: tuple[str, ...],
    confidence: float,
    keypoints: Tensor | None = None,
    masks: Callable[[Tensor], Tensor] | None = None,
) -> Predictions:
    """Return one image's `Predictions` of its canvas rows (k, 6 or 7), of those that count.

    ``keypoints`` (k, K, 3) lie on the canvas too; ``masks`` makes the masks (n, H, W) on the image of the n
    rows at the indices it is given, all on the CPU.
    """
    usable = _usable(rows)
    kept = usable[rows[usable, -2].double() > confidence]
    highest = float(rows[usable, -2].max()) if len(usable) else 0.0
    found = replace(_on_image(rows[kept], letterbox, names), highest_score=highest)
    if keypoints is not None:
        canvas = keypoints[kept]
        back = letterbox.inverse_points(canvas[:, :, :2])
        found = replace(found, keypoints=torch.cat((back, canvas[:, :, 2:]), -1))
    return found if masks is None else replace(found, masks=masks(kept))


def _usable(rows: Tensor) -> Tensor:
    """Return the indices of rows that are no padding and finite."""
    return ((rows[:, -2] > 0) & rows.isfinite().all(-1)).nonzero()[:, 0]


def _on_image(rows: Tensor, letterbox: Letterbox, names: tuple[str, ...]) -> Predictions:
    """Return the boxes, scores and labels of canvas rows (N, 6 or 7)."""
    rboxes = None
    if rows.shape[-1] == 7:
        rboxes = letterbox.inverse_rboxes(rows[:, :5])
        boxes = rboxes_to_boxes(rboxes)
    else:
        boxes = letterbox.inverse_boxes(rows[:, :4])
    return Predictions(
        boxes=clip_boxes(boxes, letterbox.height, letterbox.width),
        scores=rows[:, -2].clone(),
        labels=rows[:, -1].long(),
        names=names,
        image_size=(letterbox.height, letterbox.width),
        rboxes=rboxes,
    )
