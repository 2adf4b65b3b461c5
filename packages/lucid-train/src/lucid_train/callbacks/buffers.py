"""Keeps buffers the same in every process of a run."""

import lightning
import torch
import torch.distributed as dist
from lightning.pytorch.callbacks import Callback
from torch import Tensor


class SharedBuffers(Callback):
    """Averages floating-point buffers, which are BatchNorm's running statistics, over the processes after each step.

    Each process normalises by its own batch. With the averages shared, the weight average, validation and checkpoints
    are those of the run rather than of rank 0, and equal in every process.
    """

    def __init__(self) -> None:
        self._seen_step = 0

    def on_train_start(self, trainer: lightning.Trainer, pl_module: lightning.LightningModule) -> None:
        """Remember where the run stands."""
        self._seen_step = trainer.global_step

    @torch.no_grad()
    def on_train_batch_end(
        self, trainer: lightning.Trainer, pl_module: lightning.LightningModule, *_: object
    ) -> None:
        """Average once per optimizer step; averaging is linear, so micro-batches between need none."""
        if trainer.global_step == self._seen_step:
            return
        self._seen_step = trainer.global_step
        share_buffers([buffer for buffer in pl_module.buffers() if buffer.is_floating_point()])


def share_buffers(buffers: list[Tensor]) -> None:
    """Replace tensors of one dtype by their mean over processes, in place, by one message."""
    if not buffers:
        return
    flat = torch.cat([buffer.reshape(-1) for buffer in buffers])
    dist.all_reduce(flat)
    flat /= dist.get_world_size()
    parts = torch.split(flat, [buffer.numel() for buffer in buffers])
    for buffer, part in zip(buffers, parts, strict=True):
        buffer.copy_(part.view_as(buffer))
