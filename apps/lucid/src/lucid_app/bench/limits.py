"""What the machine could do at most, measured in the same run: rates of a matrix product and of a copy."""

import time
from collections.abc import Callable

import torch
from torch.utils.flop_counter import FlopCounterMode

from lucid_app.bench.turns import wait


def flops_of(call: Callable[[], object]) -> int:
    """Return the floating-point operations of a call's products and convolutions, two per multiply-add.

    Example:
        >>> a = torch.ones(2, 3)
        >>> flops_of(lambda: a @ a.T)
        24
    """
    with FlopCounterMode(display=False) as counter:
        call()
    return int(counter.get_total_flops())


def matrix_rate(device: str, dtype: torch.dtype, *, side: int | None = None) -> float:
    """Return the operations per second of the best of several square matrix products.

    On CUDA those of float32 use TF32 where convolutions may, for they are what is held to this rate.
    """
    side = side or (8192 if device.startswith("cuda") else 1536)
    a = torch.randn(side, side, device=device).to(dtype)
    before = torch.backends.cuda.matmul.allow_tf32
    torch.backends.cuda.matmul.allow_tf32 = torch.backends.cudnn.allow_tf32
    try:
        return 2 * side**3 / _fastest(lambda: a @ a, device)
    finally:
        torch.backends.cuda.matmul.allow_tf32 = before


def copy_rate(device: str, *, bytes_moved: int | None = None) -> float:
    """Return the bytes per second, read and written, of the best of several copies of a large buffer."""
    size = (bytes_moved or (1 << 30 if device.startswith("cuda") else 1 << 27)) // 2
    source = torch.zeros(size, dtype=torch.uint8, device=device)
    target = torch.empty_like(source)
    return 2 * size / _fastest(lambda: target.copy_(source), device)


def compute_limit(what: str, flops: int, rate: float, ms: float) -> str:
    """Return the roofline line of a computation.

    Example:
        >>> compute_limit("step", 2_000_000_000, 100e9, 40.0)
        'step: 2.0 GFLOP at the 100 GFLOP/s of a matrix product here take at least 20.0 ms; measured 40.0 ms, 50 %'
    """
    least = 1e3 * flops / rate
    return (
        f"{what}: {flops / 1e9:.1f} GFLOP at the {rate / 1e9:,.0f} GFLOP/s of a matrix product here take at least "
        f"{least:.1f} ms; measured {ms:.1f} ms, {100 * least / ms:.0f} %"
    )


def memory_limit(what: str, moved: int, rate: float, ms: float) -> str:
    """Return the roofline line of a pass over memory.

    Example:
        >>> memory_limit("average", 20_000_000, 10e9, 4.0)
        'average: 20.0 MB at the 10.0 GB/s of a copy here take at least 2.00 ms; measured 4.00 ms, 50 %'
    """
    least = 1e3 * moved / rate
    return (
        f"{what}: {moved / 1e6:.1f} MB at the {rate / 1e9:.1f} GB/s of a copy here take at least {least:.2f} ms; "
        f"measured {ms:.2f} ms, {100 * least / ms:.0f} %"
    )


def _fastest(call: Callable[[], object], device: str, rounds: int = 5) -> float:
    best = float("inf")
    for _ in range(rounds + 1):
        wait(device)
        start = time.perf_counter()
        call()
        wait(device)
        best = min(best, time.perf_counter() - start)
    return best
