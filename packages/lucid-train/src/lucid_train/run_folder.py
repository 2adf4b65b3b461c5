"""The folder of a run: where it is, what it holds, and which configuration it belongs to."""

from pathlib import Path

from lucid_train.config import ConfigError, FitConfig, load_config

# Settings that may change between the parts of a run without changing what is learned.
_FREE = {
    ("data", "path"),
    ("data", "workers"),
    ("run", "output"),
    ("run", "checkpoint_steps"),
    ("run", "fingerprint"),
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
        return (output or checkpoint.resolve().parent.parent), checkpoint
    folder = output or max(
        (path.parent for path in root.glob("*/config.yaml")),
        key=lambda path: (path / "config.yaml").stat().st_mtime,
        default=None,
    )
    if folder is None or not (folder / "config.yaml").is_file():
        place = folder or root
        raise ConfigError(f"--resume last: no run in {place}; name its folder with --output")
    checkpoint = folder / "checkpoints" / "last.ckpt"
    return folder, checkpoint if checkpoint.is_file() else None


def stored_config(folder: Path) -> FitConfig:
    """Return the resolved configuration of a run's folder."""
    return load_config(folder / "config.yaml")


def require_same(stored: FitConfig, wanted: FitConfig) -> None:
    """Raise ConfigError, naming the first key, where a resumed run would not continue the stored one."""
    for section in FitConfig.model_fields:
        before, after = getattr(stored, section), getattr(wanted, section)
        for key in type(before).model_fields:
            if (section, key) in _FREE or getattr(before, key) == getattr(after, key):
                continue
            raise ConfigError(
                f"{section}.{key} = {getattr(after, key)!r}, but the run being resumed has {getattr(before, key)!r}; "
                "leave it as it was, or start a new run from the checkpoint with --init"
            )
