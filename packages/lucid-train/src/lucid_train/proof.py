"""The proof of every switch: short seeded fits with it and without it, held to the same bytes.

Each fit has what training has: two epochs with a validation after each, accumulation, clipping, a partial last batch
and one batch without objects. A switch is proved when the fit with it has the fingerprint of the native one and its
recordings were launched; a recording that never ran would prove nothing.
"""

import json
import logging
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from types import MappingProxyType
from typing import Any

from lucid_data import synthetic
from lucid_train.config import ConfigError, FitConfig, load_config
from lucid_train.datamodule import DetectionDataModule
from lucid_train.fit import FitResult, fit
from lucid_train.replay import REPLAY_SWITCHES, replay_plan
from lucid_train.switches import check_switches, numba_fault
from lucid_train.tasks import TASK_TABLE

BATCH = 3

SPEED_SWITCHES: Mapping[str, Mapping[str, Any]] = MappingProxyType(
    {
        "device_hsv": {"data.device_hsv": True},
        "fused_hsv": {"data.fused_hsv": True},
        "epoch_prefetch": {"data.epoch_prefetch": True, "data.workers": 1},
        "cache_train_images": {"data.cache_train_images": True},
        "cache_prepared_train_images": {"data.cache_prepared_train_images": True},
        "fused_assignment": {"loss.fused_assignment": True},
    }
)
"""The switches that record nothing, and the settings of a fit that has one."""


@dataclass(frozen=True)
class ProofRow:
    """One fit of the matrix.

    Attributes:
        task: what was learned.
        switch: ``native``, the name of a switch, or ``all`` of the task's that go together.
        equal: whether the fingerprint is the native one's; None where the switch cannot be had here.
        launches: launches of recordings, forward and backward.
        idle: recordings of the switch that were never launched.
        eager: calls that a recording left to native execution.
        why: why there was no such fit.
        differs: the parts of the fingerprint that differ.
    """

    task: str
    switch: str
    equal: bool | None
    launches: int = 0
    idle: tuple[str, ...] = ()
    eager: int = 0
    why: str = ""
    differs: tuple[str, ...] = ()

    @property
    def proved(self) -> bool:
        """Whether nothing speaks against the switch: equal, and launched where it records; or not to be had here."""
        recorded = self.switch == "all" or self.switch in REPLAY_SWITCHES
        return self.equal is None or (self.equal and ((self.launches > 0 and not self.idle) or not recorded))


def prove(
    folder: Path,
    tasks: Sequence[str] = tuple(TASK_TABLE),
    switches: Sequence[str] | None = None,
    *,
    device: str = "cpu",
) -> Iterator[ProofRow]:
    """Yield a row per fit: for each task the native one, each switch alone, and all that go together.

    Args:
        folder: where scenes and runs are written.
        tasks: tasks of the matrix.
        switches: those to prove, ``all`` among them; None proves every one.
        device: ``cpu``, where the tape stands in for CUDA graphs, or ``cuda``.

    Raises:
        ConfigError: an unknown task or switch.

    Example:
        >>> import tempfile
        >>> with tempfile.TemporaryDirectory() as folder:
        ...     [row.equal for row in prove(Path(folder), ["detect"], ["capture_gradient_norm"])]
        [True, True]
    """
    known = (*REPLAY_SWITCHES, *SPEED_SWITCHES, "all")
    for kind, given, names in (("task", tasks, tuple(TASK_TABLE)), ("switch", switches or (), known)):
        if unknown := [name for name in given if name not in names]:
            raise ConfigError(f"{kind} {unknown[0]!r} is none of {', '.join(names)}")
    for task in tasks:
        base = _base(folder, task, device)
        with _silent():
            _scenes(base)
            native = fit(base)
        yield ProofRow(task, "native", True)
        for switch in known if switches is None else switches:
            if switch in REPLAY_SWITCHES and task not in REPLAY_SWITCHES[switch].tasks:
                continue
            config = _with(base, _settings(task, switch, device), folder / f"{task}-{switch}")
            if device != "cpu" and switch in REPLAY_SWITCHES and REPLAY_SWITCHES[switch].bounded:
                why = f"{switch} learns what is close to the native bytes, not the same; its trace is proved on the CPU"
                yield ProofRow(task, switch, None, why=why)
                continue
            try:
                check_switches(config)
                replay_plan(config)
            except ConfigError as refused:
                yield ProofRow(task, switch, None, why=str(refused))
                continue
            with _silent():
                found = fit(config)
            yield _compared(task, switch, native, found)


def _compared(task: str, switch: str, native: FitResult, found: FitResult) -> ProofRow:
    before, after = native.fingerprint or {}, found.fingerprint or {}
    options = found.replay["options"]
    regions = [region for some in options.values() for region in some]
    idle = tuple(
        f"{option}: {region['name']}"
        for option, some in options.items()
        for region in some
        # updates hold the orthogonalisation of their matrices themselves
        if not region["forward_launches"]
        and not (option == "capture_orthogonalization" and "capture_updates" in options)
    )
    return ProofRow(
        task,
        switch,
        equal=bool(before) and before == after,
        launches=sum(region["forward_launches"] + region["backward_launches"] for region in regions),
        idle=idle,
        eager=sum(sum(region["native"].values()) for region in regions),
        differs=tuple(part for part in before if before[part] != after.get(part)),
    )


def _base(folder: Path, task: str, device: str) -> FitConfig:
    settings = {
        "data.path": str(folder / task),
        "data.image_size": 32,
        "data.batch": BATCH,
        "data.workers": 0,
        "augment.mosaic": 0.0,
        "augment.mixup": 0.0,
        "optimizer.accumulate": 2,
        "run.epochs": 2,
        "run.device": device,
        # the heads of segment keep the native bytes in this precision alone
        "run.precision": "bf16-mixed" if task == "segment" else "32",
        "run.fingerprint": True,
        "run.output": str(folder / f"{task}-native"),
    }
    return load_config(task, settings)


def _with(base: FitConfig, settings: Mapping[str, Any], output: Path) -> FitConfig:
    sections: dict[str, dict[str, Any]] = {"run": {"output": output}}
    for dotted, value in settings.items():
        section, _, key = dotted.partition(".")
        sections.setdefault(section, {})[key] = value
    return base.updated(**sections)


def _settings(task: str, switch: str, device: str) -> dict[str, Any]:
    backend = {"replay.backend": "tape" if device == "cpu" else "auto"}
    if switch in SPEED_SWITCHES:
        return dict(SPEED_SWITCHES[switch])
    if switch != "all":
        return {f"replay.{switch}": True, **backend}
    together = {"replay.mode": "step", **backend}
    # one cache holds all images already, and kernels need their device or compiler
    here = {
        "cache_train_images": False,
        "fused_assignment": device == "cuda",
        "fused_hsv": numba_fault() is None,
    }
    for name, settings in SPEED_SWITCHES.items():
        if here.get(name, True):
            together |= settings
    return together


def _scenes(base: FitConfig) -> None:
    """Write a task's scenes, without labels for the first batch of the second epoch."""
    root = base.data.path
    assert root is not None
    synthetic.write_coco(root, splits={"train": 8, "val": 2}, size=64, seed=3, task=base.model.task)
    data = DetectionDataModule(base)
    loader = data.train_dataloader()
    loader.set_epoch(1)
    emptied = {data.train_catalog.image_ids[index] for index in next(iter(loader)).indices.tolist()}
    (file,) = (root / "annotations").glob("*_train.json")
    document = json.loads(file.read_text(encoding="utf-8"))
    document["annotations"] = [one for one in document["annotations"] if one["image_id"] not in emptied]
    file.write_text(json.dumps(document), encoding="utf-8")


@contextmanager
def _silent() -> Iterator[None]:
    """Keep what a fit says about itself to itself."""
    log = logging.getLogger("lucid")
    before = log.level
    log.setLevel(logging.ERROR)
    try:
        yield
    finally:
        log.setLevel(before)
