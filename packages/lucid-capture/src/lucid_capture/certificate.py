"""What a recording relies on beyond its arguments, as facts that can be taken again and compared."""

from __future__ import annotations

from collections.abc import Callable, Hashable, Iterator, Mapping
from typing import Any, Protocol

import torch
from torch import Tensor, nn

from lucid_capture.reason import Reason
from lucid_capture.signature import TensorSignature, scalar_bits

_HOOK_TABLES = (
    "_forward_hooks",
    "_forward_pre_hooks",
    "_backward_hooks",
    "_backward_pre_hooks",
)
_GLOBAL_HOOK_TABLES = (
    "_global_forward_hooks",
    "_global_forward_pre_hooks",
    "_global_backward_hooks",
    "_global_backward_pre_hooks",
)


class Certificate(Protocol):
    """The state a region reads besides its arguments, and facts about it."""

    def parameters(self) -> tuple[Tensor, ...]:
        """Return the tensors that receive gradients."""

    def buffers(self) -> tuple[Tensor, ...]:
        """Return the tensors that a run may change and that recording has to put back."""

    def facts(self) -> Mapping[Reason, Hashable]:
        """Return what must be unchanged for a recording to stand, by the reason a change would give."""


class FunctionCertificate:
    """The certificate of a pure function: no parameters, no buffers, only constants the recording bakes in.

    ``constants`` are read through the callables at every call, so a changed gain is noticed.

    >>> FunctionCertificate(gain=lambda: 2.0).parameters()
    ()
    """

    def __init__(self, **constants: Callable[[], Any]) -> None:
        self._constants = constants

    def parameters(self) -> tuple[Tensor, ...]:
        """Return nothing: gradients reach the arguments alone."""
        return ()

    def buffers(self) -> tuple[Tensor, ...]:
        """Return nothing."""
        return ()

    def facts(self) -> Mapping[Reason, Hashable]:
        """Return the constants by name, type and bits."""
        values = {name: read() for name, read in self._constants.items()}
        return {Reason.CONTRACT: tuple((n, type(v), scalar_bits(v)) for n, v in values.items())}


class ModuleCertificate:
    """The certificate of modules: tensors by address and layout, topology, forwards, hooks, training flags.

    >>> sorted(reason.name for reason in ModuleCertificate(nn.Linear(2, 1)).facts())
    ['HOOKS', 'MODE', 'STORAGE', 'STRUCTURE', 'TRAINABLE']
    """

    def __init__(self, *modules: nn.Module) -> None:
        self._modules = modules

    def parameters(self) -> tuple[Tensor, ...]:
        """Return the parameters that require gradients, in the modules' order."""
        return tuple(p for m in self._modules for p in m.parameters() if p.requires_grad)

    def buffers(self) -> tuple[Tensor, ...]:
        """Return every buffer, in the modules' order."""
        return tuple(b for m in self._modules for b in m.buffers())

    def facts(self) -> Mapping[Reason, Hashable]:
        """Return the facts by reason; takes one walk over the modules."""
        walk = [(name, module) for m in self._modules for name, module in m.named_modules()]
        tensors = list(self._tensors())
        return {
            Reason.STRUCTURE: tuple(
                (n, id(m), type(m), type(m).forward, id(m.__dict__.get("forward"))) for n, m in walk
            ),
            Reason.HOOKS: any(getattr(m, table) for _, m in walk for table in _HOOK_TABLES),
            Reason.MODE: tuple(m.training for _, m in walk),
            Reason.TRAINABLE: tuple(t.requires_grad for t in tensors),
            Reason.STORAGE: tuple(_surface(t) for t in tensors),
        }

    def _tensors(self) -> Iterator[Tensor]:
        for module in self._modules:
            yield from module.parameters()
            yield from module.buffers()


def precision_facts() -> Hashable:
    """Return the settings that select kernels or casts, which a recording freezes."""
    return (
        tuple((torch.is_autocast_enabled(kind), torch.get_autocast_dtype(kind)) for kind in ("cpu", "cuda")),
        torch.get_float32_matmul_precision(),
        torch.are_deterministic_algorithms_enabled(),
        torch.is_deterministic_algorithms_warn_only_enabled(),
        torch.get_default_dtype(),
        torch.backends.cuda.matmul.allow_fp16_reduced_precision_reduction,
        torch.backends.cuda.matmul.allow_bf16_reduced_precision_reduction,
        torch.backends.cudnn.enabled,
        torch.backends.cudnn.benchmark,
        torch.backends.cudnn.deterministic,
        torch.backends.mkldnn.enabled,
    )


def global_hooks_installed() -> bool:
    """Return whether any hook on all modules is installed; a replay would not call it."""
    return any(getattr(torch.nn.modules.module, table) for table in _GLOBAL_HOOK_TABLES)


def _surface(tensor: Tensor) -> Hashable:
    # requires_grad has a reason of its own
    layout = TensorSignature(
        tuple(tensor.shape), tensor.stride(), tensor.dtype, tensor.device, False, type(tensor)
    )
    return id(tensor), tensor.data_ptr(), tensor.is_neg(), tensor.is_conj(), layout
