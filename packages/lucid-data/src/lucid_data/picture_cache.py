"""Pictures decoded once and kept where all workers can map them.

One file of bytes and an index: in shared memory for one run, or in a folder of the user's for many. A decoded cache
keeps each distinct file as decoded; a prepared one keeps it fitted to the canvas as well, which is everything that
precedes a sample's first random number. Both give the very samples that decoding would.
"""

from __future__ import annotations

import hashlib
import json
import os
import tempfile
import weakref
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Final

import numpy as np
import numpy.typing as npt
import torch
from torch import Tensor

from lucid_data.catalog import Catalog
from lucid_data.images import image_size
from lucid_data.transforms.letterbox import fit_long_side, interleaved
from lucid_data.workers import available_memory
from lucid_geometry import Letterbox

# part of the key: another way of decoding or resizing makes other bytes
_VERSION: Final = 1
_SHARED: Final = Path("/dev/shm")
_USABLE: Final = 0.5


@dataclass(frozen=True, eq=False)
class PictureCache:
    """Pictures by catalogue index; made by ``cache_pictures``, picklable, and mapped by each process on first use.

    Attributes:
        path: the file of bytes.
        image_size: S of a prepared cache, None of a decoded one.
        slots: (n,) int64, which stored picture each index has; -1 where the file cannot be read.
        starts: (k,) int64, where each stored picture begins.
        shapes: (k, 2) int64, its stored height and width.
        originals: (k, 2) int64, its decoded height and width.
    """

    path: Path
    image_size: int | None
    slots: npt.NDArray[np.int64]
    starts: npt.NDArray[np.int64]
    shapes: npt.NDArray[np.int64]
    originals: npt.NDArray[np.int64]
    _mapped: list[npt.NDArray[np.uint8]] = field(default_factory=list, repr=False)

    def __getstate__(self) -> dict[str, Any]:
        return self.__dict__ | {"_mapped": []}

    def __contains__(self, index: int) -> bool:
        return bool(self.slots[index] >= 0)

    @property
    def nbytes(self) -> int:
        """The bytes of pictures held."""
        return int(self.shapes.prod(1).sum()) * 3

    def image(self, index: int) -> Tensor:
        """Return a fresh (3, H, W) uint8 picture of ``index``, channels side by side in memory."""
        return self.view(index).clone()

    def view(self, index: int) -> Tensor:
        """Return the same without a copy: the mapped pages themselves, for reading only.

        What is written to it stays in this process, and in its later views.
        """
        slot = self.slots[index]
        height, width = self.shapes[slot].tolist()
        if not self._mapped:
            # slices of a memmap are memmaps, which cost more to make than a picture to look up
            self._mapped.append(np.asarray(np.memmap(self.path, np.uint8, "c")))
        start = int(self.starts[slot])
        flat = self._mapped[0][start : start + 3 * height * width]
        return torch.from_numpy(flat).view(height, width, 3).permute(2, 0, 1)

    def original_size(self, index: int) -> tuple[int, int]:
        """Return the decoded (height, width) of ``index``."""
        height, width = self.originals[self.slots[index]].tolist()
        return height, width


def cache_pictures(
    catalog: Catalog, image_size: int | None = None, *, directory: str | Path | None = None
) -> PictureCache:
    """Return a filled cache of the catalogue's pictures.

    Args:
        catalog: whose pictures; a file that is listed twice is kept once.
        image_size: S to keep pictures fitted to the canvas (prepared); None keeps them as decoded.
        directory: keep the file there for later runs; it is found again by names, sizes and times of the pictures. None
            takes shared memory, which goes when the cache does.

    The bytes needed are known before any are taken: MemoryError states them where they exceed half of what is free (all
    of what is free in a directory). A picture that cannot be read raises its OSError and leaves nothing behind, or is
    left out with ``bad_image="skip"``.

    >>> from lucid_data import open_catalog
    >>> catalog = open_catalog("scenes")
    >>> cache = cache_pictures(catalog)
    >>> cache.nbytes, torch.equal(cache.image(0), catalog.image(0))
    (49152, True)
    """
    names = [catalog.records.file_names[i] for i in range(len(catalog))]
    distinct = {name: slot for slot, name in enumerate(dict.fromkeys(names))}
    first = {name: index for index, name in reversed(list(enumerate(names)))}
    sizes, readable = _sizes(catalog, [first[name] for name in distinct])
    shapes = np.array([_fitted(size, image_size) for size in sizes], np.int64).reshape(-1, 2)
    starts = np.concatenate([[0], np.cumsum(shapes.prod(1) * 3)])
    slots = np.array([distinct[name] if readable[distinct[name]] else -1 for name in names], np.int64)
    folder = (
        Path(directory)
        if directory is not None
        else _SHARED
        if _SHARED.is_dir()
        else Path(tempfile.gettempdir())
    )
    folder.mkdir(parents=True, exist_ok=True)
    key = _key(catalog, list(distinct), image_size)
    path = folder / f"lucid-pictures-{key}.bin"
    cache = PictureCache(path, image_size, slots, starts[:-1], shapes, sizes)
    if directory is not None and path.is_file() and path.stat().st_size == max(1, starts[-1]):
        return cache
    _refuse_too_much(int(starts[-1]), folder, keep=directory is not None)
    handle, name = tempfile.mkstemp(prefix="lucid-pictures-", suffix=".part", dir=folder)
    try:
        with os.fdopen(handle, "wb") as file:
            for slot, text in enumerate(distinct):
                if readable[slot]:
                    file.write(_bytes(catalog, first[text], image_size, tuple(sizes[slot].tolist())))
            file.truncate(max(1, int(starts[-1])))
        if directory is None:
            private = Path(name).with_suffix(".bin")
            os.replace(name, private)
            cache = PictureCache(private, image_size, slots, starts[:-1], shapes, sizes)
            weakref.finalize(cache, _remove, private, os.getpid())
        else:
            os.replace(name, path)
    except BaseException:
        Path(name).unlink(missing_ok=True)
        raise
    return cache


def _sizes(catalog: Catalog, indices: list[int]) -> tuple[npt.NDArray[np.int64], list[bool]]:
    sizes = np.zeros((len(indices), 2), np.int64)
    readable = []
    for row, index in enumerate(indices):
        try:
            sizes[row] = image_size(catalog.image_path(index), catalog.exif)
            readable.append(True)
        except OSError:
            if catalog.bad_image == "raise":
                raise
            readable.append(False)
    return sizes, readable


def _fitted(size: npt.NDArray[np.int64], image_size: int | None) -> tuple[int, int]:
    height, width = size.tolist()
    if image_size is None or not height:
        return height, width
    box = Letterbox(height, width, image_size, image_size)
    return box.new_height, box.new_width


def _bytes(catalog: Catalog, index: int, image_size: int | None, size: tuple[int, int]) -> bytes:
    image = catalog.image(index)
    if tuple(image.shape[1:]) != size:
        raise OSError(
            f"{catalog.image_path(index)} decodes to {tuple(image.shape[1:])}, its header says {size}"
        )
    if image_size is not None:
        image = fit_long_side(image, image_size)
    return interleaved(image)[0].permute(1, 2, 0).contiguous().numpy().tobytes()


def _key(catalog: Catalog, names: list[str], image_size: int | None) -> str:
    digest = hashlib.sha256(f"{_VERSION} {torch.__version__} {catalog.exif} {image_size}".encode())
    for name in names:
        path = catalog.images / name
        state = path.stat() if path.is_file() else None
        stamp = (str(path.resolve()), state.st_size, state.st_mtime_ns) if state else (str(path), 0, 0)
        digest.update(json.dumps(stamp).encode())
    return digest.hexdigest()[:32]


def _refuse_too_much(needed: int, folder: Path, *, keep: bool) -> None:
    state = os.statvfs(folder)
    free = state.f_bavail * state.f_frsize
    if not keep:
        free = int(_USABLE * min(free, available_memory()))
    if needed > free:
        where = "free on its disk" if keep else "half of the free memory"
        raise MemoryError(
            f"the pictures need {needed / 2**30:.2f} GiB in {folder}, more than {free / 2**30:.2f} GiB ({where})"
        )


def _remove(path: Path, owner: int) -> None:
    # a forked worker that ends must not take the file from the others
    if os.getpid() == owner:
        path.unlink(missing_ok=True)
