"""The folder of a run: where it is, what it holds, and which configuration it belongs to."""

import contextlib
from pathlib import Path
from typing import Any

import torch

from lucid_models import describe
from lucid_train.config import ConfigError, FitConfig, ReplayConfig, Setting, load_config

# Settings that may change between the parts of a run without changing what is learned.
_FREE = {
    ("data", "path"),
    ("data", "workers"),
    ("data", "device_hsv"),
    ("data", "fused_hsv"),
    ("data", "epoch_prefetch"),
    ("data", "cache_train_images"),
    ("data", "cache_prepared_train_images"),
    ("loss", "fused_assignment"),
    ("optimizer", "skip_nonfinite"),
    ("run", "output"),
    ("run", "checkpoint_steps"),
    ("run", "fingerprint"),
    ("run", "loggers"),
    # compiled arithmetic is close to the native one, not the same
    *(("replay", key) for key in ReplayConfig.model_fields if key != "compile_step"),
}


def new_run_folder(config: FitConfig, root: Path = Path("runs")) -> Path:
    """Return the folder of a new run, created: the configured one, else the next number under ``root``.

    Raises:
        ConfigError: the configured folder already holds a run.
    """
    if config.run.output is not None:
        folder = config.run.output
        if (folder / "config.yaml").exists():
            raise ConfigError(
                f"{folder} already holds a run; continue it with --resume last or choose another --output"
            )
        folder.mkdir(parents=True, exist_ok=True)
        return folder
    root.mkdir(parents=True, exist_ok=True)
    stem = f"{config.model.task}-{config.model.size}"
    number = 1
    while True:
        folder = root / f"{stem}-{number}"
        try:
            folder.mkdir()
        except FileExistsError:
            number += 1
        else:
            return folder


def find_run(output: Path | None, resume: str, root: Path = Path("runs")) -> tuple[Path, Path | None]:
    """Return the folder and checkpoint that ``resume`` names; no checkpoint when the run had not saved one yet.

    Args:
        output: the run's folder, when given.
        resume: ``"last"`` or the path of a checkpoint inside a run's ``checkpoints`` folder.
        root: where numbered runs are.

    Raises:
        ConfigError: there is nothing to resume.
    """
    if resume != "last":
        checkpoint = Path(resume)
        if not checkpoint.is_file():
            raise ConfigError(f"--resume {resume}: no such checkpoint; give its path, or 'last'")
        folder = checkpoint.resolve().parent.parent
        if not (folder / "config.yaml").is_file():
            raise ConfigError(
                f"--resume {resume}: it does not lie in a run's checkpoints folder; start from its weights with --init"
            )
        if output is not None and output.resolve() != folder:
            raise ConfigError(
                f"--resume {resume} continues the run in {folder}; leave --output {output} away"
            )
        return folder, checkpoint
    folder = output or max(
        (path.parent for path in root.glob("*/config.yaml")),
        key=lambda path: (path / "config.yaml").stat().st_mtime,
        default=root,
    )
    if not (folder / "config.yaml").is_file():
        raise ConfigError(f"--resume last: no run in {folder}; name its folder with --output")
    checkpoint = folder / "checkpoints" / "last.ckpt"
    return folder, checkpoint if checkpoint.is_file() else None


def forget_run(folder: Path) -> None:
    """Take back a run that made no step: its configuration, and its folder when nothing else is in it."""
    (folder / "config.yaml").unlink(missing_ok=True)
    with contextlib.suppress(OSError):  # not empty: the rest is somebody's
        folder.rmdir()


def require_same_data(checkpoint: Path, identity: dict[str, Any]) -> None:
    """Raise ConfigError where a checkpoint is not that of a run on this training set.

    Raises:
        ValueError: the file is no readable checkpoint.
    """
    describe(checkpoint)
    content = _checkpoint(checkpoint)
    if "global_step" not in content:
        raise ConfigError(
            f"{checkpoint} holds weights and no state of a run; begin one from them with --init"
        )
    stored = content.get("lucid_train", {}).get("data", {})
    for key, what in (("classes", "classes"), ("images", "number of images"), ("files", "files")):
        if key in stored and stored[key] != identity[key]:
            detail = "" if key == "files" else f" ({identity[key]}, before {stored[key]})"
            raise ConfigError(
                f"the data set has other {what} than the run being resumed{detail}; "
                f"start a new run with --init {checkpoint}"
            )


def steps_made(checkpoint: Path) -> int:
    """Return the optimizer steps that a run had made when it saved ``checkpoint``."""
    return int(_checkpoint(checkpoint)["global_step"])


def _checkpoint(path: Path) -> dict[str, Any]:
    content: dict[str, Any] = torch.load(path, map_location="cpu", weights_only=True, mmap=True)
    return content


def stored_config(folder: Path) -> FitConfig:
    """Return the resolved configuration of a run's folder; ConfigError where there is none."""
    if not (folder / "config.yaml").is_file():
        raise ConfigError(f"{folder}: no run here (no config.yaml); give the folder of a run")
    return load_config(folder / "config.yaml")


def require_same(stored: FitConfig, wanted: FitConfig) -> None:
    """Raise ConfigError, naming the first key, where a resumed run would not continue the stored one."""
    for section in FitConfig.model_fields:
        before, after = getattr(stored, section), getattr(wanted, section)
        for key in type(before).model_fields:
            if (section, key) in _FREE or getattr(before, key) == getattr(after, key):
                continue
            raise ConfigError(
                Setting(f"{section}.{key}", getattr(after, key)),
                f", but the run being resumed has {getattr(before, key)!r}; leave it as it was, or start a new run "
                "from the checkpoint with --init",
            )
