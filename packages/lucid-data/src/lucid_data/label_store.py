"""Packed labels kept in a folder and mapped from it, so that a data set is parsed once and shared by processes.

A store is found again by what is read (the source and the options of the reader) and the state it was in: names, sizes
and times of the files below the data set's folders, the content of a single label file, and the readers' own code. A
new store of one source and options removes the outdated ones that are older than a day.
"""

from __future__ import annotations

import contextlib
import hashlib
import json
import os
import shutil
import time
from collections.abc import Callable
from dataclasses import asdict, fields
from functools import cache
from importlib.metadata import version
from pathlib import Path
from typing import Any, Final

import numpy as np

from lucid_data.formats.parsed import Parsed, ReadOptions
from lucid_data.formats.yolo import label_places
from lucid_data.records import Records, Strings, travels_as
from lucid_data.source import Source
from lucid_data.tasks import TaskNeeds
from lucid_data.whole import whole_folder

_META: Final = "meta.json"
# seconds; a younger store may still be read by the workers of a run that began before the files changed
_OUTDATED: Final = 24 * 3600.0


def stored(
    folder: Path, source: Source, needs: TaskNeeds, options: ReadOptions, read: Callable[[], Parsed]
) -> Parsed:
    """Return what ``read`` returns, its labels mapped from ``folder``, where they are put when they are not there.

    A data set with pictures, lists or labels outside its own folders is read anew every time: a change there would not
    be seen. Raises as ``read`` does, ValueError for a folder inside the data set, and OSError for a store that cannot
    be read or written.
    """
    places = _places(source)
    folder = Path(os.path.abspath(folder))
    if any(folder.resolve().is_relative_to(inside.resolve()) for inside in places):
        raise ValueError(f"label store {folder} lies inside the data set; choose a folder outside it")
    what = _what(source, needs, options)
    place = folder / f"labels-{what}-{_state(source, places)}"
    if not place.is_dir():
        parsed = read()
        if not _inside(parsed, source, places):
            return parsed
        with contextlib.suppress(FileExistsError):  # another process was quicker
            _write(place, parsed)
        _remove_outdated(folder, what, place)
    return _load(place)


def _remove_outdated(folder: Path, what: str, current: Path) -> None:
    for other in folder.glob(f"labels-{what}-*"):
        with contextlib.suppress(OSError):  # another process removed it
            if other != current and time.time() - other.stat().st_mtime > _OUTDATED:
                shutil.rmtree(other)


def load_records(place: Path) -> Records:
    """Return the records mapped from a store."""
    return _load(place).records


def _write(place: Path, parsed: Parsed) -> None:
    records = parsed.records
    with whole_folder(place) as folder:
        for name, array in _arrays(records).items():
            np.save(folder / f"{name}.npy", array)
        meta = {
            "images": str(parsed.images),
            "class_names": parsed.class_names,
            "category_ids": parsed.category_ids,
            "keypoint_names": parsed.keypoint_names,
            "keypoint_flip_pairs": parsed.keypoint_flip_pairs,
            "dropped": records.dropped,
        }
        (folder / _META).write_text(json.dumps(meta), encoding="utf-8")


def _arrays(records: Records) -> dict[str, Any]:
    values = {f.name: getattr(records, f.name) for f in fields(Records) if f.name != "dropped"}
    names = values.pop("file_names")
    return values | {"name_data": names.data, "name_starts": names.starts}


def _load(place: Path) -> Parsed:
    try:
        meta = json.loads((place / _META).read_text(encoding="utf-8"))
        arrays = {path.stem: _mapped(path) for path in place.glob("*.npy")}
        names = Strings(arrays.pop("name_data"), arrays.pop("name_starts"))
        records = Records(file_names=names, dropped=meta["dropped"], **arrays)
    except (OSError, EOFError, ValueError, KeyError, TypeError) as error:
        raise OSError(f"{place} cannot be read ({error}); remove it") from error
    travels_as(records, load_records, place)
    return Parsed(
        records,
        Path(meta["images"]),
        tuple(meta["class_names"]),
        tuple(meta["category_ids"]),
        tuple(meta["keypoint_names"]),
        tuple((a, b) for a, b in meta["keypoint_flip_pairs"]),
    )


def _mapped(path: Path) -> Any:
    array = np.load(path, mmap_mode="r", allow_pickle=False)
    return array if array.size else np.array(array)


def _places(source: Source) -> list[Path]:
    """Return the data set's folders, none inside another."""
    # not resolved: links are followed, so what lies below a folder is what it shows
    given = sorted({Path(os.path.abspath(p)) for p in (source.root, *source.folders)})
    return [p for p in given if not any(other != p and p.is_relative_to(other) for other in given)]


def _inside(parsed: Parsed, source: Source, places: list[Path]) -> bool:
    names = parsed.records.file_names
    pictures = [parsed.images / names[i] for i in range(len(names))]
    folders = {picture.parent for picture in pictures}
    if source.layout == "yolo":
        folders |= label_places(source, pictures)
    return all(any(Path(os.path.abspath(f)).is_relative_to(place) for place in places) for f in folders)


def _what(source: Source, needs: TaskNeeds, options: ReadOptions) -> str:
    said = {
        "source": {name: str(value) for name, value in asdict(source).items()},
        "needs": asdict(needs),
        "options": asdict(options),
    }
    return hashlib.sha256(json.dumps(said, sort_keys=True, default=str).encode()).hexdigest()[:16]


def _state(source: Source, places: list[Path]) -> str:
    digest = hashlib.sha256(_code().encode())
    if source.labels.is_file():
        with source.labels.open("rb") as file:
            digest.update(hashlib.file_digest(file, "sha256").digest())
    for place in places:
        seen: set[str] = set()
        for folder, inner, files in os.walk(place, followlinks=True):
            real = os.path.realpath(folder)
            if real in seen:  # a link that leads back
                inner.clear()
                continue
            seen.add(real)
            inner.sort()
            for name in sorted(files):
                state = (
                    os.stat(os.path.join(folder, name), follow_symlinks=True)
                    if _there(folder, name)
                    else None
                )
                stamp = (state.st_size, state.st_mtime_ns) if state else (-1, -1)
                digest.update(os.fsencode(f"{folder}\0{name}\0{stamp}\n"))
    return digest.hexdigest()[:32]


def _there(folder: str, name: str) -> bool:
    return os.path.exists(os.path.join(folder, name))  # a link may lead nowhere


@cache
def _code() -> str:
    """Return a digest of the code that makes records of files."""
    here = Path(__file__).parent
    digest = hashlib.sha256(version("lucid-geometry").encode())
    for path in sorted([*here.glob("formats/*.py"), *here.glob("records*.py"), here / "images.py"]):
        digest.update(path.read_bytes())
    return digest.hexdigest()
