"""Mask cross-entropy inside boxes, value and gradient in one pass that keeps nothing of the grid's size.

B images, P rows (positives), N padded ground truths, K prototypes of h x w cells. As an operator of its own the
computation has fixed shapes outside and may skip what weighs nothing inside.
"""

from collections.abc import Iterator
from typing import Any

import torch
from torch import Tensor
from torch.nn.functional import softplus

from lucid_models.masks import inside_at

# rows of a CPU's pieces: few, so that neighbours in anchor order share a narrow band of the grid
_ROWS = 16
# cells of an accelerator's pieces, which bounds each of some five temporaries to 256 MB
_CELLS = 1 << 26


@torch.library.custom_op("lucid_models::cropped_cross_entropy", mutates_args=())
def _cropped_cross_entropy(
    coeff: Tensor, prototypes: Tensor, masks: Tensor, boxes: Tensor, row: Tensor, weight: Tensor
) -> tuple[Tensor, Tensor, Tensor]:
    """Return the value of `cropped_cross_entropy` and its gradients to ``coeff`` and ``prototypes``."""
    value = coeff.new_zeros(())
    to_coeff, to_prototypes = torch.zeros_like(coeff), torch.zeros_like(prototypes)
    pieces = _sparse_pieces if coeff.device.type == "cpu" else _dense_pieces
    for images, rows, band in pieces(boxes, row, weight, masks):
        own, grid = coeff[images][:, rows], prototypes[images][:, :, band]
        answered = row[images][:, rows]
        which = torch.arange(len(answered), device=row.device)[:, None]
        part = _piece(
            own,
            grid,
            masks[images][:, :, band][which, answered],
            boxes[images][which, answered],
            weight[images][:, rows],
            band.start,
        )
        value += part[0]
        to_coeff[images, rows] = part[1]
        to_prototypes[images, :, band] += part[2]
    return value, to_coeff, to_prototypes


def _sparse_pieces(
    boxes: Tensor, row: Tensor, weight: Tensor, masks: Tensor
) -> Iterator[tuple[slice, Any, slice]]:
    """Yield image, rows that weigh something, and the band of the grid that holds their boxes."""
    height = masks.shape[-2]
    for image, weights in enumerate(weight):
        counted = weights.nonzero()[:, 0]
        for rows in counted.split(_ROWS) if len(counted) else ():
            extent = boxes[image, row[image, rows]]
            top, bottom = int(extent[:, 1].amin().floor()), int(extent[:, 3].amax().ceil())
            yield slice(image, image + 1), rows, slice(max(top, 0), max(top, 0, min(bottom, height)))


def _dense_pieces(
    boxes: Tensor, row: Tensor, weight: Tensor, masks: Tensor
) -> Iterator[tuple[slice, Any, slice]]:
    """Yield all images, consecutive rows and the whole grid: nothing is read back from the device."""
    batch, _, height, width = masks.shape
    step = max(1, _CELLS // (batch * height * width))
    for start in range(0, row.shape[1], step):
        yield slice(0, batch), slice(start, start + step), slice(0, height)


def _piece(
    coeff: Tensor, prototypes: Tensor, masks: Tensor, boxes: Tensor, weight: Tensor, top: int
) -> tuple[Tensor, Tensor, Tensor]:
    """Return value and gradients of rows (B, R) on the grid's rows from ``top`` on, masks (B, R, h, w)."""
    height, width = masks.shape[-2:]
    x = torch.arange(width, device=coeff.device) + 0.5
    y = torch.arange(top, top + height, device=coeff.device) + 0.5
    share = (inside_at(boxes, x, y) * weight[..., None, None]).flatten(2)
    sign = masks.flatten(2).to(coeff.dtype).mul_(-2).add_(1)
    flat = prototypes.flatten(2)
    # the cross-entropy of x is softplus(-x) on the mask and softplus(x) off it
    signed = (coeff @ flat).mul_(sign)
    value = torch.dot(softplus(signed).flatten(), share.flatten())
    gradient = signed.sigmoid_().mul_(sign).mul_(share)
    return value, gradient @ flat.mT, (coeff.mT @ gradient).view_as(prototypes)


@_cropped_cross_entropy.register_fake
def _(
    coeff: Tensor, prototypes: Tensor, masks: Tensor, boxes: Tensor, row: Tensor, weight: Tensor
) -> tuple[Tensor, Tensor, Tensor]:
    return coeff.new_empty(()), torch.empty_like(coeff), torch.empty_like(prototypes)


def _keep(ctx: Any, inputs: tuple[Tensor, ...], output: tuple[Tensor, Tensor, Tensor]) -> None:
    ctx.save_for_backward(*output[1:])


def _scale(ctx: Any, factor: Tensor, *_: Tensor) -> tuple[Tensor | None, ...]:
    to_coeff, to_prototypes = ctx.saved_tensors
    return factor * to_coeff, factor * to_prototypes, None, None, None, None


_cropped_cross_entropy.register_autograd(_scale, setup_context=_keep)


def cropped_cross_entropy(
    coeff: Tensor, prototypes: Tensor, masks: Tensor, boxes: Tensor, row: Tensor, weight: Tensor
) -> Tensor:
    """Return the sum over rows of ``weight`` times the mask cross-entropy summed inside the row's box, 0-d.

    ``coeff`` (B, P, K) and ``prototypes`` (B, K, h, w) of one floating dtype give the logits; ``row`` (B, P)
    int64 names each one's ground truth in ``masks`` (B, N, h, w) bool and ``boxes`` (B, N, 4) xyxy in grid
    cells. Differentiable, once, in coefficients and prototypes. A CPU skips rows of weight 0 and everything
    above and below the boxes; an accelerator computes every row, so nothing is read back.

    >>> box, whole = torch.tensor([[[0.0, 0, 2, 1]]]), torch.ones(1, 1, 2, 2) > 0
    >>> row, weight = torch.zeros(1, 1).long(), torch.ones(1, 1)
    >>> cropped_cross_entropy(torch.zeros(1, 1, 4), torch.zeros(1, 4, 2, 2), whole, box, row, weight)
    tensor(1.3863)
    """
    value: Tensor = _cropped_cross_entropy(coeff, prototypes, masks, boxes, row, weight)[0]
    return value
