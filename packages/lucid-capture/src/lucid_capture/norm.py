"""The total norm of gradients as a recording; the scaling that follows stays native."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

import torch
from torch import Tensor

from lucid_capture.backend import RecorderBackend
from lucid_capture.reason import Outcome, Reason
from lucid_capture.region import GuardedRegion


class GradientNorm:
    """Clips gradients like `torch.nn.utils.clip_grad_norm_`, with the total norm replayed.

    The norm is recorded on private copies. Scaling acts on the live gradients with the limit of the call, so
    a limit may change from step to step and shared gradients keep torch's semantics. Gradients that are
    offset views or not dense make a call native; another set, layout or stream retires the recording.
    ``region`` holds the counters.

    >>> from lucid_capture import TapeBackend
    >>> weight = torch.nn.Parameter(torch.zeros(2))
    >>> weight.grad = torch.tensor([3.0, 4.0])
    >>> clipper = GradientNorm(backend=TapeBackend())
    >>> clipper.clip_([weight], max_norm=1.0).item(), weight.grad.norm().item() <= 1.0
    (5.0, True)
    """

    def __init__(self, *, norm_type: float = 2.0, backend: RecorderBackend | None = None) -> None:
        self.region = GuardedRegion(
            "gradient norm",
            lambda gradients: torch.nn.utils.get_total_norm(gradients, norm_type),
            backend=backend,
            policy={Reason.SIGNATURE: Outcome.RETIRE, Reason.STREAM: Outcome.RETIRE},
            admit=lambda gradients: all(map(_dense, gradients)),
        )

    @torch.no_grad()
    def __call__(self, gradients: Sequence[Tensor]) -> Tensor:
        """Return the total norm of ``gradients``, a 0-d tensor; zero when there are none."""
        if not gradients:
            return torch.zeros(())
        norm: Tensor = self.region(list(gradients))
        return norm

    def clip_(self, parameters: Iterable[Tensor], max_norm: float) -> Tensor:
        """Scale the gradients in place so that their total norm is at most ``max_norm``; return the norm."""
        with_gradient = [p for p in parameters if p.grad is not None]
        total = self([p.grad for p in with_gradient if p.grad is not None])
        torch.nn.utils.clip_grads_with_norm_(with_gradient, max_norm, total)
        return total


def _dense(gradient: Tensor) -> bool:
    formats = (torch.contiguous_format, torch.channels_last)
    return bool(gradient.storage_offset() == 0) and any(
        bool(gradient.is_contiguous(memory_format=f)) for f in formats
    )
