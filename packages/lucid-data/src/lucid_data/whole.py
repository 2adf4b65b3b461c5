"""Outputs that appear when they are complete."""

from __future__ import annotations

import shutil
import tempfile
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

Observer = Callable[[int, int], None]
"""Is told how much of how much is done."""


@contextmanager
def whole_folder(target: str | Path) -> Iterator[Path]:
    """Yield an empty folder beside ``target`` that takes its place when the block ends, and is removed when it fails.

    Raises FileExistsError when ``target`` has content or is a file.
    """
    path = Path(target)
    if path.exists() and (not path.is_dir() or any(path.iterdir())):
        raise FileExistsError(f"{path} already has content; choose an empty folder")
    path.parent.mkdir(parents=True, exist_ok=True)
    # resolve: "." and ".." have no name to put beside
    part = Path(tempfile.mkdtemp(prefix=f".{path.resolve().name}.", dir=path.resolve().parent))
    try:
        part.chmod(0o755)
        yield part
        if path.exists():
            for item in part.iterdir():
                item.replace(path / item.name)
            part.rmdir()
        else:
            _place(part, path)
    except BaseException:
        shutil.rmtree(part, ignore_errors=True)
        raise


def _place(part: Path, path: Path) -> None:
    try:
        part.replace(path)
    except OSError as error:
        if path.exists():  # made by another process in the meantime
            raise FileExistsError(f"{path} already has content; choose an empty folder") from error
        raise


def nothing(_done: int, _total: int) -> None:
    """Observe nothing."""
