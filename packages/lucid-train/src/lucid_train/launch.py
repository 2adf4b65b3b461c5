"""Starts the processes of a fit on several devices of this machine; under ``torchrun`` a run has its processes already.

The calling process is rank 0, so progress, results and errors are its own. The others run this module, told their rank
by the variables that ``torchrun`` would set, and end with the calling one.
"""

import json
import logging
import os
import subprocess
import sys
import tempfile
import time
import traceback
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import torch
from torch.distributed import DistError, TCPStore  # type: ignore[attr-defined]

from lucid_train.config import ConfigError, FitConfig, Setting, load_config
from lucid_train.device import chosen_device
from lucid_train.processes import joined, launched

HOST = "127.0.0.1"
GRACE = 10.0
"""Seconds that processes have to end by themselves when rank 0 has ended."""


@contextmanager
def run_processes(config: FitConfig, resume: str | None) -> Iterator[FitConfig]:
    """Have the processes of a run together while the context lasts; yield the configuration with their number.

    Under ``torchrun`` the processes are there, and ``run.devices`` is theirs. Otherwise ``run.devices`` of them are
    started, each continuing ``resume``.

    Raises:
        ConfigError: the launcher started another number of processes than the configuration asks for.
        ChildProcessError: another process failed; the message is its own.
    """
    if launched():
        size = int(os.environ["WORLD_SIZE"])
        if config.run.devices not in (1, size):
            raise ConfigError(
                Setting("run.devices", config.run.devices),
                f", but the launcher started {size} processes; leave --devices out",
            )
        with joined(chosen_device(config.run.device), _meeting_place()):
            yield config.updated(run={"devices": size})
    elif config.run.devices > 1:
        with _started(config, resume):
            yield config
    else:
        yield config


def _meeting_place() -> TCPStore | None:
    """Return the store of the process that started this one, None where ``torchrun`` did."""
    if "LUCID_STORE" not in os.environ:
        return None
    port = int(os.environ["LUCID_STORE"])
    store = TCPStore(HOST, port, int(os.environ["WORLD_SIZE"]), is_master=False)
    store.set(f"ready {os.environ['RANK']}", "")
    return store


@contextmanager
def _started(config: FitConfig, resume: str | None) -> Iterator[None]:
    size, device = config.run.devices, chosen_device(config.run.device)
    threads = torch.get_num_threads()
    share = max(1, threads // size) if device == "cpu" else threads
    store = TCPStore(HOST, 0, size, is_master=True, wait_for_workers=False)
    own = _variables(0, size)
    before = {name: os.environ.get(name) for name in own}
    with tempfile.TemporaryDirectory(prefix="lucid-fit-") as folder:
        file = Path(folder) / "config.yaml"
        file.write_text(config.to_yaml(), encoding="utf-8")
        others = _Others(Path(folder))
        try:
            for rank in range(1, size):
                variables = {**_variables(rank, size), "LUCID_STORE": str(store.port)}
                others.start(rank, file, resume, {**variables, "OMP_NUM_THREADS": str(share)})
            others.wait_until_ready(store)
            os.environ.update(own)
            torch.set_num_threads(share)
            with joined(device, store):
                yield
            others.finish()
        except (RuntimeError, ChildProcessError) as error:
            # a process that has gone is noticed as a broken connection, which says nothing of why
            if (failure := others.failure(GRACE)) is not None:
                raise failure from error
            raise
        finally:
            others.end()
            torch.set_num_threads(threads)
            for name, value in before.items():
                if value is None:
                    os.environ.pop(name, None)
                else:
                    os.environ[name] = value


def _variables(rank: int, size: int) -> dict[str, str]:
    names = {"RANK": rank, "LOCAL_RANK": rank, "WORLD_SIZE": size, "LOCAL_WORLD_SIZE": size}
    return {name: str(value) for name, value in names.items()}


class _Others:
    """The processes besides rank 0."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self._running: dict[int, subprocess.Popen[bytes]] = {}

    def start(self, rank: int, config: Path, resume: str | None, variables: dict[str, str]) -> None:
        """Start one process; what it prints is kept for an error's message."""
        words = [sys.executable, "-m", "lucid_train.launch", str(config), str(self._report(rank))]
        with self._printed(rank).open("wb") as printed:
            self._running[rank] = subprocess.Popen(
                words + ([resume] if resume is not None else []),
                env={**os.environ, **variables},
                stdin=subprocess.DEVNULL,
                stdout=printed,
                stderr=printed,
            )

    def wait_until_ready(self, store: TCPStore) -> None:
        """Return when every process has reached the meeting place; ChildProcessError when one ended before."""
        for rank, process in self._running.items():
            while not store.check([f"ready {rank}"]):
                if process.poll() is not None:
                    raise ChildProcessError(f"process {rank} of the run ended before it began")
                time.sleep(0.02)

    def finish(self) -> None:
        """Wait for the processes of a finished fit; ChildProcessError when one failed."""
        for rank, process in self._running.items():
            if process.wait():
                raise ChildProcessError(f"process {rank} of the run ended with status {process.returncode}")

    def failure(self, patience: float) -> ChildProcessError | None:
        """Return the error of the first process that failed for a reason of its own, None where none did."""
        until = time.monotonic() + patience
        while time.monotonic() < until:
            for rank, process in self._running.items():
                if process.poll() is not None and (error := self._told(rank, process.returncode)) is not None:
                    return error
            if all(process.poll() is not None for process in self._running.values()):
                return None
            time.sleep(0.05)
        return None

    def end(self) -> None:
        """Leave no process behind: wait a little, then kill."""
        until = time.monotonic() + GRACE
        for process in self._running.values():
            try:
                process.wait(max(0.1, until - time.monotonic()))
            except subprocess.TimeoutExpired:
                process.kill()
                process.wait()

    def _told(self, rank: int, status: int) -> ChildProcessError | None:
        report = self._report(rank)
        if report.is_file():
            told = json.loads(report.read_text(encoding="utf-8"))
            if told["connection"]:
                return None
            return ChildProcessError(f"process {rank} of the run failed: {told['message']}")
        if status == 0:
            return None
        tail = self._printed(rank).read_text(errors="replace").strip().splitlines()[-1:]
        return ChildProcessError(f"process {rank} of the run ended with status {status}: {' '.join(tail)}")

    def _report(self, rank: int) -> Path:
        return self._folder / f"failed-{rank}.json"

    def _printed(self, rank: int) -> Path:
        return self._folder / f"printed-{rank}.txt"


def is_lost_connection(error: BaseException) -> bool:
    """Return whether an error says no more than that another process of the run is gone.

    Example:
        >>> is_lost_connection(RuntimeError("[gloo] Connection closed by peer"))
        True
    """
    if isinstance(error, DistError):
        return True
    words = ("gloo", "nccl", "connection closed", "connection reset", "broken pipe")
    return isinstance(error, RuntimeError) and any(word in str(error).lower() for word in words)


def _run_other(config: str, report: str, resume: str | None = None) -> int:
    """Run one rank's part of a fit and return its exit status; a failure is written to ``report``."""
    # imported here: fit imports this module
    from lucid_train.callbacks import Interrupted
    from lucid_train.fit import fit

    logging.getLogger("lucid").setLevel(logging.ERROR)
    try:
        fit(load_config(Path(config)), resume=resume)
    except Interrupted:
        return 0
    except Exception as error:
        traceback.print_exc()
        told = {"message": f"{type(error).__name__}: {error}", "connection": is_lost_connection(error)}
        Path(report).write_text(json.dumps(told), encoding="utf-8")
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(_run_other(*sys.argv[1:]))
