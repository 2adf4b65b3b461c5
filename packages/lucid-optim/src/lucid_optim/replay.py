"""Orthogonalisation, and the whole preparation of updates, as declarations on guarded regions.

Nothing a schedule changes is part of a recording: the learning rate acts after it, and a changed momentum,
decay, gain or step count is noticed by type and bits.
"""

from __future__ import annotations

from collections.abc import Callable, Hashable, Mapping, Sequence
from operator import attrgetter
from typing import Any

import torch
from torch import Tensor

from lucid_capture import ExecutionProbe, GuardedRegion, Outcome, Reason, RecorderBackend
from lucid_optim.newton_schulz import Route
from lucid_optim.updates import Orthogonalizers, orthogonalize, orthogonalize_batch

_layout = attrgetter("shape", "dtype", "device")

# settings that are baked into a recording of a group's updates
_SCALARS = ("momentum", "weight_decay", "w_muon", "w_sgd", "ns_steps", "ns_preset")


def orthogonalization_region(backend: RecorderBackend) -> GuardedRegion:
    """Return the region of the two pure functions; it keeps one recording per signature, up to its capacity.

    The execution context is an argument, so another precision or stream has a recording of its own. Calls
    under autograd or autocast and on offset or strided memory are native.
    """
    return GuardedRegion(
        "orthogonalization",
        _orthogonalize,
        backend=backend,
        admit=_plain,
        policy={Reason.UNSUPPORTED: Outcome.NATIVE_ONCE, Reason.PRECISION: Outcome.NATIVE_ONCE},
    )


def replayed(region: GuardedRegion) -> Orthogonalizers:
    """Return the two functions by way of ``region``."""

    def scalar(x: Tensor, steps: int, preset: str) -> Tensor:
        result: Tensor = region("scalar", x, steps, preset, "", _context(region))
        return result

    def batched(x: Tensor, steps: int, preset: str, route: Route) -> Tensor:
        result: Tensor = region("batched", x, steps, preset, route, _context(region))
        return result

    return Orthogonalizers(scalar, batched)


def updates_region(
    name: str,
    prepare: Callable[[list[Tensor]], list[Tensor]],
    certificate: UpdateCertificate,
    backend: RecorderBackend,
) -> GuardedRegion:
    """Return the region of ``prepare``, which advances the buffers and returns every update of a group.

    A change of what the certificate names makes one call native and drops the recording; the next but one
    records again.
    """
    return GuardedRegion(
        name,
        prepare,
        backend=backend,
        certificate=certificate,
        admit=lambda grads: not torch.is_grad_enabled() and not _autocast(grads[0].device),
        policy={
            Reason.UNSUPPORTED: Outcome.NATIVE_ONCE,
            Reason.STORAGE: Outcome.DROP,
            Reason.CONTRACT: Outcome.DROP,
            Reason.PRECISION: Outcome.DROP,
        },
    )


class UpdateCertificate:
    """What a recording of a group's updates relies on besides gradients: weights, buffers, settings.

    ``read`` returns the group's parameters, their momentum buffers, its settings and the route.
    """

    def __init__(
        self,
        read: Callable[[], tuple[Sequence[Tensor], Sequence[Tensor], Mapping[str, Any], Route | None]],
    ) -> None:
        self._read = read

    def parameters(self) -> tuple[Tensor, ...]:
        """Return the weights, which decay reads."""
        return tuple(self._read()[0])

    def buffers(self) -> tuple[Tensor, ...]:
        """Return the momentum buffers, which recording must put back."""
        return tuple(self._read()[1])

    def facts(self) -> Mapping[Reason, Hashable]:
        """Return the identity and layout of every tensor, and the settings by type and bits."""
        parameters, buffers, settings, route = self._read()
        tensors = (*parameters, *buffers)
        # repr tells 5 from 5.0 and -0.0 from 0.0, and gives every bit of a float
        scalars = tuple((name, type(settings[name]), repr(settings[name])) for name in _SCALARS)
        return {
            Reason.STORAGE: (
                tuple(map(id, tensors)),
                tuple(map(Tensor.data_ptr, tensors)),
                tuple(map(Tensor.stride, tensors)),
                tuple(map(_layout, tensors)),
            ),
            Reason.CONTRACT: (scalars, route),
        }


def _orthogonalize(function: str, x: Tensor, steps: int, preset: str, route: Any, context: str) -> Tensor:
    return (
        orthogonalize(x, steps, preset)
        if function == "scalar"
        else orthogonalize_batch(x, steps, preset, route)
    )


def _plain(function: str, x: Tensor, steps: Any, *_: Any) -> bool:
    """Return whether a call may be replayed: memory of its own, and nothing that observes or casts."""
    return (
        x.is_contiguous()
        and bool(x.storage_offset() == 0)
        and isinstance(steps, int | float)
        and not torch.is_grad_enabled()
        and not _autocast(x.device)
    )


def _context(region: GuardedRegion) -> str:
    probe: ExecutionProbe = region.probe
    return repr((region.backend.stream(), probe.precision()))


def _autocast(device: torch.device) -> bool:
    return torch.is_autocast_enabled(device.type)
