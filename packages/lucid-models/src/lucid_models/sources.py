"""What a predictor is given: pictures in memory, files and folders.

Everything becomes a uint8 (3, H, W) RGB tensor. Files are decoded as lucid-data decodes them for training, to the
same bytes, without importing it; tests/test_one_decoder.py of the workspace holds the two forms equal.
"""

import io
import re
import struct
import warnings
from collections.abc import Iterator, Sequence
from os import PathLike, fspath
from pathlib import Path
from typing import Any

import numpy
import torch
from PIL import Image, ImageOps, UnidentifiedImageError
from torch import Tensor
from torchvision.io import ImageReadMode, decode_image

PICTURE_SUFFIXES = (".jpg", ".jpeg", ".png", ".bmp", ".tif", ".tiff", ".webp")
"""What counts as a picture in a folder; a file named by itself may be called anything."""

_JPEG = b"\xff\xd8\xff"
# what pillow's decoders raise on damaged bytes, besides OSError
_DAMAGE = (SyntaxError, ValueError, EOFError, struct.error, Image.DecompressionBombError)


def list_pictures(folder: str | PathLike[str]) -> list[Path]:
    """Return the picture files in ``folder`` and its subfolders, sorted by path.

    A picture is a file called .jpg, .jpeg, .png, .bmp, .tif, .tiff or .webp, in any case; other files are left out.
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
    found = sorted(
        path for path in place.rglob("*") if path.suffix.lower() in PICTURE_SUFFIXES and path.is_file()
    )
    if not found:
        raise ValueError(f"{place} holds no picture ({', '.join(PICTURE_SUFFIXES)}), nor do its subfolders")
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


def batches(sources: Any, batch_size: int) -> Iterator[list[Tensor]]:
    """Return an iterator over the pictures of ``sources``, ``batch_size`` at a time, as `as_image` returns them.

    What is in memory is checked before this returns; files are opened when their turn comes. Raises what
    `expand` and `as_image` raise.

    >>> [len(part) for part in batches(torch.zeros(5, 3, 4, 4, dtype=torch.uint8), 2)]
    [2, 2, 1]
    """
    single = expand(sources)
    for position, source in enumerate(single):
        if not isinstance(source, str | PathLike):
            as_image(source, position)
    return _batches(single, batch_size)


def _batches(single: Sequence[Any], batch_size: int) -> Iterator[list[Tensor]]:
    for start in range(0, len(single), batch_size):
        yield [as_image(source, start + i) for i, source in enumerate(single[start : start + batch_size])]


def as_image(source: Any, position: int) -> Tensor:
    """Return uint8 (3, H, W) RGB of a tensor of that form, an array uint8 (H, W, 3) or a file.

    Arrays are numpy's and what it can read, such as pillow's images. A file's format is told by its content: JPEG,
    PNG, BMP, TIFF, WebP, GIF and what else pillow reads. It is turned upright by its orientation tag; grey is
    repeated, alpha dropped, 16-bit grey divided by 257, and of an animation the first picture taken. Raises
    TypeError for another kind or dtype and ValueError for another shape, both with the ``position`` in the
    list, and OSError naming the path of a file that is missing, empty, damaged, of an unknown format or of
    floating-point pixels.

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
        # torchvision's other decoders end the process on some damaged files, and pillow converts CMYK
        if data.startswith(_JPEG) and _jpeg_components(data) in (1, 3):
            return _by_torchvision(data)
        return _by_pillow(data)
    except UnidentifiedImageError:
        reason = "not a picture in a known format; decode it yourself and give the array"
    except (RuntimeError, OSError, *_DAMAGE) as error:
        reason = (str(error).strip() or type(error).__name__).splitlines()[0]
        reason = re.sub(r"^.*\.cpp:\d+, ", "", reason)  # torchvision prefixes its own source line
    raise OSError(f"cannot read image {path}: {reason}")


def _by_torchvision(data: bytes) -> Tensor:
    raw = torch.frombuffer(bytearray(data), dtype=torch.uint8)
    image: Tensor = decode_image(raw, mode=ImageReadMode.RGB, apply_exif_orientation=True)
    return image


def _by_pillow(data: bytes) -> Tensor:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", UserWarning)  # pillow comments on odd metadata it then skips
        with Image.open(io.BytesIO(data)) as picture:
            picture.load()
            return _rgb(ImageOps.exif_transpose(picture))


def _rgb(picture: Image.Image) -> Tensor:
    if picture.mode.startswith("I"):
        # pillow clips 16-bit grey on conversion; 257 maps 65535 to 255
        grey = numpy.asarray(picture).astype(numpy.float64) / 257.0
        plane = torch.from_numpy(numpy.clip(numpy.rint(grey), 0, 255).astype(numpy.uint8))
        return plane.expand(3, -1, -1).contiguous()
    if picture.mode == "F":
        raise OSError("floating-point pixels have no agreed range; convert the file to 8 or 16 bits")
    return torch.from_numpy(numpy.array(picture.convert("RGB"))).permute(2, 0, 1)


def _jpeg_components(data: bytes) -> int:
    """Return the number of colour components of the first frame header (ITU T.81 B.2.2), 0 when none is found."""
    at = 2
    while at + 9 < len(data):
        if data[at] != 0xFF:
            return 0
        marker = data[at + 1]
        if 0xC0 <= marker <= 0xCF and marker not in (0xC4, 0xC8, 0xCC):
            return data[at + 9]
        if marker == 0xFF:
            at += 1
        elif 0xD0 <= marker <= 0xD8 or marker == 0x01:
            at += 2
        else:
            at += 2 + int.from_bytes(data[at + 2 : at + 4], "big")
    return 0
