"""Losses of instance masks and of the semantic map.

B images, N padded ground truths, P padded positives, C classes, h x w the prototype grid, K prototypes.
"""

import torch
from torch import Tensor
from torch.nn.functional import max_pool2d, softplus

from lucid_models.assign import Positives, rows_at
from lucid_models.losses.cropped import cropped_cross_entropy
from lucid_models.masks import inside_boxes


def mask_values(logits: Tensor, targets: Tensor, boxes: Tensor) -> Tensor:
    """Return (...) one mask loss per instance: cross-entropy summed inside its box over the box's area.

    ``logits`` (..., h, w), ``targets`` (..., h, w) bool, ``boxes`` (..., 4) xyxy in grid cells; the area counts
    at least 1. Source: Bolya et al., "YOLACT", arXiv:1904.02689.

    >>> box = torch.tensor([1.0, 2.0, 4.5, 5.2])
    >>> mask_values(torch.zeros(8, 8), torch.zeros(8, 8) > 0, box)
    tensor(0.5570)
    """
    # the cross-entropy of x is softplus(-x) on the mask and softplus(x) off it
    loss = softplus(torch.where(targets, -logits, logits))
    inside = inside_boxes(boxes, *logits.shape[-2:])
    return torch.where(inside, loss, 0.0).sum((-2, -1)) / box_areas(boxes)


def box_areas(boxes: Tensor) -> Tensor:
    """Return (...) the areas of ``boxes`` (..., 4) xyxy, at least 1; an inverted side counts 0.

    >>> box_areas(torch.tensor([[1.0, 2, 4, 6], [5, 5, 2, 9]]))
    tensor([12.,  1.])
    """
    return (boxes[..., 2:] - boxes[..., :2]).clamp(min=0).prod(-1).clamp(min=1)


def mask_loss(
    coeff: Tensor,
    prototypes: Tensor,
    chosen: Positives,
    masks: Tensor,
    boxes: Tensor,
    learnable: Tensor,
) -> Tensor:
    """Return the mean over instances of the mean over their positives of `mask_values`, 0-d.

    Averaging per instance keeps large objects, which have ten positives, from drowning small ones.
    ``coeff`` (B, A, K), ``prototypes`` (B, K, h, w), ``masks`` (B, N, h, w) bool, ``boxes`` (B, N, 4) xyxy in
    grid cells, ``learnable`` (B, N) bool, false where the mask is not known. Raises ValueError when masks
    and prototypes have different grids. Without a learnable positive it is exactly 0, attached.

    >>> chosen = Positives(torch.zeros(1, 1).long(), torch.zeros(1, 1).long(), torch.ones(1, 1) > 0)
    >>> box, ok = torch.tensor([[[0.0, 0, 2, 2]]]), torch.ones(1, 1) > 0
    >>> mask_loss(torch.zeros(1, 1, 4), torch.zeros(1, 4, 2, 2), chosen, torch.ones(1, 1, 2, 2) > 0, box, ok)
    tensor(0.6931)
    """
    if masks.shape[-2:] != prototypes.shape[-2:]:
        raise ValueError(
            f"masks have grid {tuple(masks.shape[-2:])}, prototypes {tuple(prototypes.shape[-2:])}; "
            "rasterise the masks at a quarter of the canvas"
        )
    counted = chosen.valid & rows_at(learnable, chosen.row)
    own = torch.where(counted[..., None], rows_at(coeff, chosen.anchor), 0.0)
    per_row = torch.zeros_like(learnable, dtype=own.dtype).scatter_add(1, chosen.row, counted.to(own.dtype))
    instances = (per_row > 0).sum().clamp(min=1)
    each = box_areas(boxes).to(own.dtype) * per_row.clamp(min=1) * instances
    weight = torch.where(counted, 1 / rows_at(each, chosen.row), 0.0)
    return cropped_cross_entropy(own, prototypes, masks, boxes, chosen.row, weight)


def semantic_targets(masks: Tensor, labels: Tensor, valid: Tensor, num_classes: int) -> Tensor:
    """Return (B, C, h / 2, w / 2) float32 in {0, 1}: which classes a cell of stride 8 touches.

    The union per class of ``masks`` (B, N, h, w) bool of ``valid`` (B, N) rows with ``labels`` (B, N),
    max-pooled from the prototype grid. Images without instances are zeros.

    >>> masks = torch.tensor([[[[True, False], [False, False]]]])
    >>> semantic_targets(masks, torch.tensor([[1]]), torch.tensor([[True]]), 2).flatten().tolist()
    [0.0, 1.0]
    """
    batch, rows, height, width = masks.shape
    target = torch.zeros(batch, num_classes, height // 2, width // 2, device=masks.device)
    if rows == 0:
        return target
    pooled = max_pool2d((masks & valid[..., None, None]).float(), 2)
    wide = labels.clamp(0, num_classes - 1)[..., None, None].expand_as(pooled)
    return target.scatter_reduce(1, wide, pooled, "amax")


def semantic_loss(logits: Tensor, targets: Tensor, ignored: Tensor | None = None) -> Tensor:
    """Return the cross-entropy averaged over all cells plus `dice_loss`, 0-d; both inputs (B, C, h, w).

    Cells where ``ignored`` (B, C, h, w) is true count in neither. Source: Jocher et al., arXiv:2606.03748,
    section 3.4.1.

    >>> semantic_loss(torch.full((1, 1, 2, 2), -30.0), torch.zeros(1, 1, 2, 2)) < 1e-6
    tensor(True)
    """
    cross_entropy, probabilities = softplus(logits) - logits * targets, logits.sigmoid()
    if ignored is None:
        return cross_entropy.mean() + dice_loss(probabilities, targets)
    kept = torch.where(ignored, 0.0, cross_entropy).sum() / (~ignored).sum().clamp(min=1)
    return kept + dice_loss(torch.where(ignored, 0.0, probabilities), torch.where(ignored, 0.0, targets))


def dice_loss(probabilities: Tensor, targets: Tensor) -> Tensor:
    """Return the mean over images and classes of 1 - (2 sum(p t) + 1) / (sum p + sum t + 1), 0-d.

    >>> p, t = torch.tensor([0.9, 0.2, 0.1, 0.8]), torch.tensor([1.0, 0.0, 0.0, 1.0])
    >>> dice_loss(p.view(1, 1, 2, 2), t.view(1, 1, 2, 2))
    tensor(0.1200)
    """
    shared = (probabilities * targets).sum((-2, -1))
    sizes = probabilities.sum((-2, -1)) + targets.sum((-2, -1))
    return (1 - (2 * shared + 1) / (sizes + 1)).mean()
