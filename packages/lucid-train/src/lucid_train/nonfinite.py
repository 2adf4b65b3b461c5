"""Leaves out optimizer steps whose loss is not finite, so that nothing of them stays behind."""

from typing import Any

import lightning
import torch
from lightning.pytorch.callbacks import Callback
from torch import Tensor

from lucid_train.processes import any_of


class StepGuard(Callback):
    """Drops the gradients of a step when the loss of one of its batches is not finite, in any process.

    The buffers go back to what they were before the step, which a forward pass that overflows would spoil for good.
    Optimizer, schedule and average ask `left_out` and pass the step over; the trainer counts it. Each loss is read on
    the host before its backward pass, which makes the host wait.

    Args:
        most: how many steps in a row may be left out.
    """

    def __init__(self, most: int) -> None:
        self.most = most
        self.left_out = False
        self.total, self.in_a_row = 0, 0
        self._kept: list[Tensor] = []

    @property
    def exhausted(self) -> bool:
        """Whether more steps in a row were left out than may be."""
        return self.in_a_row > self.most

    def admits(self, loss: Tensor) -> bool:
        """Return whether the loss of a batch is finite in every process; if not, its step is left out."""
        finite = not any_of(not bool(torch.isfinite(loss.detach())))
        if not finite and not self.left_out:
            self.left_out = True
            self.total += 1
            self.in_a_row += 1
        return finite

    def on_train_batch_start(
        self, trainer: lightning.Trainer, pl_module: lightning.LightningModule, batch: Any, batch_idx: int
    ) -> None:
        """Keep the buffers when a step begins."""
        if batch_idx % trainer.accumulate_grad_batches == 0:
            self.left_out = False
            self._kept = [buffer.clone() for buffer in pl_module.buffers()]

    def on_before_optimizer_step(
        self,
        trainer: lightning.Trainer,
        pl_module: lightning.LightningModule,
        optimizer: torch.optim.Optimizer,
    ) -> None:
        """Leave the optimizer nothing to do for a step that is left out."""
        if not self.left_out:
            self.in_a_row = 0
            return
        optimizer.zero_grad(set_to_none=True)
        with torch.no_grad():
            for buffer, kept in zip(pl_module.buffers(), self._kept, strict=True):
                buffer.copy_(kept)

    def state_dict(self) -> dict[str, int]:
        """Return the counts."""
        return {"total": self.total, "in_a_row": self.in_a_row}

    def load_state_dict(self, state_dict: dict[str, int]) -> None:
        """Go on counting."""
        self.total, self.in_a_row = state_dict["total"], state_dict["in_a_row"]
