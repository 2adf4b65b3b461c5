"""Archives of strangers, unpacked without surprises."""

from __future__ import annotations

import stat
import tarfile
import zipfile
from collections.abc import Iterator
from contextlib import AbstractContextManager, contextmanager
from dataclasses import dataclass
from pathlib import Path, PurePosixPath, PureWindowsPath
from typing import IO, Final

_BLOCK: Final = 1 << 20


@dataclass(frozen=True)
class UnpackLimits:
    """What an archive may grow to: entries, bytes in all, and bytes per byte of archive."""

    entries: int = 2_000_000
    total: int = 1 << 40
    ratio: int = 200


@dataclass(frozen=True)
class _Member:
    name: str
    size: int
    folder: bool
    plain: bool
    source: object


def unpack(archive: str | Path, folder: str | Path, limits: UnpackLimits | None = None) -> list[Path]:
    """Unpack a zip or tar ``archive`` into ``folder`` and return the files written.

    Nothing is written outside ``folder`` and nothing through a link; links and devices are refused, and so is an
    archive that grows beyond ``limits`` (stated sizes are checked first, real ones while writing). Files already
    there are replaced. Raises ValueError naming the member, before anything is written for a name that leads out.

    >>> import shutil
    >>> archive = shutil.make_archive("scenes", "zip", "scenes", "annotations")
    >>> sorted(path.name for path in unpack(archive, "unpacked"))
    ['instances_train.json', 'instances_val.json']
    """
    path, root = Path(archive), Path(folder)
    bounds = limits or UnpackLimits()
    with _opened(path) as (members, read):
        allowed = min(bounds.total, max(1 << 20, bounds.ratio * path.stat().st_size))
        _check(members, path, bounds, allowed)
        written: list[Path] = []
        budget = allowed
        for member in members:
            place = root / _safe_name(member, path)
            _refuse_links(root, place, path)
            if member.folder:
                place.mkdir(parents=True, exist_ok=True)
                continue
            place.parent.mkdir(parents=True, exist_ok=True)
            with read(member) as source, place.open("wb") as target:
                while block := source.read(min(_BLOCK, budget + 1)):
                    budget -= len(block)
                    if budget < 0:
                        raise ValueError(
                            f"{path}: grows beyond {allowed} bytes at {member.name!r}; not unpacked further"
                        )
                    target.write(block)
            written.append(place)
    return written


class _Reader:
    def __init__(self, archive: zipfile.ZipFile | tarfile.TarFile) -> None:
        self._archive = archive

    def __call__(self, member: _Member) -> AbstractContextManager[IO[bytes]]:
        if isinstance(self._archive, zipfile.ZipFile):
            return self._archive.open(member.source)  # type: ignore[arg-type]
        file = self._archive.extractfile(member.source)  # type: ignore[arg-type]
        if file is None:
            raise ValueError(f"member {member.name!r} has no content")
        return file


@contextmanager
def _opened(path: Path) -> Iterator[tuple[list[_Member], _Reader]]:
    try:
        if zipfile.is_zipfile(path):
            with zipfile.ZipFile(path) as archive:
                yield [_zip_member(info) for info in archive.infolist()], _Reader(archive)
            return
        with tarfile.open(path) as tar:
            yield [_tar_member(info) for info in tar], _Reader(tar)
    except (zipfile.BadZipFile, tarfile.TarError, EOFError) as error:
        raise ValueError(f"{path} is not a sound zip or tar archive: {error}") from error


def _zip_member(info: zipfile.ZipInfo) -> _Member:
    mode = info.external_attr >> 16
    plain = not stat.S_IFMT(mode) or stat.S_ISREG(mode) or stat.S_ISDIR(mode)
    return _Member(info.filename, info.file_size, info.is_dir(), plain, info)


def _tar_member(info: tarfile.TarInfo) -> _Member:
    return _Member(info.name, info.size, info.isdir(), info.isreg() or info.isdir(), info)


def _check(members: list[_Member], path: Path, limits: UnpackLimits, allowed: int) -> None:
    if len(members) > limits.entries:
        raise ValueError(f"{path} has {len(members)} members, more than {limits.entries}")
    for member in members:
        _safe_name(member, path)
        if not member.plain:
            raise ValueError(f"{path}: member {member.name!r} is a link or a device; refused")
    total = sum(member.size for member in members)
    if total > allowed:
        raise ValueError(f"{path} would grow to {total} bytes, more than {allowed}")


def _safe_name(member: _Member, path: Path) -> str:
    name = member.name.replace("\\", "/")
    parts = PurePosixPath(name)
    if not name or parts.is_absolute() or ".." in parts.parts or PureWindowsPath(name).drive or "\0" in name:
        raise ValueError(f"{path}: member {member.name!r} leads out of the folder; refused")
    return name


def _refuse_links(root: Path, place: Path, path: Path) -> None:
    for step in (place, *place.parents):
        if step == root:
            return
        if step.is_symlink():
            raise ValueError(f"{path}: {step} is a symbolic link; nothing is written through it")
