"""Counter-based random numbers: a sample's draws depend on (seed, epoch, index) and on nothing else.

Mixing and stream are splitmix64 (Steele, Lea and Flood, OOPSLA 2014). Python's, NumPy's and torch's global
generators are never touched, so neither worker count, batch size, order nor a resume point changes a sample.
"""

from __future__ import annotations

import math
from typing import Final

import numpy as np
import numpy.typing as npt

_MASK: Final = (1 << 64) - 1
_GAMMA: Final = 0x9E3779B97F4A7C15
_MUL_1: Final = 0xBF58476D1CE4E5B9
_MUL_2: Final = 0x94D049BB133111EB
_SHUFFLE: Final = (1 << 63) - 1


def _finalise(z: int) -> int:
    z = ((z ^ (z >> 30)) * _MUL_1) & _MASK
    z = ((z ^ (z >> 27)) * _MUL_2) & _MASK
    return z ^ (z >> 31)


def mix64(seed: int, epoch: int, index: int) -> int:
    """Return 63 well-mixed bits of the three counters.

    >>> mix64(0, 0, 1) != mix64(0, 1, 0)
    True
    """
    return _finalise((seed * _GAMMA + epoch * _MUL_1 + index * _MUL_2) & _MASK) >> 1


class Stream:
    """A splitmix64 stream of draws.

    >>> Stream(7).uniform(2.0, 3.0) == Stream(7).uniform(2.0, 3.0)
    True
    """

    def __init__(self, state: int) -> None:
        self._state = state & _MASK

    @classmethod
    def of(cls, seed: int, epoch: int, index: int) -> Stream:
        """Return the stream of one sample."""
        return cls(mix64(seed, epoch, index))

    def bits(self) -> int:
        """Return the next 64 bits."""
        self._state = (self._state + _GAMMA) & _MASK
        return _finalise(self._state)

    def unit(self) -> float:
        """Return a float64 in [0, 1) with 53 random bits."""
        return (self.bits() >> 11) * 2.0**-53

    def uniform(self, low: float, high: float) -> float:
        """Return a float64 in [low, high); equal ends consume nothing."""
        return low if low == high else low + (high - low) * self.unit()

    def integer(self, n: int) -> int:
        """Return an integer in [0, n); the bias is below n / 2**64."""
        return (self.bits() * n) >> 64

    def beta(self, shape: float) -> float:
        """Return a Beta(shape, shape) draw as X / (X + Y) of two Gamma(shape, 1) draws; shape >= 1."""
        x, y = self._gamma(shape), self._gamma(shape)
        return x / (x + y)

    def _gamma(self, shape: float) -> float:
        # Marsaglia and Tsang, ACM TOMS 26(3), 2000
        d = shape - 1.0 / 3.0
        c = 1.0 / math.sqrt(9.0 * d)
        while True:
            x = math.sqrt(-2.0 * math.log(1.0 - self.unit())) * math.cos(2.0 * math.pi * self.unit())
            v = (1.0 + c * x) ** 3
            if v > 0 and math.log(1.0 - self.unit()) < 0.5 * x * x + d - d * v + d * math.log(v):
                return d * v


def epoch_order(n: int, seed: int, epoch: int) -> npt.NDArray[np.int64]:
    """Return the order (n,) in which epoch ``epoch`` visits the indices 0..n-1.

    >>> sorted(epoch_order(5, seed=1, epoch=0).tolist())
    [0, 1, 2, 3, 4]
    """
    with np.errstate(over="ignore"):
        z = np.uint64(mix64(seed, epoch, _SHUFFLE)) + np.arange(1, n + 1, dtype=np.uint64) * np.uint64(_GAMMA)
        z = (z ^ (z >> np.uint64(30))) * np.uint64(_MUL_1)
        z = (z ^ (z >> np.uint64(27))) * np.uint64(_MUL_2)
        keys = z ^ (z >> np.uint64(31))
    return np.argsort(keys, kind="stable").astype(np.int64)
