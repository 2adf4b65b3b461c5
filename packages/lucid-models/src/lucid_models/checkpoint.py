"""Checkpoints: what stands in one, reading it without executing anything, and moving weights.

A checkpoint is a file of ``torch.save`` holding a dictionary whose entry "lucid" has the keys of
`CheckpointInfo` and "weights", the averaged weights by the keys of ``Detector.state_dict()``. Other entries
belong to the program that wrote it and are ignored.
"""

import pickle
import re
import zipfile
from collections.abc import Mapping
from contextlib import suppress
from dataclasses import dataclass, fields
from os import PathLike, fspath
from pathlib import Path, PurePosixPath
from typing import Any

import torch
from torch import Tensor

from lucid_models.detector import Detector

SCHEMA = 1

# exact types: a truth value is no whole number here
_PLAIN: tuple[tuple[str, tuple[type, ...], str], ...] = (
    ("task", (str,), "text"),
    ("size", (str,), "text"),
    ("num_classes", (int,), "a whole number"),
    ("image_size", (int,), "a whole number"),
    ("num_keypoints", (int, type(None)), "a whole number or None"),
)
# what reading damaged bytes ends in, besides the refusal to execute them
_DAMAGE = (RuntimeError, EOFError, LookupError, ValueError, TypeError, AttributeError)


@dataclass(frozen=True)
class CheckpointInfo:
    """What a checkpoint says of itself, without its weights; ``image_size`` in pixels."""

    schema: int
    task: str
    size: str
    names: tuple[str, ...]
    num_classes: int
    image_size: int
    num_keypoints: int | None


def checkpoint_header(
    detector: Detector, image_size: int | None = None, weights: Mapping[str, Tensor] | None = None
) -> dict[str, Any]:
    """Return the entry "lucid" of a checkpoint, plain values and tensors only.

    ``image_size`` defaults to the detector's own, ``weights`` to its current state; weights are detached,
    not copied. Raises ValueError when the keys of ``weights`` are not those of the detector's state.

    >>> from lucid_models import build_detector
    >>> header = checkpoint_header(build_detector("detect", "n", names=["a"]), image_size=320)
    >>> header["size"], header["names"], header["image_size"]
    ('n', ['a'], 320)
    """
    state = detector.state_dict()
    weights = state if weights is None else weights
    if problem := key_problem(state, weights):
        raise ValueError(f"checkpoint_header: weights do not fit the detector: {problem}")
    return {
        "schema": SCHEMA,
        "task": detector.task,
        "size": detector.size,
        "names": list(detector.names),
        "num_classes": detector.num_classes,
        "image_size": detector.image_size if image_size is None else image_size,
        "num_keypoints": detector.num_keypoints,
        "weights": {key: weights[key].detach() for key in state},
    }


def describe(path: str | PathLike[str]) -> CheckpointInfo:
    """Return what the checkpoint at ``path`` says of itself; weights are not read. Errors as `load`."""
    return read_checkpoint(path, mmap=True)[0]


def key_problem(state: Mapping[str, Tensor], weights: Mapping[str, Tensor]) -> str | None:
    """Return a one-line account of how ``weights`` differ from ``state`` in keys or shapes, or None."""
    missing = [key for key in state if key not in weights]
    unknown = [key for key in weights if key not in state]
    if missing or unknown:
        parts = [
            f"{len(keys)} {kind} ({', '.join(keys[:3])}{', ...' if len(keys) > 3 else ''})"
            for kind, keys in (("missing", missing), ("unknown", unknown))
            if keys
        ]
        return " and ".join(parts)
    for key, value in state.items():
        if weights[key].shape != value.shape:
            return f"{key} has shape {tuple(weights[key].shape)}, expected {tuple(value.shape)}"
    return None


def _is_torchscript(name: str) -> bool:
    # of a damaged archive torch says what is wrong
    with suppress(zipfile.BadZipFile, ValueError, NotImplementedError), zipfile.ZipFile(name) as archive:
        return any(PurePosixPath(member).name == "constants.pkl" for member in archive.namelist())
    return False


def read_checkpoint(
    path: str | PathLike[str], mmap: bool = False
) -> tuple[CheckpointInfo, dict[str, Tensor]]:
    """Return what the checkpoint at ``path`` says of itself, and its weights on the CPU. Errors as `load`."""
    name = fspath(path)
    if Path(name).is_dir():
        raise ValueError(f"{name} is a folder; give the checkpoint file inside it")
    if not Path(name).is_file():
        raise FileNotFoundError(f"no checkpoint at {name}")
    if not zipfile.is_zipfile(name):
        raise ValueError(f"{name} is no checkpoint: torch.save writes a zip archive and this is none")
    if _is_torchscript(name):
        raise ValueError(
            f"{name} is a TorchScript file, no checkpoint; exported networks are known by the suffix .torchscript"
        )
    try:
        content = torch.load(name, map_location="cpu", weights_only=True, mmap=mmap)
    except pickle.UnpicklingError as error:
        found = re.search(r"GLOBAL (\S+)", str(error))
        what = found.group(1) if found else "objects that are neither tensors nor plain values"
        raise ValueError(f"{name} is refused: it would execute code while loading ({what})") from None
    except _DAMAGE as error:
        reason = (str(error).strip() or type(error).__name__).splitlines()[0]
        raise ValueError(f"{name} is damaged or no checkpoint: {reason}") from None
    header = content.get("lucid") if isinstance(content, dict) else None
    if not isinstance(header, dict):
        raise ValueError(f"{name} holds no entry 'lucid'; it was not written by this project")
    needed = [field.name for field in fields(CheckpointInfo)] + ["weights"]
    if missing := [key for key in needed if key not in header]:
        raise ValueError(f"{name}: entry 'lucid' lacks {', '.join(missing)}")
    if type(header["schema"]) is not int or header["schema"] != SCHEMA:
        raise ValueError(f"{name} has schema {header['schema']!r}, this version reads {SCHEMA}")
    weights = header["weights"]
    if not isinstance(weights, dict) or not all(isinstance(value, Tensor) for value in weights.values()):
        raise ValueError(f"{name}: 'weights' must map names to tensors")
    names = header["names"]
    if not isinstance(names, list | tuple) or not all(isinstance(one, str) for one in names):
        raise ValueError(f"{name}: 'names' must be a list of class names, got {names!r}")
    for key, kind, word in _PLAIN:
        if type(header[key]) not in kind:
            raise ValueError(f"{name}: {key!r} must be {word}, got {header[key]!r}")
    for key in ("num_classes", "image_size"):
        if header[key] < 1:
            raise ValueError(f"{name}: {key!r} must be positive, got {header[key]}")
    values = {field.name: header[field.name] for field in fields(CheckpointInfo)}
    return CheckpointInfo(**(values | {"names": tuple(names)})), weights
