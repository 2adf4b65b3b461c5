"""Pictures to disk: the suffix chooses the format, and a file appears when it is complete."""

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from matplotlib.figure import Figure
from PIL import Image
from torch import Tensor

from lucid_viz.marks import check_image


def save_figure(figure: Figure, path: str | Path, dpi: int = 110) -> None:
    """Write a figure; png, pdf, svg and whatever else the figure's canvas can write.

    Raises:
        ValueError: a suffix that names no format.
    """
    path = Path(path)
    suffix = path.suffix.lstrip(".")
    known = figure.canvas.get_supported_filetypes()
    if suffix not in known:
        raise ValueError(f"{path}: unknown picture format {suffix!r}; use one of {', '.join(sorted(known))}")
    path.parent.mkdir(parents=True, exist_ok=True)
    with _whole(path) as temporary:
        figure.savefig(temporary, format=suffix, dpi=dpi)


def save_image(image: Tensor, path: str | Path) -> None:
    """Write a uint8 RGB image (3, H, W) under the format of the path's suffix; the file appears when complete.

    Raises:
        ValueError: not an image of that form, or a suffix that names no image format.
    """
    check_image(image)
    path = Path(path)
    formats = Image.registered_extensions()
    if path.suffix.lower() not in formats:
        raise ValueError(f"{path}: unknown image suffix {path.suffix!r}; use .jpg or .png")
    path.parent.mkdir(parents=True, exist_ok=True)
    picture = Image.fromarray(image.permute(1, 2, 0).contiguous().cpu().numpy())
    with _whole(path) as temporary:
        picture.save(temporary, format=formats[path.suffix.lower()], quality=92)


@contextmanager
def _whole(path: Path) -> Iterator[Path]:
    """Yield a name to write to; the file takes its place when the block ends, and is removed when it fails."""
    temporary = path.with_name(path.name + ".tmp")
    try:
        yield temporary
        temporary.replace(path)
    finally:
        temporary.unlink(missing_ok=True)
