"""Damaged labels and pictures end in a finding or a plain error, never in a traceback of another kind."""

import io
import os
import random
import warnings

import pytest
from PIL import Image

from lucid_data import check, open_catalog, synthetic

ROUNDS = int(os.environ.get("LUCID_FUZZ_ROUNDS", "25"))
TOKENS = [
    b"", b"nan", b"-1", b"1e999", b"null", b"[]", b"{}", b"\xff", b"\x00", b'"', b"9" * 30, b"true", b"<x>", b" ",
    b"\n", b"0.5", b"[[1,2,3]]", b'{"size":[1,1],"counts":"x"}',
]  # fmt: skip

SETS = {
    "coco": ("segment", "annotations/instances_train.json", "write_coco", {"task": "segment"}),
    "coco points": ("pose", "annotations/person_keypoints_train.json", "write_coco", {"task": "pose"}),
    "coco quads": ("obb", "annotations/instances_train.json", "write_coco", {"task": "obb"}),
    "yolo": ("detect", "labels/train/00001.txt", "write_yolo", {}),
    "yolo points": ("pose", "labels/train/00001.txt", "write_yolo", {"task": "pose"}),
    "yolo dataset file": ("pose", "data.yaml", "write_yolo", {"task": "pose"}),
    "voc": ("detect", "Annotations/00001.xml", "write_voc", {}),
    "dota": ("obb", "train/labelTxt/00001.txt", "write_dota", {}),
    "png": ("detect", "train/00001.png", "write_coco", {}),
    "jpeg": ("detect", "train/00001.png", "write_coco", {}),
}


def mutated(data, rng):
    out = bytearray(data)
    for _ in range(rng.randint(1, 3)):
        start = rng.randrange(len(out) + 1)
        match rng.randrange(4):
            case 0:
                out[start : start + rng.randint(0, 12)] = rng.choice(TOKENS)
            case 1:
                out[start : start + 1] = bytes([rng.randrange(256)])
            case 2:
                del out[start : start + rng.randint(1, 40)]
            case 3:
                # a whole value, where there is one
                words = (
                    bytes(out).replace(b",", b" , ").replace(b":", b" : ").replace(b"[", b" [ ").split(b" ")
                )
                words[rng.randrange(len(words))] = rng.choice(TOKENS)
                out = bytearray(b" ".join(words))
    return bytes(out)


def opened(root, task):
    """Read everything and return the error that says why not, None when all is well."""
    try:
        catalog = open_catalog(root, "train", task)
        for index in range(len(catalog)):
            catalog.sample(index)
    except (ValueError, OSError) as error:
        return str(error) or repr(error)
    return None


@pytest.mark.parametrize("name", SETS)
def test_damage_is_told(tmp_path, name):
    task, damaged, writer, more = SETS[name]
    root = getattr(synthetic, writer)(tmp_path / "sound", splits={"train": 2}, size=32, shapes=2, **more)
    place = root / damaged
    if name == "jpeg":  # read by content, whatever its suffix
        out = io.BytesIO()
        Image.open(place).save(out, "JPEG")
        place.write_bytes(out.getvalue())
    sound = place.read_bytes()
    rng = random.Random(name)
    for _ in range(ROUNDS):
        place.write_bytes(mutated(sound, rng))
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            told = [f for f in check(root, task) if f.severity == "error"]
            refusal = opened(root, task)
        assert refusal is None or told, (refusal, place.read_bytes())
