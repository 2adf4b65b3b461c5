"""Training and prediction see the same pictures: both decoders return equal bytes, or both refuse the file."""

import json
import random
import struct

import numpy as np
import pytest
import torch
from PIL import Image

from lucid_app.main import run
from lucid_data import IMAGE_SUFFIXES, read_image
from lucid_models import as_image, build_detector, checkpoint_header, list_pictures

PIXELS = np.random.default_rng(0).integers(0, 256, (37, 53, 3), np.uint8)
GREY = PIXELS[..., 0]


def outcome(read, path):
    """Return (picture, None), or (None, what was said of the file)."""
    try:
        return read(path), None
    except OSError as error:
        return None, str(error)


def difference(path):
    """Return how the two decoders differ on a file, or None."""
    (trained, refused), (predicted, said) = (
        outcome(read, path) for read in (read_image, lambda path: as_image(path, 0))
    )
    if trained is None or predicted is None:
        # the predictor may add what to do
        return None if refused and said and said.startswith(refused) else f"{path}: {refused!r} and {said!r}"
    if trained.dtype != predicted.dtype or not torch.equal(trained, predicted):
        return f"{path}: other pixels"
    return None


def picture(mode="RGB"):
    return Image.fromarray(PIXELS).convert(mode)


def with_alpha(mode):
    layered = picture(mode)
    layered.putalpha(Image.fromarray(PIXELS[..., 1]))
    return layered


def moving(path):
    frames = [Image.fromarray(frame) for frame in (PIXELS, PIXELS[::-1])]
    frames[0].save(path, save_all=True, append_images=frames[1:])


def without_adobe_marker(path):
    picture("CMYK").save(path)
    data = path.read_bytes()
    at = data.index(b"\xff\xee\x00\x0eAdobe")
    path.write_bytes(data[:at] + data[at + 16 :])


def vast(path):
    picture().save(path)
    data = bytearray(path.read_bytes())
    data[18:26] = struct.pack("<ii", 60000, 60000)  # width and height, of which the file holds little
    path.write_bytes(data)


KINDS = {
    "grey.jpg": lambda path: picture("L").save(path),
    "rgb.jpg": lambda path: picture().save(path),
    "progressive.jpg": lambda path: picture().save(path, progressive=True),
    "halved_colour.jpg": lambda path: picture().save(path, subsampling=2, quality=60),
    "cmyk.jpg": lambda path: picture("CMYK").save(path),
    "cmyk_without_marker.jpg": without_adobe_marker,
    "jpeg_called.png": lambda path: picture().save(path, format="JPEG"),
    "cmyk_called.png": lambda path: picture("CMYK").save(path, format="JPEG"),
    "grey.png": lambda path: picture("L").save(path),
    "grey_alpha.png": lambda path: with_alpha("L").save(path),
    "grey_transparent.png": lambda path: picture("L").save(path, transparency=7),
    "rgb.png": lambda path: picture().save(path),
    "rgb_transparent.png": lambda path: picture().save(path, transparency=(1, 2, 3)),
    "rgba.png": lambda path: with_alpha("RGB").save(path),
    "palette.png": lambda path: picture("P").save(path),
    "palette_transparent.png": lambda path: picture("P").save(path, transparency=3),
    "sixteen_bits.png": lambda path: Image.fromarray(GREY * np.uint16(211)).save(path),
    "one_bit.png": lambda path: picture("1").save(path),
    "moving.png": moving,
    "png_called.jpg": lambda path: picture().save(path, format="PNG"),
    "still.gif": lambda path: picture().save(path),
    "moving.gif": moving,
    "rgb.bmp": lambda path: picture().save(path),
    "palette.bmp": lambda path: picture("P").save(path),
    "rgb.tif": lambda path: picture().save(path),
    "cmyk.tif": lambda path: picture("CMYK").save(path),
    "pages.tif": moving,
    "sixteen_bits.tif": lambda path: Image.fromarray(GREY * np.uint16(211)).save(path),
    "thirty_two_bits.tif": lambda path: Image.fromarray(GREY * np.int32(300)).save(path),
    "rgb.webp": lambda path: picture().save(path),
    "rgba.webp": lambda path: with_alpha("RGB").save(path, lossless=True),
    "moving.webp": moving,
}
REFUSED = {
    "float.tif": lambda path: Image.fromarray(GREY / np.float32(255)).save(path),
    "empty.jpg": lambda path: path.write_bytes(b""),
    "text.png": lambda path: path.write_text("no picture"),
    "start_alone.jpg": lambda path: path.write_bytes(b"\xff\xd8\xff"),
    "vast.bmp": vast,
    "missing.png": lambda path: None,
}


@pytest.mark.parametrize("name", KINDS)
def test_every_kind_of_file_is_read_to_the_same_bytes(tmp_path, name):
    KINDS[name](tmp_path / name)
    assert read_image(tmp_path / name).shape == (3, 37, 53)
    assert difference(tmp_path / name) is None


@pytest.mark.parametrize("name", REFUSED)
def test_what_one_refuses_the_other_refuses_in_the_same_words(tmp_path, name):
    REFUSED[name](tmp_path / name)
    with pytest.raises(OSError, match=name):
        read_image(tmp_path / name)
    assert difference(tmp_path / name) is None


def test_the_inks_are_written_as_other_programs_write_them(tmp_path):
    KINDS["cmyk.jpg"](tmp_path / "a.jpg")
    KINDS["cmyk_without_marker.jpg"](tmp_path / "b.jpg")
    assert b"Adobe" in (tmp_path / "a.jpg").read_bytes()
    assert b"Adobe" not in (tmp_path / "b.jpg").read_bytes()


@pytest.mark.parametrize("suffix", [".jpg", ".png", ".tif", ".webp"])
def test_all_eight_orientations_are_followed_alike(tmp_path, suffix):
    for orientation in range(1, 9):
        tags, path = Image.Exif(), tmp_path / f"{orientation}{suffix}"
        tags[0x0112] = orientation
        picture().save(path, exif=tags)
        assert read_image(path).shape == ((3, 37, 53) if orientation < 5 else (3, 53, 37))
        assert difference(path) is None


@pytest.mark.parametrize("name", ["grey.jpg", "rgb.jpg", "cmyk.jpg", "rgba.png", "moving.gif"])
def test_damaged_files_are_read_or_refused_alike(tmp_path, name):
    KINDS[name](tmp_path / name)
    whole, rng, place = (tmp_path / name).read_bytes(), random.Random(name), tmp_path / f"damaged-{name}"
    for _ in range(40):
        data = bytearray(whole)
        at = rng.randrange(min(len(data), 700))  # mostly headers
        if rng.random() < 0.5:
            data[at] = rng.randrange(256)
        else:
            del data[at : at + rng.randint(1, 40)]
        place.write_bytes(data)
        assert difference(place) is None


def test_real_pictures_with_oddities_and_damage_are_read_or_refused_alike(shared_data):
    suffixes = {*IMAGE_SUFFIXES, ".gif"}
    folder = shared_data / "messy"
    if not folder.is_dir():
        pytest.skip("the odd pictures (../shared/data/messy) are not here")
    files = [path for path in sorted(folder.rglob("*")) if path.suffix.lower() in suffixes]
    assert len(files) > 30
    assert [found for found in map(difference, files) if found] == []


def test_a_folder_is_the_same_pictures_to_the_predictor_and_the_command(tmp_path):
    photos = tmp_path / "photos"
    for suffix in (*IMAGE_SUFFIXES, ".gif"):
        for path in (photos / f"a{suffix}", photos / "deep" / f"b{suffix.upper()}"):
            path.parent.mkdir(parents=True, exist_ok=True)
            picture().save(path)
    detector = build_detector("detect", "n", names=["a"], image_size=32)
    torch.save({"lucid": checkpoint_header(detector)}, tmp_path / "a.ckpt")
    words = ["predict", str(tmp_path / "a.ckpt"), str(photos), "--output", str(tmp_path / "out"), "--quiet"]
    assert run(words) == 0
    document = json.loads((tmp_path / "out" / "predictions.json").read_text())
    found = [str(path) for path in list_pictures(photos)]
    assert len(found) == 2 * len(IMAGE_SUFFIXES)
    assert [image["image"] for image in document["images"]] == found
