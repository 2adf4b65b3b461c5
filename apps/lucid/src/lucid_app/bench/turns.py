"""Times of competitors that take turns, so that a busy moment of the machine meets all of them."""

import statistics
import time
from collections.abc import Callable, Mapping

import torch

Calls = Mapping[str, Callable[[], object]]


def wait(device: str) -> None:
    """Wait until the device has done what it was given."""
    if device.startswith("cuda"):
        torch.cuda.synchronize(device)


def times(
    calls: Calls, rounds: int, device: str = "cpu", *, warm: int = 1, repeat: int = 1
) -> dict[str, list[float]]:
    """Return the milliseconds of each call in each round, the device idle at both ends.

    Every call is first made ``warm`` times unmeasured; the order turns round from one round to the next. ``repeat``
    calls are timed together where one is too short for the clock.
    """
    taken: dict[str, list[float]] = {name: [] for name in calls}
    for call in calls.values():
        for _ in range(warm):
            call()
    for number in range(rounds):
        for name in list(calls)[:: 1 if number % 2 == 0 else -1]:
            call = calls[name]
            wait(device)
            start = time.perf_counter()
            for _ in range(repeat):
                call()
            wait(device)
            taken[name].append((time.perf_counter() - start) * 1e3 / repeat)
    return taken


def medians(
    calls: Calls, rounds: int, device: str = "cpu", *, warm: int = 1, repeat: int = 1
) -> dict[str, float]:
    """Return the median milliseconds of each call; see :func:`times`."""
    taken = times(calls, rounds, device, warm=warm, repeat=repeat)
    return {name: statistics.median(ms) for name, ms in taken.items()}


def once(call: Callable[[], object], device: str = "cpu") -> float:
    """Return the milliseconds of one call, for what is too slow for rounds."""
    wait(device)
    start = time.perf_counter()
    call()
    wait(device)
    return (time.perf_counter() - start) * 1e3


def compared(
    taken: Mapping[str, list[float]], images: int, reference: str, *, ms: str = "ms", of: str, digits: int
) -> list[dict[str, object]]:
    """Return a row per route: median (column ``ms``), range, images per second, multiple of the reference (``of``).

    Example:
        >>> compared({"a": [2.0], "b": [4.0]}, 8, "a", of="of a", digits=1)[1]
        {'route': 'b', 'ms': 4.0, 'range, ms': '4.0 to 4.0', 'images/s': 2000.0, 'of a': 2.0}
    """
    base = statistics.median(taken[reference])
    rows: list[dict[str, object]] = []
    for name, found in taken.items():
        middle = statistics.median(found)
        rows.append(
            {
                "route": name,
                ms: round(middle, 1),
                "range, ms": f"{min(found):.1f} to {max(found):.1f}",
                "images/s": round(1e3 * images / middle, 1),
                of: round(middle / base, digits),
            }
        )
    return rows
