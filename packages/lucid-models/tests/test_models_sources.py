"""Picture files and folders: what every kind of file becomes, and which files of a folder are read."""

import struct
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest
import torch
from PIL import Image

from lucid_models import as_image, list_pictures

ORIENTATION = 0x0112
# how the stored raster is turned into the picture (EXIF 2.32, tag 274), on arrays (H, W, 3)
UPRIGHT: dict[int, Callable[[np.ndarray], np.ndarray]] = {
    1: lambda stored: stored,
    2: lambda stored: stored[:, ::-1],
    3: lambda stored: stored[::-1, ::-1],
    4: lambda stored: stored[::-1],
    5: lambda stored: stored.transpose(1, 0, 2),
    6: lambda stored: np.rot90(stored, -1),
    7: lambda stored: stored[::-1, ::-1].transpose(1, 0, 2),
    8: lambda stored: np.rot90(stored, 1),
}


def pixels() -> np.ndarray:
    return np.random.default_rng(0).integers(0, 256, (5, 7, 3), np.uint8)


def read(path: Path) -> np.ndarray:
    image = as_image(path, 0)
    assert image.dtype == torch.uint8
    return image.permute(1, 2, 0).numpy()


@pytest.mark.parametrize("suffix", [".png", ".bmp", ".tif"])
def test_files_without_loss_give_their_pixels(tmp_path: Path, suffix: str) -> None:
    Image.fromarray(pixels()).save(tmp_path / f"a{suffix}")
    assert np.array_equal(read(tmp_path / f"a{suffix}"), pixels())


def test_the_content_tells_the_format(tmp_path: Path) -> None:
    Image.fromarray(pixels()).save(tmp_path / "a.jpg", format="PNG")
    assert np.array_equal(read(tmp_path / "a.jpg"), pixels())


@pytest.mark.parametrize("orientation", UPRIGHT)
@pytest.mark.parametrize("suffix", [".png", ".jpg"])
def test_pictures_are_turned_upright(tmp_path: Path, suffix: str, orientation: int) -> None:
    for name, value in (("stored", 1), ("tagged", orientation)):
        tags = Image.Exif()
        tags[ORIENTATION] = value
        Image.fromarray(pixels()).save(tmp_path / f"{name}{suffix}", exif=tags)
    expected = UPRIGHT[orientation](read(tmp_path / f"stored{suffix}"))
    assert np.array_equal(read(tmp_path / f"tagged{suffix}"), expected)


def test_grey_is_repeated_and_alpha_dropped(tmp_path: Path) -> None:
    grey, alpha = pixels()[..., 0], pixels()[..., 1]
    Image.fromarray(np.stack((grey, alpha), -1)).save(tmp_path / "a.png")
    assert np.array_equal(read(tmp_path / "a.png"), np.stack((grey,) * 3, -1))
    Image.fromarray(np.dstack((pixels(), alpha))).save(tmp_path / "b.png")
    assert np.array_equal(read(tmp_path / "b.png"), pixels())


def test_one_bit_is_black_and_white(tmp_path: Path) -> None:
    bits = pixels()[..., 0] > 127
    Image.fromarray(bits).save(tmp_path / "a.png")
    assert np.array_equal(read(tmp_path / "a.png"), np.stack((bits * np.uint8(255),) * 3, -1))


def test_a_palette_is_looked_up(tmp_path: Path) -> None:
    picture = Image.frombytes("P", (4, 1), bytes([0, 1, 1, 0]))
    picture.putpalette([10, 20, 30, 200, 100, 50])
    picture.save(tmp_path / "a.png", transparency=1)
    assert read(tmp_path / "a.png").tolist() == [[[10, 20, 30], [200, 100, 50], [200, 100, 50], [10, 20, 30]]]


def test_sixteen_bit_grey_is_scaled_not_clipped(tmp_path: Path) -> None:
    Image.fromarray(np.array([[0, 257, 32896, 65535]], np.uint16)).save(tmp_path / "a.png")
    assert read(tmp_path / "a.png")[0].tolist() == [[value] * 3 for value in (0, 1, 128, 255)]


def test_of_an_animation_the_first_picture_is_taken(tmp_path: Path) -> None:
    frames = [Image.new("RGB", (4, 3), colour) for colour in ("#c80000", "#00c800")]
    frames[0].save(tmp_path / "a.gif", save_all=True, append_images=frames[1:])
    assert read(tmp_path / "a.gif").tolist() == [[[200, 0, 0]] * 4] * 3


@pytest.mark.parametrize(
    ("ink", "colour"),
    [((0, 255, 255, 0), (255, 0, 0)), ((0, 0, 0, 255), (0, 0, 0)), ((128, 0, 0, 0), (127, 255, 255))],
)
def test_inks_become_colours(tmp_path: Path, ink: tuple[int, ...], colour: tuple[int, ...]) -> None:
    Image.new("CMYK", (8, 8), ink).save(tmp_path / "a.jpg", quality=100)
    assert np.abs(read(tmp_path / "a.jpg").astype(int) - colour).max() <= 2


def test_floating_point_pixels_are_refused(tmp_path: Path) -> None:
    Image.fromarray(np.zeros((2, 2), np.float32)).save(tmp_path / "a.tif")
    with pytest.raises(OSError, match=r"a\.tif: floating-point pixels have no agreed range; convert"):
        as_image(tmp_path / "a.tif", 0)


def test_a_foreign_file_is_refused_with_the_remedy(tmp_path: Path) -> None:
    (tmp_path / "a.png").write_text("no picture at all")
    with pytest.raises(OSError, match=r"a\.png: not a picture in a known format; decode it yourself"):
        as_image(tmp_path / "a.png", 0)


def test_odd_metadata_is_skipped_without_a_word(tmp_path: Path, recwarn: pytest.WarningsRecorder) -> None:
    # a directory said to hold 40 entries ends after the orientation
    cut_off = struct.pack("<4sIHHHIHH", b"II*\0", 8, 40, ORIENTATION, 3, 1, 6, 0)
    Image.fromarray(pixels()).save(tmp_path / "a.png", exif=b"Exif\0\0" + cut_off)
    assert read(tmp_path / "a.png").shape == (7, 5, 3)
    assert not [one for one in recwarn if issubclass(one.category, UserWarning)]


def test_a_folder_stands_for_the_pictures_at_any_depth(tmp_path: Path) -> None:
    names = ["B.JPG", "a.jpeg", "a.png", "a.bmp", "a.tif", "a.tiff", "a.webp", "deep/er/c.png"]
    for name in [*names, "notes.txt", "a.gif", "a.npy", "deep/jpg"]:
        (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / name).write_bytes(b"")
    (tmp_path / "folder.png").mkdir()
    assert list_pictures(tmp_path) == sorted(tmp_path / name for name in names)
