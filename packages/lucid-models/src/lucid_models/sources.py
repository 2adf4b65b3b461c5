"""What a predictor is given: pictures in memory, files and folders.

Everything becomes a uint8 (3, H, W) RGB tensor. JPEG files are decoded by torchvision, others by pillow, upright
by their orientation tag.
"""

import io
from collections.abc import Sequence
from os import PathLike, fspath
from pathlib import Path
from typing import Any

import numpy
import torch
from PIL import Image, ImageOps
from torch import Tensor
from torchvision.io import ImageReadMode, decode_image

_JPEG = b"\xff\xd8\xff"
PICTURE_SUFFIXES = (".jpg", ".jpeg", ".png", ".webp")


def list_pictures(folder: str | PathLike[str]) -> list[Path]:
    """Return the picture files directly in ``folder``, sorted by name.

    Raises FileNotFoundError when it is no folder and ValueError when it holds no picture.

    >>> import tempfile
    >>> from torchvision.io import write_png
    >>> folder = tempfile.mkdtemp()
    >>> _ = write_png(torch.zeros(3, 2, 2, dtype=torch.uint8), f"{folder}/a.png")
    >>> [path.name for path in list_pictures(folder)]
    ['a.png']
    """
    place = Path(folder)
    if not place.is_dir():
        raise FileNotFoundError(f"no folder at {place}")
    found = sorted(path for path in place.iterdir() if path.suffix.lower() in PICTURE_SUFFIXES)
    if not found:
        raise ValueError(f"{place} holds no picture ({', '.join(PICTURE_SUFFIXES)})")
    return found


def expand(sources: Any) -> list[Any]:
    """Return a list of single pictures and paths of what a predictor was given; folders become their files.

    A path, an array and a tensor of three axes count as one picture, a tensor of four as a batch.

    >>> len(expand(torch.zeros(2, 3, 4, 4))), len(expand(torch.zeros(3, 4, 4)))
    (2, 1)
    """
    if isinstance(sources, str | PathLike) or _is_array(sources):
        sources = [sources]
    elif isinstance(sources, Tensor):
        sources = list(sources) if sources.dim() == 4 else [sources]
    elif not isinstance(sources, Sequence):
        raise TypeError(f"give images, paths or a list of them, got {type(sources).__name__}")
    single: list[Any] = []
    for source in sources:
        if isinstance(source, str | PathLike) and Path(source).is_dir():
            single += list_pictures(source)
        else:
            single.append(source)
    return single


def as_image(source: Any, position: int) -> Tensor:
    """Return uint8 (3, H, W) RGB of a tensor of that form, an array uint8 (H, W, 3) or a file.

    Arrays are numpy's and what it can read, such as pillow's images. Raises TypeError for another kind or
    dtype and ValueError for another shape, both with the ``position`` in the list, and OSError naming the
    path of a file that cannot be read.

    >>> as_image(torch.zeros(3, 4, 5, dtype=torch.uint8), 0).shape
    torch.Size([3, 4, 5])
    """
    if isinstance(source, str | PathLike):
        return _read(fspath(source))
    if isinstance(source, Tensor):
        image, form = source, "(3, H, W)"
    elif _is_array(source):
        # a copy: reversed channels and read-only memory have no tensor of their own
        image, form = torch.from_numpy(numpy.array(source)), "(H, W, 3)"
    else:
        raise TypeError(f"image {position} must be a tensor, an array or a path, got {type(source).__name__}")
    if image.dtype != torch.uint8:
        raise TypeError(f"image {position} must be uint8, got {image.dtype}")
    channels = 0 if form == "(3, H, W)" else -1
    if image.dim() != 3 or image.shape[channels] != 3 or 0 in image.shape:
        raise ValueError(f"image {position} must be {form} RGB, got {tuple(image.shape)}")
    return image if channels == 0 else image.permute(2, 0, 1)


def _is_array(source: Any) -> bool:
    return hasattr(source, "__array_interface__")


def _read(path: str) -> Tensor:
    try:
        data = Path(path).read_bytes()
    except OSError as error:
        raise OSError(f"cannot read image {path}: {error.strerror or error}") from None
    if not data:
        raise OSError(f"cannot read image {path}: the file is empty")
    try:
        # torchvision's other decoders end the process on some damaged files
        return _jpeg(data) if data.startswith(_JPEG) else _other(data)
    except (RuntimeError, OSError, SyntaxError, ValueError) as error:
        reason = (str(error).strip() or type(error).__name__).splitlines()[0]
        raise OSError(
            f"cannot read image {path}: {reason}; decode other formats yourself and give the array"
        ) from None


def _jpeg(data: bytes) -> Tensor:
    raw = torch.frombuffer(bytearray(data), dtype=torch.uint8)
    image: Tensor = decode_image(raw, mode=ImageReadMode.RGB, apply_exif_orientation=True)
    return image


def _other(data: bytes) -> Tensor:
    with Image.open(io.BytesIO(data)) as picture:
        frames = getattr(picture, "n_frames", 1)
        if frames > 1:
            raise ValueError(f"it is an animation of {frames} frames")
        if picture.mode == "F" or picture.mode.startswith("I"):
            raise ValueError(f"its pixels have more than 8 bits (mode {picture.mode})")
        upright = ImageOps.exif_transpose(picture)
        return torch.from_numpy(numpy.array(upright.convert("RGB"))).permute(2, 0, 1)
