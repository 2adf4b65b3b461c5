import re

import numpy as np
import pytest
import torch
from PIL import Image
from PIL.PngImagePlugin import PngImageFile

from lucid_data import image_size, read_image


def test_every_pixel_format_decodes_to_the_same_rgb(shared_data):
    folder = shared_data / "messy" / "image_kinds_a" / "images"
    truth = read_image(folder / "rgb.png").float()
    for path in sorted(folder.iterdir()):
        image = read_image(path)
        assert image.dtype == torch.uint8
        assert image.shape == truth.shape, path.name
        # one-bit and grey pictures keep the brightness only
        grey = {"one_bit.png": 60, "gray": 12, "gif": 12}
        limit = next((v for k, v in grey.items() if path.name.startswith(k)), 4)
        difference = (image.float().mean(0) - truth.mean(0)).abs().mean()
        assert difference < limit, path.name


def test_sixteen_bit_grey_is_scaled_not_clipped(tmp_path):
    values = np.array([[0, 257, 32896, 65535]], np.uint16)
    Image.fromarray(values).save(tmp_path / "deep.png")
    assert read_image(tmp_path / "deep.png")[0, 0].tolist() == [0, 1, 128, 255]


@pytest.mark.parametrize(
    "name",
    ["empty.jpg", "header_only.jpg", "text.jpg", "truncated.png", "truncated_half.jpg", "truncated_tail.jpg"],
)
def test_a_broken_file_is_an_os_error_naming_the_path(shared_data, name):
    path = shared_data / "messy" / "image_broken_a" / "images" / name
    with pytest.raises(OSError, match=re.escape(str(path))):
        read_image(path)


def test_a_missing_file_is_an_os_error_naming_the_path(tmp_path):
    for read in (read_image, image_size):
        with pytest.raises(OSError, match=r"nowhere\.jpg"):
            read(tmp_path / "nowhere.jpg")


def test_the_orientation_tag_is_followed_only_when_asked(tmp_path):
    picture = Image.new("RGB", (6, 2))
    picture.putpixel((0, 0), (255, 255, 255))
    tags = Image.Exif()
    tags[0x0112] = 6  # the stored top-left corner belongs at the top right
    picture.save(tmp_path / "turned.png", exif=tags)
    assert read_image(tmp_path / "turned.png", exif=False).shape == (3, 2, 6)
    upright = read_image(tmp_path / "turned.png")
    assert upright.shape == (3, 6, 2)
    assert upright[0, 0, 1] == 255
    assert image_size(tmp_path / "turned.png") == (6, 2)
    assert image_size(tmp_path / "turned.png", exif=False) == (2, 6)


def moved_behind_the_pixels(data, kind):
    """Return a PNG's bytes with its chunk of ``kind`` moved to just before its end."""
    at, chunks = 8, []
    while at < len(data):
        length = int.from_bytes(data[at : at + 4], "big") + 12
        chunks.append(data[at : at + length])
        at += length
    chunks.sort(key=lambda chunk: (chunk[4:8] == kind) + 2 * (chunk[4:8] == b"IEND"))
    return data[:8] + b"".join(chunks)


def test_the_size_of_a_png_is_read_without_its_pixels_and_as_it_is_decoded(tmp_path, monkeypatch):
    tags, before, behind = Image.Exif(), tmp_path / "before.png", tmp_path / "behind.png"
    tags[0x0112] = 6
    Image.new("RGB", (6, 2)).save(before, exif=tags)
    behind.write_bytes(moved_behind_the_pixels(before.read_bytes(), b"eXIf"))
    assert behind.read_bytes() != before.read_bytes()
    assert image_size(behind) == tuple(read_image(behind).shape[1:]) == (6, 2)
    Image.new("RGB", (6, 2)).save(tmp_path / "plain.png")
    monkeypatch.setattr(PngImageFile, "load", lambda self: pytest.fail("decoded"))
    assert image_size(before) == (6, 2)
    assert image_size(tmp_path / "plain.png") == (2, 6)


def test_all_eight_orientations_show_one_picture(shared_data):
    folder = shared_data / "messy" / "exif_landscape" / "images"
    small = [
        torch.nn.functional.interpolate(
            read_image(folder / f"Landscape_{i}.jpg")[None].float(), (12, 18), mode="area"
        )
        for i in (1, 3, 6, 8)
    ]
    for other in small[1:]:
        assert (other - small[0]).abs().mean() < 6


def test_header_sizes_equal_decoded_sizes(shared_data):
    for path in sorted((shared_data / "messy" / "pillow_images_a" / "images").iterdir()):
        if path.name not in ("broken.png", "truncated_image.png"):
            assert image_size(path) == tuple(read_image(path).shape[1:]), path.name
