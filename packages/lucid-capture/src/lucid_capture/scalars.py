"""Host numbers that recorded work reads: 0-d tensors at fixed addresses, filled between replays."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, MutableMapping

import torch
from torch import Tensor

from lucid_capture.signature import scalar_bits


class HostScalars(MutableMapping[str, float]):
    """Numbers by name, each mirrored in a 0-d float64 tensor on ``device`` that a recording may read.

    A number written into a recording as a host scalar would stay what it was; here setting it fills the
    tensor, and only when its bits change. The names are fixed: another one raises KeyError. float64 keeps
    every bit of a host number, so ``x * tensor`` rounds like ``x * number`` for an x with dimensions; devices
    without it (mps) get float32.

    >>> scalars = HostScalars({"alpha": 0.8})
    >>> scalars["alpha"] = 0.1
    >>> scalars.tensors["alpha"].item()
    0.1
    """

    def __init__(self, values: Mapping[str, float], device: torch.device | str = "cpu") -> None:
        self._values = {name: float(value) for name, value in values.items()}
        dtype = torch.float32 if torch.device(device).type == "mps" else torch.float64
        self.tensors: dict[str, Tensor] = {
            name: torch.full((), value, dtype=dtype, device=device) for name, value in self._values.items()
        }

    def __getitem__(self, name: str) -> float:
        return self._values[name]

    def __setitem__(self, name: str, value: float) -> None:
        if name not in self._values:
            raise KeyError(f"no scalar {name!r}; this step was built with {sorted(self._values)}")
        if scalar_bits(float(value)) != scalar_bits(self._values[name]):
            self._values[name] = float(value)
            self.tensors[name].fill_(float(value))

    def __delitem__(self, name: str) -> None:
        raise KeyError(f"scalar {name!r} cannot be removed: recordings may read it")

    def __iter__(self) -> Iterator[str]:
        return iter(self._values)

    def __len__(self) -> int:
        return len(self._values)
