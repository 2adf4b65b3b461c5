"""Data sets over the network: streamed, resumable, checked, and never executed.

A file arrives as ``<name>.part`` beside a small JSON that says where it comes from; only the very same source is
resumed. ``<name>`` appears when every byte is there and the digest, where one is known, agrees.
"""

from __future__ import annotations

import hashlib
import json
import os
import urllib.error
import urllib.request
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path, PurePosixPath
from typing import Any, Final
from urllib.parse import unquote, urlsplit

from lucid_data.unpack import unpack
from lucid_data.whole import Observer, nothing

_BLOCK: Final = 1 << 20
# path-style: the bucket's own host name has no matching certificate
COCO_HOST: Final = "https://s3.amazonaws.com/images.cocodataset.org"
COCO_ARCHIVES: Final = {
    "train": "zips/train2017.zip",
    "val": "zips/val2017.zip",
    "test": "zips/test2017.zip",
    "annotations": "annotations/annotations_trainval2017.zip",
}


@dataclass(frozen=True)
class Downloaded:
    """One file that is there now: its SHA-256, and whether it was compared with an expected one."""

    path: Path
    sha256: str
    verified: bool


def fetch(
    url: str,
    path: str | Path,
    *,
    sha256: str | None = None,
    timeout: float = 60.0,
    observer: Observer = nothing,
) -> Downloaded:
    """Bring ``url`` (http or https) to ``path`` and return what arrived; an interrupted transfer goes on.

    ``observer`` is told (bytes there, bytes in all); 0 in all where the sender does not say.
    Raises ValueError for another kind of URL or a digest that differs (the file is removed), OSError naming the URL
    when it cannot be reached or ends too soon (what came stays for the next try).

    >>> fetch("ftp://example.com/val2017.zip", "val2017.zip")
    Traceback (most recent call last):
    ValueError: 'ftp://example.com/val2017.zip' is not an http or https address
    """
    if urlsplit(url).scheme not in ("http", "https"):
        raise ValueError(f"{url!r} is not an http or https address")
    target = Path(path)
    target.parent.mkdir(parents=True, exist_ok=True)
    part, note = target.with_name(target.name + ".part"), target.with_name(target.name + ".part.json")
    have = _resume_point(url, part, note)
    request = urllib.request.Request(url, headers={"Range": f"bytes={have}-"} if have else {})
    try:
        with urllib.request.urlopen(request, timeout=timeout) as answer:
            if have and answer.status != 206:
                have = 0
            length = answer.headers.get("Content-Length")
            total = have + int(length) if length else None
            note.write_text(json.dumps({"url": url, "total": total}), encoding="utf-8")
            with part.open("ab" if have else "wb") as file:
                while block := answer.read(_BLOCK):
                    file.write(block)
                    observer(file.tell(), total or 0)
    except (urllib.error.URLError, TimeoutError, ConnectionError) as error:
        raise OSError(f"cannot download {url}: {getattr(error, 'reason', error)}") from error
    if total is not None and part.stat().st_size != total:
        raise OSError(f"{url} ended after {part.stat().st_size} of {total} bytes; run again to go on")
    digest = file_digest(part)
    if sha256 is not None and digest != sha256.lower():
        part.unlink()
        note.unlink()
        raise ValueError(f"{url}: SHA-256 is {digest}, expected {sha256.lower()}; the file was removed")
    os.replace(part, target)
    note.unlink()
    return Downloaded(target, digest, sha256 is not None)


def _resume_point(url: str, part: Path, note: Path) -> int:
    """Return how many bytes of this very ``url`` are there already; 0 begins anew."""
    try:
        stated = json.loads(note.read_text(encoding="utf-8"))
        have = part.stat().st_size
    except (OSError, ValueError):
        return 0
    total = stated.get("total") if isinstance(stated, dict) else None
    fits = isinstance(stated, dict) and stated.get("url") == url
    return have if fits and isinstance(total, int) and have < total else 0


def file_digest(path: str | Path) -> str:
    """Return the SHA-256 of a file, in hexadecimal."""
    with Path(path).open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()


def download_coco(
    root: str | Path,
    splits: Sequence[str] = ("val",),
    *,
    annotations: bool = True,
    sha256: Mapping[str, str] | None = None,
    force: bool = False,
    keep_archives: bool = False,
    host: str = COCO_HOST,
    observer: Observer = nothing,
) -> list[Downloaded]:
    """Bring COCO 2017 under ``root`` (``val2017``, ``annotations``, …) and return the archives that were fetched.

    Args:
        root: the data set's folder.
        splits: of ``train`` (18 GB), ``val`` (1 GB), ``test``.
        annotations: the labels of train and val as well.
        sha256: expected digests by archive name, such as ``val2017.zip``; any case.
        force: fetch what is there already.
        keep_archives: leave the archives after unpacking.
        host: where the archives lie.
        observer: as for ``fetch``, archive by archive.

    What is there is skipped without a network. Raises as ``fetch`` and ``unpack``.

    >>> download_coco("coco", ["val2017"])  # doctest: +SKIP
    """
    wanted = [*splits, *(("annotations",) if annotations else ())]
    unknown = [name for name in wanted if name not in COCO_ARCHIVES]
    if unknown:
        raise ValueError(f"COCO 2017 has no {unknown[0]!r}; choose of {', '.join(COCO_ARCHIVES)}")
    folder = Path(root)
    expected = {name.lower(): digest for name, digest in (sha256 or {}).items()}
    done = []
    for name in wanted:
        place = PurePosixPath(COCO_ARCHIVES[name])
        there = folder / ("annotations" if name == "annotations" else place.stem)
        if there.is_dir() and any(there.iterdir()) and not force:
            continue
        digest = expected.get(place.name.lower())
        got = fetch(f"{host}/{place}", folder / place.name, sha256=digest, observer=observer)
        unpack(got.path, folder)
        if not keep_archives:
            got.path.unlink()
        done.append(got)
    return done


def download_manifest(
    manifest: str | Path | Mapping[str, Any], root: str | Path, *, observer: Observer = nothing
) -> list[Downloaded]:
    """Bring every file of ``manifest`` under ``root`` and return what was fetched; files already right are skipped.

    The manifest (or its JSON file) is data: ``{"files": [{"url": ..., "sha256": ..., "path": ..., "unpack": false}]}``;
    ``sha256`` is required, ``path`` defaults to the URL's last part, ``unpack`` spreads an archive beside itself.
    Raises ValueError naming the entry for a missing digest or a path that leaves ``root``.

    >>> download_manifest("files.json", "data")  # doctest: +SKIP
    """
    if isinstance(manifest, str | Path):
        try:
            manifest = json.loads(Path(manifest).read_text(encoding="utf-8"))
        except ValueError as error:
            raise ValueError(f"{manifest} is not JSON: {error}") from error
    entries = manifest.get("files") if isinstance(manifest, Mapping) else None
    if not isinstance(entries, list):
        raise ValueError("a manifest needs a list 'files' of {url, sha256}")
    folder = Path(root)
    plan = [_entry(entry, number) for number, entry in enumerate(entries, 1)]
    done = []
    for url, digest, name, spread in plan:
        target = folder / name
        mark = target.with_name(target.name + ".unpacked")
        if spread and mark.is_file() and mark.read_text(encoding="utf-8").strip() == digest:
            continue
        if not (target.is_file() and file_digest(target) == digest):
            done.append(fetch(url, target, sha256=digest, observer=observer))
        if spread:
            unpack(target, target.parent)
            mark.write_text(digest + "\n", encoding="utf-8")
    return done


def _entry(entry: object, number: int) -> tuple[str, str, str, bool]:
    where = f"manifest entry {number}"
    if not isinstance(entry, Mapping) or not isinstance(entry.get("url"), str):
        raise ValueError(f"{where} needs a 'url', got {entry!r}")
    digest = str(entry.get("sha256", "")).lower()
    if len(digest) != 64 or set(digest) - set("0123456789abcdef"):
        raise ValueError(
            f"{where} ({entry['url']}) needs a 'sha256' of 64 hexadecimal digits, got {digest!r}"
        )
    name = str(entry.get("path") or unquote(PurePosixPath(urlsplit(entry["url"]).path).name))
    path = PurePosixPath(name)
    if not name or path.is_absolute() or ".." in path.parts or "\\" in name:
        raise ValueError(f"{where}: path {name!r} leaves the folder")
    return entry["url"], digest, name, entry.get("unpack") is True
