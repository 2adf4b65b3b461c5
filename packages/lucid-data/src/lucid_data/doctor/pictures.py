"""Picture files: can they be decoded, are they what they are called, how are they stored."""

from __future__ import annotations

import warnings
from collections import Counter
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from PIL import Image

from lucid_data.doctor.findings import Findings
from lucid_data.images import image_size, read_image
from lucid_data.whole import Observer, nothing

_SUFFIXES: Final = {
    "JPEG": (".jpg", ".jpeg"),
    "MPO": (".jpg", ".jpeg"),
    "PNG": (".png",),
    "BMP": (".bmp",),
    "TIFF": (".tif", ".tiff"),
    "WEBP": (".webp",),
    "GIF": (".gif",),
}
_STORED: Final = {
    "CMYK": "CMYK; colours are converted to RGB without a profile",
    "P": "with a palette; expanded to RGB",
    "PA": "with a palette and transparency; expanded to RGB, transparency dropped",
    "LA": "grey with transparency; transparency is dropped",
    "RGBA": "with transparency; it is dropped",
    "1": "in one bit per pixel; expanded to RGB",
    "I;16": "in 16 bits; scaled to 8",
    "I;16B": "in 16 bits; scaled to 8",
    "I": "in 16 bits or more; scaled to 8",
    "F": "in floating point; it cannot be read",
}


@dataclass(frozen=True)
class Picture:
    """What is known of one picture: upright and stored (height, width), None where unreadable."""

    path: Path
    size: tuple[int, int] | None
    stored: tuple[int, int] | None
    format: str = ""
    mode: str = ""
    problem: str = ""


@dataclass
class Progress:
    """Tells an observer how many pictures are done of those known so far; every list of pictures adds its own."""

    observer: Observer = nothing
    done: int = 0
    known: int = 0

    def step(self) -> None:
        """Count one more picture as done."""
        self.done += 1
        self.observer(self.done, self.known)


def examine_pictures(
    paths: Sequence[Path], *, decode: bool, progress: Progress, found: Findings
) -> dict[Path, Picture]:
    """Return what is known of every picture and add findings; ``decode`` reads the pixels, not just the header."""
    progress.known += len(paths)
    pictures = []
    with ThreadPoolExecutor(4) as pool:
        for picture in pool.map(lambda path: _examine(path, decode), paths):
            pictures.append(picture)
            progress.step()
    modes: Counter[str] = Counter()
    example: dict[str, Path] = {}
    for picture in pictures:
        if picture.problem:
            missing = not picture.path.exists()
            found.add(
                "image-missing" if missing else "image-unreadable",
                "error",
                picture.path,
                "",
                "the file does not exist" if missing else picture.problem,
                "restore the file or take it out of the labels"
                if missing
                else "replace the file, or take it out",
            )
            continue
        fitting = _SUFFIXES.get(picture.format)
        if fitting and picture.path.suffix.lower() not in fitting:
            message = f"the content is {picture.format}, the suffix says {picture.path.suffix}"
            found.add("image-suffix", "warning", picture.path, "", message, "rename it; the content is read")
        if picture.size != picture.stored:
            message = "an orientation tag turns the picture; stored and upright sizes differ"
            remedy = "see that labels fit the upright picture (lucid data view draws them)"
            found.add("image-orientation", "note", picture.path, "", message, remedy)
        modes[picture.mode] += 1
        example.setdefault(picture.mode, picture.path)
    for mode, count in modes.items():
        if mode in _STORED:
            message = f"{count} picture{'s' * (count > 1)} stored {_STORED[mode]}"
            found.add(
                "image-mode", "note", example[mode], "", message, "nothing to do if that is what you want"
            )
    return {picture.path: picture for picture in pictures}


def _examine(path: Path, decode: bool) -> Picture:
    try:
        size, stored = image_size(path, True), image_size(path, False)
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", UserWarning)
            with Image.open(path) as opened:
                kind, mode = opened.format or "", opened.mode
        if decode:
            read_image(path)
    except OSError as error:
        return Picture(path, None, None, problem=str(error).removeprefix(f"cannot read image {path}: "))
    return Picture(path, size, stored, kind, mode)
