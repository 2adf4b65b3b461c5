"""The commands that look after data sets: what they write and say, and that nothing is left half done."""

import hashlib
import http.server
import json
import shutil
import threading
from functools import partial

import pytest
from PIL import Image

from lucid_app.console import print_json
from lucid_data import open_catalog, read_image, synthetic

COMMANDS = ("check", "stats", "view", "convert", "tile", "download", "sample")


@pytest.mark.parametrize("command", COMMANDS)
def test_help_works_without_data_and_shows_an_example(lucid, command):
    status, out, _ = lucid("data", command, "--help")
    assert status == 0
    assert f"lucid data {command}" in " ".join(out.split())


def test_sample_draws_a_set_that_check_finds_healthy(lucid):
    for words in (
        ["--task", "pose"],
        ["--format", "yolo", "--task", "segment"],
        ["--format", "voc"],
        ["--format", "dota"],
    ):
        name = "-".join(words).replace("--", "")
        status, out, _ = lucid("data", "sample", name, *words, "--train", 3, "--val", 1, "--size", 64)
        assert status == 0
        assert "3 training and 1 validation images" in out
        task = "obb" if "dota" in words else words[-1] if "--task" in words else "detect"
        status, out, _ = lucid("data", "check", name, "--task", task)
        assert status == 0, out


def test_stats_prints_counts_of_every_split_and_draws_them(lucid, scenes):
    status, out, _ = lucid("data", "stats", scenes, "--plot", "stats.png", "--json")
    assert status == 0
    document = json.loads(out)
    assert {name: numbers["images"] for name, numbers in document.items()} == {"train": 10, "val": 4}
    assert document["train"]["instances"] == sum(len(open_catalog(scenes).targets(i)) for i in range(10))
    assert lucid.files() == ["stats-train.png", "stats-val.png"]


def test_view_draws_samples(lucid, scenes):
    status, out, _ = lucid(
        "data", "view", scenes, "--image-size", 64, "--count", 4, "--output", "deep/sheet.png"
    )
    assert status == 0
    assert out.strip() == "deep/sheet.png"
    assert read_image(lucid.folder / "deep" / "sheet.png").float().std() > 10


def test_convert_writes_the_format_and_tells_what_is_lost(lucid, scenes):
    status, out, _ = lucid("data", "convert", scenes, "yolo", "--to", "yolo", "--json")
    assert status == 0
    assert json.loads(out)["images"] == {"train": 10, "val": 4}
    there, here = open_catalog(scenes, "val"), open_catalog(lucid.folder / "yolo", "val")
    assert [len(here.targets(i)) for i in range(4)] == [len(there.targets(i)) for i in range(4)]


def test_tile_cuts_and_counts(lucid):
    synthetic.write_dota(lucid.folder / "large", splits={"train": 2}, size=160, seed=3)
    status, out, _ = lucid("data", "tile", "large", "tiles", "--patch", 96, "--overlap", 32)
    assert status == 0
    # 160 px at a stride of 64: windows from 0 and 64 on both axes
    assert "train: 8 tiles" in out
    assert len(open_catalog(lucid.folder / "tiles", "train", "obb")) == 8


def test_download_takes_a_manifest_and_says_when_all_is_there(lucid, tmp_path_factory):
    served = tmp_path_factory.mktemp("served")
    (served / "part.bin").write_bytes(b"abc")
    server = http.server.ThreadingHTTPServer(
        ("127.0.0.1", 0), partial(http.server.SimpleHTTPRequestHandler, directory=served)
    )
    threading.Thread(target=server.serve_forever, daemon=True).start()
    try:
        url = f"http://127.0.0.1:{server.server_port}/part.bin"
        entry = {"url": url, "sha256": hashlib.sha256(b"abc").hexdigest()}
        (lucid.folder / "parts.json").write_text(json.dumps({"files": [entry]}))
        status, out, _ = lucid("data", "download", "parts.json", "mine", "--json")
        assert status == 0
        assert json.loads(out) == [{"path": "mine/part.bin", "sha256": entry["sha256"], "verified": True}]
        _, out, _ = lucid("data", "download", "parts.json", "mine")
        assert out.strip() == "mine: everything is there"
    finally:
        server.shutdown()
        server.server_close()


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (("check", ".", "--task", "boxes"), "--task boxes: choose detect, segment, pose, obb"),
        (("stats", ".", "--layout", "csv"), "--layout csv: choose coco, yolo, voc, dota"),
        (("convert", ".", "x", "--to", "xml"), "--to xml: choose coco, yolo, dota"),
        (
            ("convert", ".", "x", "--to", "coco", "--pictures", "move"),
            "--pictures move: choose copy, link, skip",
        ),
        (("tile", ".", "x", "--task", "pose"), "--task pose: choose obb, detect"),
        (("view", ".", "--output", "x.png", "--size", "q"), "--size q: choose n, s, m, l, x"),
        (
            ("view", ".", "--output", "x.png", "--image-size", "100"),
            "--image-size 100: give a positive multiple of 32",
        ),
        (("sample", "x", "--format", "csv"), "--format csv: choose coco, yolo, voc, dota"),
        (("sample", "x", "--format", "voc", "--task", "pose"), "--task pose: voc holds detect only"),
        (("download", "imagenet", "x"), "imagenet: neither coco2017 nor a manifest file"),
        (("download", "coco2017", "x", "--sha256", "abc"), "--sha256 abc: give NAME=HEX"),
    ],
)
def test_a_wrong_option_is_one_line_and_status_2(lucid, words, message):
    status, _, err = lucid("data", *words)
    assert status == 2
    assert err.startswith(f"error: {message}")
    assert len(err.splitlines()) == 1
    assert lucid.files() == []


@pytest.mark.parametrize(
    "words",
    [("convert", "taken", "--to", "yolo"), ("tile", "taken", "--task", "detect")],
    ids=["convert", "tile"],
)
def test_a_target_with_content_is_left_alone(lucid, scenes, words):
    (lucid.folder / "taken").mkdir()
    (lucid.folder / "taken" / "mine.txt").write_text("keep")
    command, target, *rest = words
    status, _, err = lucid("data", command, scenes, target, *rest)
    assert status == 1
    assert "taken already has content; choose an empty folder" in err
    assert lucid.files() == ["taken/mine.txt"]


def test_a_layout_that_is_said_is_the_only_one_looked_for(lucid, scenes):
    shutil.copytree(scenes, lucid.folder / "mixed")
    (lucid.folder / "mixed" / "data.yaml").write_text(": not yaml :\n- [")
    for words in (("stats", "mixed"), ("check", "mixed"), ("convert", "mixed", "out", "--to", "yolo")):
        status, _, err = lucid("data", *words, "--layout", "coco")
        assert status == 0, err
    assert lucid("data", "stats", "mixed")[0] == 1


def test_json_of_a_name_that_is_no_text_is_ascii(capsys):
    print_json({"file": "caf\udce9.png"})
    assert json.loads(capsys.readouterr().out) == {"file": "caf\udce9.png"}


def test_findings_are_whole_lines_where_there_is_no_terminal(lucid, monkeypatch):
    monkeypatch.setenv("COLUMNS", "40")
    root = synthetic.write_yolo(lucid.folder / ("a" * 60), splits={"train": 2}, size=64)
    label = root / "labels" / "train" / "00001.txt"
    label.write_text(label.read_text() + "77 0.5 0.5 0.1 0.1\n")
    line = len(label.read_text().splitlines())
    status, out, _ = lucid("data", "check", root)
    assert status == 1
    assert f"{label}: line {line}: error yolo-class: class 77" in out.splitlines()[0]


def test_check_reads_headers_only_when_asked_and_takes_the_class_list(lucid):
    tree = synthetic.write_dota(lucid.folder / "dota", splits={"train": 2}, size=64)
    picture = next((tree / "train" / "images").iterdir())
    Image.open(picture).save(picture.with_suffix(".jpg"))
    picture.unlink()
    cut = picture.with_suffix(".jpg")
    cut.write_bytes(cut.read_bytes()[:-200])
    label = next((tree / "train" / "labelTxt").iterdir())
    label.write_text(label.read_text() + "1 1 9 1 9 5 1 5 helipad 0\n")
    codes = {}
    for name, words in {
        "decoded": (),
        "headers": ("--no-decode",),
        "old": ("--no-decode", "--dota-version", "1.0"),
    }.items():
        _, out, _ = lucid("data", "check", tree, "--task", "obb", "--json", *words)
        codes[name] = {one["code"] for one in json.loads(out)["findings"] if one["severity"] == "error"}
    assert "image-unreadable" in codes["decoded"]
    assert codes["headers"] == set()
    assert "dota-class" in codes["old"]
