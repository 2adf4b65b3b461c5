"""How many loader workers a machine can feed."""

from __future__ import annotations

import math
import os
import shutil
import warnings
from pathlib import Path

PREFETCH = 2


def available_cpus() -> int:
    """Return the processors this process may use: its affinity mask, cut by a cgroup quota.

    >>> available_cpus() >= 1
    True
    """
    allowed = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1
    quota = _cgroup_quota()
    return max(1, min(allowed, math.ceil(quota)) if quota else allowed)


def available_memory() -> int:
    """Return the bytes this process may take: what the system has free, cut by a container's limit.

    >>> available_memory() > 0
    True
    """
    try:
        lines = Path("/proc/meminfo").read_text(encoding="ascii").splitlines()
        free = next(1024 * int(line.split()[1]) for line in lines if line.startswith("MemAvailable:"))
    except (OSError, StopIteration):
        free = (
            os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE") // 2
            if hasattr(os, "sysconf")
            else 1 << 62
        )
    return min([free, *_left_to_group()])


def default_workers(batch_size: int, image_size: int, gpu: bool = False) -> int:
    """Return a worker count: all processors but one beside a GPU, half of them where the network shares them.

    At most one worker per sample of a batch, and no more than shared memory can hold.

    >>> default_workers(1, 320)
    1
    """
    cpus = available_cpus()
    wanted = max(1, cpus - 1 if gpu else cpus // 2)
    return min(wanted, batch_size, memory_limit(batch_size, image_size))


def memory_limit(batch_size: int, image_size: int) -> int:
    """Return how many workers may prefetch uint8 batches within half of the free shared memory; at least 0."""
    shared = Path("/dev/shm")
    if not shared.is_dir():
        return 1 << 10
    return shutil.disk_usage(shared).free // 2 // (PREFETCH * batch_size * 3 * image_size**2)


def checked_workers(workers: int | None, batch_size: int, image_size: int, gpu: bool = False) -> int:
    """Return ``workers`` (None: the default), cut to what shared memory holds with a warning naming both numbers.

    Raises ValueError for a negative count.
    """
    if workers is None:
        return default_workers(batch_size, image_size, gpu)
    if workers < 0:
        raise ValueError(f"workers must be 0 or more, got {workers}")
    limit = memory_limit(batch_size, image_size)
    if workers > limit:
        warnings.warn(f"{workers} workers need more shared memory than is free; using {limit}", stacklevel=3)
    return min(workers, limit)


def _left_to_group(place: Path = Path("/sys/fs/cgroup")) -> list[int]:
    """Return the bytes that a container's limit leaves, where there is a limit."""
    try:
        limit, used = ((place / name).read_text().strip() for name in ("memory.max", "memory.current"))
        return [max(0, int(limit) - int(used))]
    except (OSError, ValueError):  # no such group, or "max"
        return []


def _cgroup_quota() -> float | None:
    """Return the CPU quota of cgroup v2 or v1 in processors, None when there is none."""
    try:
        quota, period = Path("/sys/fs/cgroup/cpu.max").read_text().split()
        return None if quota == "max" else int(quota) / int(period)
    except (OSError, ValueError):
        pass
    try:
        microseconds = int(Path("/sys/fs/cgroup/cpu/cpu.cfs_quota_us").read_text())
        every = int(Path("/sys/fs/cgroup/cpu/cpu.cfs_period_us").read_text())
    except (OSError, ValueError):
        return None
    return microseconds / every if microseconds > 0 else None
