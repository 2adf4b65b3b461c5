"""From coefficients and prototypes to masks, on the canvas and on the original image.

N masks, K prototypes of h x w cells.
"""

from collections.abc import Iterator

import torch
from torch import Tensor
from torch.nn.functional import interpolate

from lucid_geometry import Letterbox
from lucid_models.masks import assemble_masks, inside_at, inside_boxes

THRESHOLD = 0.5
# canvas and image pixels worked on at once; bounds the temporaries to some 200 MB whatever the count
_PIXELS = 1 << 24


def canvas_masks(coeff: Tensor, prototypes: Tensor, boxes: Tensor, height: int, width: int) -> Tensor:
    """Return masks (B, N, height, width) bool on the canvas, cut to their boxes (B, N, 4) xyxy.

    ``coeff`` (B, N, K), ``prototypes`` (B, K, h, w). Probabilities are enlarged bilinearly and then
    compared with 0.5: the other order would snap to the prototypes' grid. A pixel lies in a box when its
    centre does, ends half-open. Source: Bolya et al., "YOLACT", arXiv:1904.02689.

    >>> box = torch.tensor([[[0.0, 0.0, 4.0, 2.0]]])
    >>> canvas_masks(torch.ones(1, 1, 1), torch.ones(1, 1, 1, 1), box, 4, 4).sum()
    tensor(8)
    """
    return _uncut(coeff, prototypes, height, width) & inside_boxes(boxes, height, width)


def image_masks(coeff: Tensor, prototypes: Tensor, boxes: Tensor, letterbox: Letterbox) -> Tensor:
    """Return masks (N, H, W) bool on the original image of one image's detections, on the CPU.

    ``coeff`` (N, K), ``prototypes`` (K, h, w), ``boxes`` (N, 4) xyxy on the canvas. Each image pixel takes the
    canvas pixel that its centre falls into. Masks are made some at a time, so that the temporaries do not
    grow with N.

    >>> box = torch.tensor([[0.0, 16.0, 64.0, 48.0]])
    >>> image_masks(torch.ones(1, 1), torch.ones(1, 16, 16), box, Letterbox(8, 16, 64, 64)).shape
    torch.Size([1, 8, 16])
    """
    height, width = letterbox.height, letterbox.width
    device = coeff.device
    rows = _source(height, letterbox.ratio, letterbox.pad_top, letterbox.canvas_height).to(device)
    columns = _source(width, letterbox.ratio, letterbox.pad_left, letterbox.canvas_width).to(device)
    result = torch.empty(len(coeff), height, width, dtype=torch.bool)
    canvas = letterbox.canvas_height, letterbox.canvas_width
    for part in _chunks(len(coeff), max(canvas[0] * canvas[1], height * width)):
        large = _uncut(coeff[None, part], prototypes[None], *canvas)[0].index_select(1, rows)
        # turned, a column is a stretch of memory, several times faster to pick than single bytes
        turned = large.transpose(1, 2).contiguous().index_select(1, columns)
        inside = inside_at(boxes[part], columns + 0.5, rows + 0.5)
        result[part] = (turned.transpose(1, 2) & inside).cpu()
    return result


def canvas_to_image(masks: Tensor, letterbox: Letterbox) -> Tensor:
    """Return masks (N, H, W) bool on the original image of masks (N, canvas height, canvas width) bool.

    Each image pixel takes the canvas pixel that its centre falls into.

    >>> canvas_to_image(torch.ones(1, 64, 64) > 0, Letterbox(8, 16, 64, 64)).shape
    torch.Size([1, 8, 16])
    """
    rows = _source(letterbox.height, letterbox.ratio, letterbox.pad_top, letterbox.canvas_height)
    columns = _source(letterbox.width, letterbox.ratio, letterbox.pad_left, letterbox.canvas_width)
    return masks.index_select(1, rows.to(masks.device)).index_select(2, columns.to(masks.device))


def _uncut(coeff: Tensor, prototypes: Tensor, height: int, width: int) -> Tensor:
    """Return (B, N, height, width) bool: the enlarged probability is above the threshold."""
    probabilities = assemble_masks(coeff.float(), prototypes.float()).sigmoid()
    return interpolate(probabilities, size=(height, width), mode="bilinear", align_corners=False) > THRESHOLD


def _source(count: int, ratio: float, padding: int, limit: int) -> Tensor:
    """Return (count,) int64: the canvas index of each image index along one axis."""
    place = (torch.arange(count, dtype=torch.float64) + 0.5) * ratio + padding
    return place.floor().long().clamp(0, limit - 1)


def _chunks(count: int, pixels_each: int) -> Iterator[slice]:
    step = max(1, _PIXELS // pixels_each)
    return (slice(start, start + step) for start in range(0, count, step))
