"""``lucid export``: files that run elsewhere, held to the checkpoint."""

import json
from dataclasses import replace

import pytest
import torch

from lucid_app import export as command
from lucid_models import ExportedPredictor


@pytest.fixture(scope="module")
def last(trained):
    return trained / "checkpoints" / "last.ckpt"


def test_a_torchscript_file_agrees_with_its_checkpoint(lucid, last, scenes):
    words = (
        "--format",
        "torchscript",
        "--output",
        "deep/model.torchscript",
        "--conf",
        0.0,
        "--max-detections",
        5,
    )
    status, out, _ = lucid("export", last, *words, "--check", scenes / "val", "--json")
    assert status == 0
    document = json.loads(out)
    assert document["file"] == "deep/model.torchscript"
    assert document["parity"]["images"] == 4
    assert document["parity"]["lost"] == document["parity"]["extra"] == 0
    found = ExportedPredictor(lucid.folder / "deep" / "model.torchscript", confidence=0.0)
    assert len(found([torch.zeros(3, 40, 64, dtype=torch.uint8)])) == 1


def test_the_file_lies_beside_the_checkpoint_when_no_place_is_given(lucid, last):
    place = lucid.folder / "a.ckpt"
    place.write_bytes(last.read_bytes())
    status, out, _ = lucid("export", place, "--format", "torchscript")
    assert status == 0
    assert out.startswith(str(lucid.folder / "a.torchscript"))
    assert lucid.files() == ["a.ckpt", "a.torchscript"]


def test_a_file_that_differs_is_status_1(lucid, last, scenes, monkeypatch):
    right = command.parity
    monkeypatch.setattr(command, "parity", lambda *a, **k: replace(right(*a, **k), lost=1))
    words = ("--format", "torchscript", "--output", "m.torchscript", "--check", scenes / "val")
    status, out, err = lucid("export", last, *words)
    assert status == 1
    assert "DIFFERS" in out
    assert "do not deploy it" in err


def test_a_comparison_of_nothing_is_status_1(lucid, last, scenes):
    words = ("--format", "torchscript", "--output", "m.torchscript", "--check", scenes / "val", "--conf", 1.0)
    status, _, err = lucid("export", last, *words)
    assert status == 1
    assert err.strip().endswith("nothing was compared; lower --conf, or give other pictures")


@pytest.mark.parametrize(
    ("words", "status", "message"),
    [
        (("--format", "caffe"), 2, "--format caffe: choose onnx, torchscript, exported-program, safetensors"),
        (("--image-size", "100"), 2, "--image-size 100: give a positive multiple of 32"),
        (("--batch", "0"), 2, "--batch 0: give 1 or more"),
        (("--check", "nowhere"), 2, "--check nowhere: no such image or folder"),
        (
            ("--format", "torchscript"),
            2,
            "--output x.onnx: what reads a torchscript file knows it by its suffix; end the name in .torchscript",
        ),
    ],
)
def test_wrong_options_are_one_line_and_nothing_is_written(lucid, last, words, status, message):
    code, _, err = lucid("export", last, "--output", "x.onnx", *words)
    assert (code, err) == (status, f"error: {message}\n")
    assert lucid.files() == []


def test_an_exported_file_predicts_what_its_checkpoint_does(lucid, last, scenes):
    words = ("--format", "torchscript", "--output", "m.torchscript")
    assert lucid("export", last, *words)[0] == 0
    found = {}
    for model in (last, "m.torchscript"):
        status, out, _ = lucid(
            "predict", model, scenes / "val", "--conf", 0.0, "--max-detections", 3, "--json"
        )
        assert status == 0
        found[model] = json.loads(out)["images"]
    for one, other in zip(found[last], found["m.torchscript"], strict=True):
        assert one["image"] == other["image"]
        assert len(one["detections"]) == len(other["detections"]) == 3
        for a, b in zip(one["detections"], other["detections"], strict=True):
            assert a["label"] == b["label"]
            assert a["score"] == pytest.approx(b["score"], abs=1e-4)
            assert a["box"] == pytest.approx(b["box"], abs=0.02)


@pytest.mark.parametrize("words", [("--image-size", 96), ("--device", "cuda")])
def test_what_an_exported_file_cannot_do_is_status_2(lucid, last, scenes, words):
    assert lucid("export", last, "--format", "torchscript", "--output", "m.torchscript")[0] == 0
    status, _, err = lucid("predict", "m.torchscript", scenes / "val", *words)
    assert status == 2
    assert words[0] in err
