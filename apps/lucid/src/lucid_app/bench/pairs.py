"""Alternating pairs of fits in fresh processes, kept pair by pair so that an interrupted measurement loses none.

The protocol: a warm-up pair that is not counted, then pairs whose order alternates, each fit in a process of its own,
then one pair at a larger batch. No run is dropped for being slow.
"""

import hashlib
import json
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from importlib.util import find_spec
from pathlib import Path
from typing import Any

from lucid_app.bench.record import machine
from lucid_train import ConfigError, FitConfig, chosen_device, write_json, write_text

ARMS = ("baseline", "candidate")
SCREEN = "screen-"
"""Begins the name of the pair at a larger batch."""
PACKAGES = tuple(
    f"lucid_{name}" for name in ("app", "capture", "data", "geometry", "models", "optim", "train", "viz")
)
LIBRARIES = ("lightning", "torchvision", "triton")
Pair = dict[str, dict[str, Any]]
Say = Callable[[str], None]
FitOnce = Callable[[str, str, FitConfig, Path], dict[str, Any]]


@dataclass(frozen=True)
class Plan:
    """What is measured.

    Attributes:
        files: where each arm's configuration was read from.
        configs: the two configurations by arm.
        screen_batch: the batch of the last pair.
    """

    files: Mapping[str, str]
    configs: Mapping[str, FitConfig]
    screen_batch: int

    @property
    def device(self) -> str:
        """The device of the baseline."""
        return chosen_device(self.configs["baseline"].run.device)

    def differences(self) -> list[dict[str, Any]]:
        """Return a row per key in which the arms differ."""
        rows = []
        before, after = (self.configs[arm].model_dump(mode="json") for arm in ARMS)
        for section, values in before.items():
            for key, value in values.items():
                other = after[section][key]
                if value != other:
                    rows.append(
                        {"setting": f"{section}.{key}", "baseline": str(value), "candidate": str(other)}
                    )
        return rows

    def identity(self) -> dict[str, Any]:
        """Return what must be the same when a measurement is continued."""
        return {
            "configs": {arm: config.model_dump(mode="json") for arm, config in self.configs.items()},
            "machine": machine(self.device, LIBRARIES),
            "source": source_digest(),
        }


def measure_pairs(
    plan: Plan, pairs: int, folder: Path, say: Say, fit_once: FitOnce | None = None
) -> tuple[list[Pair], Pair | str]:
    """Return the counted pairs and the pair at the larger batch, measuring those that ``folder`` does not hold.

    Where the larger batch cannot be run its place is taken by the reason: the counted pairs stand without it.
    ``fit_once`` measures one fit from (arm, where its configuration is, configuration, folder to work in);
    :func:`in_fresh_process` when absent.

    Raises:
        ConfigError: the folder holds another measurement, or a configuration cannot be used.
        ValueError: a fit failed; the message is the fit's own.
    """
    _claim(folder, plan)
    run = fit_once or in_fresh_process
    screen = f"{SCREEN}{plan.screen_batch}"
    numbers = [str(number) for number in range(1, pairs + 1)]
    missing = [name for name in (*numbers, screen) if not _file(folder, name).is_file()]
    if missing:
        # after a pause the machine is cold again
        say("warm-up pair, not counted")
        _measure(plan, "warm-up", folder, say, run)
    for name in missing:
        say(f"pair at batch {plan.screen_batch}" if name == screen else f"pair {name} of {pairs}")
        try:
            measured = _measure(plan, name, folder, say, run)
        except ValueError as error:
            if name != screen:
                raise
            return [_read(folder, number) for number in numbers], str(error)
        write_json(_file(folder, name), measured)
    return [_read(folder, number) for number in numbers], _read(folder, screen)


def _read(folder: Path, name: str) -> Pair:
    pair: Pair = json.loads(_file(folder, name).read_text(encoding="utf-8"))
    return pair


def arm_order(name: str) -> tuple[str, ...]:
    """Return the order of a pair's arms: pairs of an even number begin with the candidate.

    Example:
        >>> arm_order("2")
        ('candidate', 'baseline')
    """
    return ARMS[::-1] if name.isdecimal() and int(name) % 2 == 0 else ARMS


def source_digest() -> str:
    """Return one SHA-256 over the code of every lucid package, which may change while its version stays."""
    digest = hashlib.sha256()
    for package in PACKAGES:
        spec = find_spec(package)
        for place in (spec and spec.submodule_search_locations) or ():
            for file in sorted(Path(place).rglob("*.py")):
                digest.update(f"{package} {file.relative_to(place)}\n".encode() + file.read_bytes())
    return digest.hexdigest()


def _claim(folder: Path, plan: Plan) -> None:
    file = folder / "plan.json"
    identity = json.loads(json.dumps(plan.identity()))
    if not file.is_file():
        if folder.is_dir() and any(folder.iterdir()):
            raise ConfigError(
                f"--output {folder}: holds something else; give a new folder, or one to continue"
            )
        write_json(file, identity)
        return
    stored = json.loads(file.read_text(encoding="utf-8"))
    for part, value in identity.items():
        if stored.get(part) != value:
            raise ConfigError(
                f"--output {folder}: holds a measurement of another {_PARTS[part]}; give a new folder, or repeat the "
                "command that began it"
            )


_PARTS = {
    "configs": "pair of configurations",
    "machine": "machine or version",
    "source": "state of lucid's code",
}


def _file(folder: Path, name: str) -> Path:
    return folder / "pairs" / f"{name}.json"


def _measure(plan: Plan, name: str, folder: Path, say: Say, run: FitOnce) -> Pair:
    found: Pair = {}
    for arm in arm_order(name):
        config = plan.configs[arm]
        if name.startswith(SCREEN):
            config = config.updated(data={"batch": plan.screen_batch})
        found[arm] = run(arm, plan.files[arm], config, folder)
        say(f"  {arm} {found[arm]['fit_s']:.1f} s")
    return found


def in_fresh_process(arm: str, file: str, config: FitConfig, folder: Path) -> dict[str, Any]:
    """Return what one fit in a fresh process measured; the run's folder is gone afterwards."""
    with tempfile.TemporaryDirectory(dir=folder, prefix="work-") as made:
        work = Path(made)
        written, result, log = work / "config.yaml", work / "result.json", work / "log.txt"
        config = config.updated(run={"output": work / "run", "fingerprint": True})
        write_text(written, config.to_yaml())
        words = [sys.executable, "-m", "lucid_app.bench.arm", str(written), str(result)]
        with log.open("wb") as stream:
            start = time.perf_counter()
            # the pipe tells the process when this one is gone
            with subprocess.Popen(words, stdin=subprocess.PIPE, stdout=stream, stderr=stream) as process:
                try:
                    status = process.wait()
                except BaseException:
                    process.kill()
                    raise
            seconds = time.perf_counter() - start
        if not result.is_file():
            said = log.read_text(encoding="utf-8", errors="replace").strip().splitlines()
            why = said[-1] if said else "it said nothing"
            raise ValueError(f"{arm} ({file}): the fit's process ended with status {status}: {why}")
        found: dict[str, Any] = json.loads(result.read_text(encoding="utf-8"))
    if "error" in found:
        kind = ConfigError if found["status"] == 2 else ValueError
        raise kind(f"{arm} ({file}): {found['error']}")
    return {**found, "process_s": seconds}
