"""Outputs that appear when they are complete."""

from __future__ import annotations

import secrets
import shutil
from collections.abc import Callable, Iterable, Iterator
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
    # inside a folder that is there, for it may be a disk of its own; resolve: "." has no name to put beside
    beside = path.resolve() if path.exists() else path.resolve().parent
    part = beside / f".{path.resolve().name[:40]}.{secrets.token_hex(8)}"
    try:
        # named before and made inside, so that an interruption at any moment finds what it has to take away
        part.mkdir()
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


def refuse_inside(target: str | Path, sources: Iterable[Path]) -> None:
    """Raise ValueError where ``target`` lies in one of the ``sources``, which must not change."""
    place = Path(target).resolve()
    for source in sources:
        if source.is_dir() and place.is_relative_to(source.resolve()):
            raise ValueError(
                f"{target} lies inside the data set it is made from; choose a folder outside {source}"
            )


def _place(part: Path, path: Path) -> None:
    try:
        part.replace(path)
    except OSError as error:
        if path.exists():  # made by another process in the meantime
            raise FileExistsError(f"{path} already has content; choose an empty folder") from error
        raise


def nothing(_done: int, _total: int) -> None:
    """Observe nothing."""
