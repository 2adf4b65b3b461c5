"""The padded ground truth of a batch, and what each task asks of it."""

from typing import NamedTuple

from torch import Tensor


class PaddedTargets(NamedTuple):
    """Ground truth of B images padded to N rows, in canvas pixels; N may be 0.

    Fields of other tasks may be None, and where N is 0 so may the task's own.
    """

    boxes: Tensor
    """(B, N, 4) float32 xyxy."""
    labels: Tensor
    """(B, N) int64."""
    valid: Tensor
    """(B, N) bool, false on padding."""
    rboxes: Tensor | None = None
    """(B, N, 5) float32, canonical."""
    keypoints: Tensor | None = None
    """(B, N, K, 3) float32 x, y, v; v = 0 means not labelled."""
    masks: Tensor | None = None
    """(B, N, H / 4, W / 4) bool."""
    mask_ok: Tensor | None = None
    """(B, N) bool, false where an instance's mask is not known; None where all are."""


def need(targets: PaddedTargets, field: str, shape: tuple[int, ...]) -> Tensor:
    """Return the targets' ``field``, zeros (B, N, *shape) where N is 0 and the field is None.

    Raises ValueError when it is missing, or its shape is another.

    >>> import torch
    >>> empty = PaddedTargets(torch.zeros(2, 0, 4), torch.zeros(2, 0).long(), torch.zeros(2, 0) > 0)
    >>> need(empty, "rboxes", (5,)).shape
    torch.Size([2, 0, 5])
    """
    value: Tensor | None = getattr(targets, field)
    expected = (*targets.labels.shape, *shape)
    if value is None and targets.labels.shape[1] == 0:
        return targets.boxes.new_zeros(expected)
    found = None if value is None else tuple(value.shape)
    if value is None or found != expected:
        raise ValueError(f"the targets' {field} must be {expected} for this task, got {found}")
    return value
