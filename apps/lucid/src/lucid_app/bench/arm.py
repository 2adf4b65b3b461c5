"""One fit in a process of its own: ``python -m lucid_app.bench.arm CONFIG.yaml RESULT.json``.

The process ends with its parent: standard input is a pipe that the parent holds, and the end of it is the end of both.
"""

import os
import resource
import sys
import threading
import time
from dataclasses import dataclass, field
from itertools import pairwise
from pathlib import Path
from typing import Any

import torch

from lucid_app.bench.turns import wait
from lucid_app.main import one_line, status_of
from lucid_train import Progress, chosen_device, fit, load_config, write_json


@dataclass
class StepClock:
    """An observer of a fit that notes when each training batch ended."""

    ends: dict[int, list[float]] = field(default_factory=dict)

    def __call__(self, progress: Progress) -> None:
        """Note the moment of a training batch."""
        if progress.phase == "train":
            self.ends.setdefault(progress.epoch, []).append(time.perf_counter())

    def steady_ms(self) -> list[float]:
        """Return the milliseconds between batches, without the first epoch; of a single epoch, its second half."""
        epochs = [self.ends[epoch] for epoch in sorted(self.ends)]
        kept = epochs[1:] or [epoch[len(epoch) // 2 :] for epoch in epochs]
        return [1e3 * (b - a) for ends in kept for a, b in pairwise(ends)]


def measured_fit(config_file: Path) -> dict[str, Any]:
    """Return times, memory and digests of one complete fit: construction, caches, training, validation, checkpoints."""
    config = load_config(config_file)
    device = chosen_device(config.run.device)
    clock = StepClock()
    wait(device)
    start = time.perf_counter()
    result = fit(config, observer=clock)
    wait(device)
    seconds = time.perf_counter() - start
    own, children = (resource.getrusage(who) for who in (resource.RUSAGE_SELF, resource.RUSAGE_CHILDREN))
    steps = sorted(clock.steady_ms())
    unit = 2**20 if sys.platform == "darwin" else 2**10
    found: dict[str, Any] = {
        "fit_s": seconds,
        "step_ms": steps[len(steps) // 2] if steps else None,
        "cpu_s": sum(part.ru_utime + part.ru_stime for part in (own, children)),
        "rss_mib": own.ru_maxrss / unit,
        "child_rss_mib": children.ru_maxrss / unit,
        "fingerprint": result.fingerprint,
        "metrics": {name: value for name, value in result.metrics.items() if value == value},
    }
    if device == "cuda":
        found["allocated_mib"] = torch.cuda.max_memory_allocated() / 2**20
        found["reserved_mib"] = torch.cuda.max_memory_reserved() / 2**20
    return found


def end_with_parent() -> None:
    """End this process as soon as standard input does."""

    def watch() -> None:
        # not sys.stdin: a forked loader process closes its own copy, whose lock this thread would hold for ever
        while os.read(0, 1 << 12):
            pass
        os._exit(130)

    threading.Thread(target=watch, daemon=True).start()


def main(config_file: Path, result_file: Path) -> int:
    """Run the fit, write what was measured or why it failed, and return the exit status."""
    end_with_parent()
    try:
        write_json(result_file, measured_fit(config_file))
    except Exception as error:
        status = status_of(error)
        if status is None:
            raise
        write_json(result_file, {"error": one_line(error), "status": status})
        return status
    return 0


if __name__ == "__main__":
    sys.exit(main(Path(sys.argv[1]), Path(sys.argv[2])))
