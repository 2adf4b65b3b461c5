"""A batch as it travels from workers to the network: dense, padded, few tensors.

Legend: B images, N the largest instance count in the batch, K keypoints, S canvas side.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

import torch
from torch import Tensor

from lucid_data.pipeline import Sample


@dataclass(frozen=True, eq=False)
class Batch:
    """Samples stacked and padded.

    Attributes:
        images: (B, 3, S, S) uint8 RGB; with ``color`` their channels may lie side by side in memory, which
            ``jitter_batch`` takes apart.
        boxes: (B, N, 4) float32 x1 y1 x2 y2 canvas pixels, zero where ``valid`` is false.
        labels: (B, N) int64, zero where ``valid`` is false.
        valid: (B, N) bool.
        rboxes: (B, N, 5) float32, or None.
        keypoints: (B, N, K, 3) float32, or None.
        indices: (B,) int64 catalogue indices.
        sizes: (B, 2) int64 original height and width.
        masks: (B, N, S / 4, S / 4) bool for segment, or None.
        mask_ok: (B, N) bool, which instances have a mask to learn, or None; the others weigh nothing in mask losses.
        color: (B, 3) float64 gains for ``jitter_batch``, or None when colour is done.
    """

    images: Tensor
    boxes: Tensor
    labels: Tensor
    valid: Tensor
    rboxes: Tensor | None
    keypoints: Tensor | None
    indices: Tensor
    sizes: Tensor
    masks: Tensor | None = None
    mask_ok: Tensor | None = None
    color: Tensor | None = None

    def __len__(self) -> int:
        return self.images.shape[0]

    def to(self, device: torch.device | str, non_blocking: bool = False) -> Batch:
        """Return the batch with every tensor on ``device``."""
        return self._map(lambda tensor: tensor.to(device, non_blocking=non_blocking))

    def pin_memory(self) -> Batch:
        """Return the batch in page-locked memory."""
        return self._map(Tensor.pin_memory)

    def _map(self, move: Callable[[Tensor], Tensor]) -> Batch:
        def maybe(tensor: Tensor | None) -> Tensor | None:
            return None if tensor is None else move(tensor)

        return Batch(
            images=move(self.images),
            boxes=move(self.boxes),
            labels=move(self.labels),
            valid=move(self.valid),
            rboxes=maybe(self.rboxes),
            keypoints=maybe(self.keypoints),
            indices=move(self.indices),
            sizes=move(self.sizes),
            masks=maybe(self.masks),
            mask_ok=maybe(self.mask_ok),
            color=maybe(self.color),
        )


def collate(samples: Sequence[Sample]) -> Batch:
    """Return the batch of ``samples``, images of one size, instances padded to the largest count.

    Raises ValueError for no samples or for images that differ in size.

    >>> from lucid_data import Targets
    >>> grey = torch.zeros(3, 32, 32, dtype=torch.uint8)
    >>> collate([Sample(grey, Targets.empty(), 0, (32, 32))]).boxes.shape
    torch.Size([1, 0, 4])
    """
    if not samples:
        raise ValueError("collate needs at least one sample")
    shapes = {tuple(sample.image.shape) for sample in samples}
    if len(shapes) > 1:
        raise ValueError(f"images of one batch must have one size, got {sorted(shapes)}")
    targets = [sample.targets for sample in samples]
    counts = [len(t) for t in targets]
    most = max(counts)
    masks = [sample.masks for sample in samples if sample.masks is not None]
    if len(masks) not in (0, len(samples)):
        raise ValueError(f"only {len(masks)} of {len(samples)} samples have masks; a batch has one task")
    gains = [sample.color for sample in samples if sample.color is not None]
    points = max(t.keypoints.shape[1] for t in targets)
    return Batch(
        images=_stacked([sample.image for sample in samples]),
        boxes=_padded([t.boxes for t in targets], (most, 4)),
        labels=_padded([t.labels for t in targets], (most,)),
        valid=torch.arange(most)[None] < torch.tensor(counts)[:, None],
        rboxes=_padded([t.rboxes for t in targets], (most, 5))
        if any(t.rboxes.shape[0] for t in targets)
        else None,
        keypoints=_padded([t.keypoints for t in targets], (most, points, 3)) if points else None,
        indices=torch.tensor([sample.index for sample in samples]),
        sizes=torch.tensor([sample.size for sample in samples]),
        masks=_padded(masks, (most, *masks[0].shape[1:])) if masks else None,
        mask_ok=_padded([t.mask_ok for t in targets], (most,)) if masks else None,
        color=torch.tensor(gains, dtype=torch.float64) if gains else None,
    )


def _stacked(images: Sequence[Tensor]) -> Tensor:
    if all(image.stride(0) == 1 for image in images):
        # channels side by side stay so: taking them apart is the device's work
        return torch.stack([image.permute(1, 2, 0) for image in images]).permute(0, 3, 1, 2)
    return torch.stack(list(images))


def _padded(rows: Sequence[Tensor], shape: tuple[int, ...]) -> Tensor:
    out = torch.zeros((len(rows), *shape), dtype=rows[0].dtype)
    for at, row in enumerate(rows):
        if row.shape[0]:
            out[at, : row.shape[0]] = row
    return out
