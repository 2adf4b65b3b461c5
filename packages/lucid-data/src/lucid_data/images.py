"""Image files in: the one decoding function, and the size from the header alone."""

from __future__ import annotations

import io
import re
import struct
import warnings
from pathlib import Path
from typing import Final

import numpy as np
import torch
from PIL import Image, ImageOps, UnidentifiedImageError
from torch import Tensor
from torchvision.io import ImageReadMode, decode_image

IMAGE_SUFFIXES: Final = (".jpg", ".jpeg", ".png", ".bmp", ".tif", ".tiff", ".webp")

_JPEG: Final = b"\xff\xd8\xff"
_ORIENTATION: Final = 0x0112
# what pillow's decoders raise on damaged bytes, besides OSError
_DAMAGE: Final = (SyntaxError, ValueError, EOFError, struct.error, Image.DecompressionBombError)


def read_image(path: str | Path, exif: bool = True) -> Tensor:
    """Return the picture at ``path`` as (3, H, W) uint8 RGB.

    JPEG files go through torchvision, everything else (PNG, CMYK, BMP, TIFF, WebP, GIF's first frame) through pillow;
    which one is decided by the content, not by the suffix. Grey is
    repeated, alpha is dropped, 16-bit values are divided by 257. With ``exif`` the picture is turned upright by its
    orientation tag; without it the stored raster is returned. Raises OSError naming the path for a missing,
    empty, cut-off or foreign file.

    >>> import tempfile
    >>> name = Path(tempfile.mkdtemp()) / "dot.png"
    >>> Image.new("L", (2, 1), 7).save(name)
    >>> read_image(name).tolist()
    [[[7, 7]], [[7, 7]], [[7, 7]]]
    """
    try:
        data = Path(path).read_bytes()
    except OSError as error:
        raise OSError(f"cannot read image {path}: {error.strerror or error}") from error
    if not data:
        raise OSError(f"cannot read image {path}: the file is empty")
    try:
        if _torchvision_reads(data):
            raw = torch.frombuffer(bytearray(data), dtype=torch.uint8)
            image: Tensor = decode_image(raw, mode=ImageReadMode.RGB, apply_exif_orientation=exif)
            return image
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", UserWarning)  # pillow comments on odd metadata it then skips
            with Image.open(io.BytesIO(data)) as picture:
                picture.load()
                return _pillow_rgb(ImageOps.exif_transpose(picture) if exif else picture)
    except UnidentifiedImageError as error:
        raise OSError(f"cannot read image {path}: not a picture in a known format") from error
    except (RuntimeError, OSError, *_DAMAGE) as error:
        reason = (str(error).strip() or type(error).__name__).splitlines()[0]
        reason = re.sub(r"^.*\.cpp:\d+, ", "", reason)  # torchvision prefixes its own source line
        raise OSError(f"cannot read image {path}: {reason}") from error


def image_size(path: str | Path, exif: bool = True) -> tuple[int, int]:
    """Return (height, width) from the header, without decoding; as ``read_image`` with the same ``exif`` gives.

    Raises OSError naming the path when there is no readable header.

    >>> import tempfile
    >>> name = Path(tempfile.mkdtemp()) / "dot.png"
    >>> Image.new("L", (2, 1)).save(name)
    >>> image_size(name)
    (1, 2)
    """
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", UserWarning)
            with Image.open(path) as picture:
                width, height = picture.size
                turned = exif and _orientation(picture, Path(path)) >= 5
    except UnidentifiedImageError as error:
        raise OSError(f"cannot read image {path}: not a picture in a known format") from error
    except (OSError, *_DAMAGE) as error:
        reason = getattr(error, "strerror", None) or error
        raise OSError(f"cannot read image {path}: {reason}") from error
    return (width, height) if turned else (height, width)


def _orientation(picture: Image.Image, path: Path) -> int:
    try:
        # pillow decodes all of a PNG to look for metadata behind the pixels, where there hardly ever is any
        behind = picture.format != "PNG" or _metadata_behind_pixels(path)
        value = (picture.getexif() if behind else Image.Image.getexif(picture)).get(_ORIENTATION, 1)
    except (TypeError, *_DAMAGE):
        return 1
    return value if isinstance(value, int) and 1 <= value <= 8 else 1


def _metadata_behind_pixels(path: Path) -> bool:
    """Return whether a PNG has text or EXIF chunks after its first pixels, by the heads of its chunks."""
    pixels = False
    with path.open("rb") as stream:
        stream.seek(8)
        while len(head := stream.read(8)) == 8:
            length, kind = int.from_bytes(head[:4], "big"), head[4:]
            if pixels and kind in (b"eXIf", b"tEXt", b"zTXt", b"iTXt"):
                return True
            pixels = pixels or kind == b"IDAT"
            stream.seek(length + 4, io.SEEK_CUR)
    return False


def _torchvision_reads(data: bytes) -> bool:
    # not PNG: torchvision 0.29 ends the process on some damaged ones
    return data.startswith(_JPEG) and _jpeg_components(data) in (1, 3)


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


def _pillow_rgb(picture: Image.Image) -> Tensor:
    if picture.mode.startswith("I"):
        # pillow clips 16-bit grey on conversion; 257 maps 65535 to 255
        grey = np.asarray(picture).astype(np.float64) / 257.0
        plane = torch.from_numpy(np.clip(np.rint(grey), 0, 255).astype(np.uint8))
        return plane.expand(3, -1, -1).contiguous()
    if picture.mode == "F":
        raise OSError("floating-point pixels have no agreed range; convert the file to 8 or 16 bits")
    pixels = np.array(picture.convert("RGB"))
    return torch.from_numpy(pixels).permute(2, 0, 1)
