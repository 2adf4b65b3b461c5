"""Writes files whole: the old one or the new one is there at every moment, a half-written one never."""

import json
import os
from pathlib import Path
from typing import Any


def write_text(path: Path, text: str) -> None:
    """Write UTF-8 text under ``path`` by rename."""
    path.parent.mkdir(parents=True, exist_ok=True)
    temporary = path.with_name(path.name + ".tmp")
    temporary.write_text(text, encoding="utf-8")
    os.replace(temporary, path)


def write_json(path: Path, document: Any, indent: int | None = None) -> None:
    """Write one JSON document whole; NaN is refused (ValueError), and then nothing is written."""
    write_text(path, json.dumps(document, allow_nan=False, indent=indent) + "\n")


def replace_durably(temporary: Path, target: Path) -> None:
    """Rename after the bytes have reached the disk, so that a crash leaves the previous file whole."""
    with temporary.open("rb") as stream:
        os.fsync(stream.fileno())
    os.replace(temporary, target)
    folder = os.open(target.parent, os.O_RDONLY)
    try:
        os.fsync(folder)
    finally:
        os.close(folder)


def publish(source: Path, target: Path) -> None:
    """Make ``target`` the same bytes as ``source``, by a link where the file system has them."""
    temporary = target.with_name(target.name + ".tmp")
    temporary.unlink(missing_ok=True)
    try:
        os.link(source, temporary)
    except OSError:
        temporary.write_bytes(source.read_bytes())
    replace_durably(temporary, target)
