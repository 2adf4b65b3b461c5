"""The execution context a recording freezes or may not be used in, behind one object."""

from __future__ import annotations

from collections.abc import Hashable

import torch

_GLOBAL_HOOK_TABLES = (
    "_global_forward_hooks",
    "_global_forward_pre_hooks",
    "_global_backward_hooks",
    "_global_backward_pre_hooks",
)


class ExecutionProbe:
    """Facts about the process that a region's guards ask for; another probe may be given to a region.

    >>> ExecutionProbe().mode() is None
    True
    """

    def precision(self) -> Hashable:
        """Return the settings that select kernels or casts, which a recording freezes."""
        return (
            tuple(
                (torch.is_autocast_enabled(kind), torch.get_autocast_dtype(kind)) for kind in ("cpu", "cuda")
            ),
            torch.get_float32_matmul_precision(),
            torch.are_deterministic_algorithms_enabled(),
            torch.is_deterministic_algorithms_warn_only_enabled(),
            torch.get_default_dtype(),
            torch.backends.cuda.matmul.allow_fp16_reduced_precision_reduction,
            torch.backends.cuda.matmul.allow_bf16_reduced_precision_reduction,
            torch.backends.cuda.preferred_blas_library(),
            torch.backends.cudnn.enabled,
            torch.backends.cudnn.benchmark,
            torch.backends.cudnn.deterministic,
            torch.backends.cudnn.allow_tf32,
            torch.backends.mkldnn.enabled,
        )

    def mode(self) -> str | None:
        """Return the name of a mode that no recording may be made or used in, or None.

        Observers below autograd (dispatch modes) are among them: a replay would show them nothing.
        """
        if torch.is_inference_mode_enabled():
            return "inference mode"
        if torch.is_anomaly_enabled():
            return "anomaly detection"
        if torch.compiler.is_compiling() or torch._C._get_tracing_state() is not None:
            return "a compiler or tracer"
        if torch._C._functorch.peek_interpreter_stack() is not None:
            return "a function transform"
        return "a dispatch mode" if torch._C._len_torch_dispatch_stack() else None

    def processes(self) -> int:
        """Return how many processes train together."""
        together = torch.distributed.is_available() and torch.distributed.is_initialized()
        return torch.distributed.get_world_size() if together else 1

    def global_hooks(self) -> bool:
        """Return whether any hook on all modules is installed; a replay would not call it."""
        return any(getattr(torch.nn.modules.module, table) for table in _GLOBAL_HOOK_TABLES)
