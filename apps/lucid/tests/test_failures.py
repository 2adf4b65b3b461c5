"""Wrong input: one clear line, the right exit status, nothing left behind."""

import json
import os
import pickle
import shutil
import subprocess
import sys
from contextlib import suppress
from pathlib import Path

import pytest
import torch

from lucid_app.main import run


class Payload:
    def __reduce__(self):
        return (open, ("executed", "w"))


@pytest.fixture
def fails(lucid):
    def call(*words, status, words_in_line=()):
        got, _, err = lucid(*words)
        lines = [line for line in err.splitlines() if line.strip()]
        assert got == status, err
        assert "Traceback" not in err
        assert lines[-1].startswith("error: ")
        assert sum(line.startswith("error: ") for line in lines) == 1
        for word in words_in_line:
            assert str(word) in lines[-1]
        return lines[-1]

    call.lucid = lucid
    return call


def test_a_missing_data_folder(fails):
    fails("fit", "--data", "nowhere", status=2, words_in_line=["--data nowhere"])
    assert fails.lucid.files() == []


MISPLACED = [
    ("fit", "--data", "{}"),
    ("fit", "--data", "{data}", "--init", "{}"),
    ("eval", "{}", "--data", "{data}"),
    ("eval", "{file}", "--data", "{}"),
    ("score", "{}", "{file}"),
    ("score", "{data}", "{}"),
    ("score", "{}", "{data}", "--kind", "dota"),
    ("score", "{data}", "{}", "--kind", "dota"),
    ("export", "{}"),
    ("data", "check", "{}"),
    ("data", "stats", "{}"),
    ("data", "view", "{}", "--output", "x.png"),
    ("data", "convert", "{}", "made", "--to", "yolo"),
    ("data", "tile", "{}", "made"),
    ("data", "download", "{}", "made"),
    ("bench", "loader", "{}"),
    ("bench", "fit", "--baseline", "{}", "--candidate", "{file}"),
    ("bench", "publish", "{}"),
    ("predict", "{}", "{data}/val"),
    ("predict", "{}.onnx", "{data}/val"),
    ("predict", "{file}", "{}"),
    ("predict", "{file}", "--tiles", "{}"),
    ("plot", "{}"),
    ("report", "{}"),
]


@pytest.mark.parametrize("words", MISPLACED, ids=" ".join)
def test_a_path_that_is_not_there_is_a_wrong_command_line(fails, scenes, words):
    (fails.lucid.folder / "file").write_text("")
    given = [word.format("nowhere", data=scenes, file="file") for word in words]
    fails(*given, status=2, words_in_line=["nowhere"])
    assert fails.lucid.files() == ["file"]


CHECKPOINTS = [
    ("fit", "--data", "{data}", "--init", "{}"),
    ("eval", "{}", "--data", "{data}"),
    ("export", "{}"),
    ("predict", "{}", "{data}/val"),
]


@pytest.mark.parametrize("words", CHECKPOINTS, ids=" ".join)
def test_a_folder_is_no_checkpoint(fails, scenes, words):
    given = [word.format(scenes, data=scenes) for word in words]
    fails(*given, status=2, words_in_line=["that is a folder; give a checkpoint"])


def test_the_folder_that_one_is_in_is_no_checkpoint(fails):
    fails("export", ".", status=2, words_in_line=["that is a folder; give a checkpoint"])


@pytest.mark.parametrize("words", [("fit", "--data", "{}"), ("data", "stats", "{}")], ids=" ".join)
def test_a_file_that_is_no_data_set_is_told_what_one_is(fails, words):
    (fails.lucid.folder / "README.md").write_text("# read: me")
    given = [word.format("README.md") for word in words]
    said = fails(*given, status=2, words_in_line=["README.md"])
    assert "give a folder of images and labels, a COCO JSON or a dataset YAML" in said


def test_no_data_at_all(fails):
    fails("fit", status=2, words_in_line=["--data"])


def test_an_empty_data_folder(fails):
    (fails.lucid.folder / "empty").mkdir()
    fails("fit", "--data", "empty", status=2, words_in_line=["--data empty", "is empty"])
    assert fails.lucid.files() == []


def test_an_unknown_option_is_answered_with_the_nearest(fails):
    fails("fit", "--epoch", 3, status=2, words_in_line=["--epochs"])


def test_an_unknown_command(fails):
    fails("fti", status=2)


def test_an_unknown_recipe_key_is_answered_with_the_nearest(fails, scenes):
    line = fails("fit", "--data", scenes, "--set", "run.epoch=3", status=2)
    assert "did you mean run.epochs?" in line


def test_an_unknown_recipe(fails, scenes):
    fails("fit", "--data", scenes, "--recipe", "detct", status=2, words_in_line=["did you mean detect?"])


def test_a_canvas_that_is_no_multiple_of_32(fails, scenes):
    fails("fit", "--data", scenes, "--image-size", 100, status=2, words_in_line=["--image-size 100: "])


def test_an_unknown_split(fails, scenes):
    fails("fit", "--data", scenes, "--set", "data.train_split=holidays", status=1, words_in_line=["holidays"])
    assert fails.lucid.files() == []


def test_a_checkpoint_that_is_none(fails, scenes):
    (fails.lucid.folder / "note.ckpt").write_text("hello")
    fails("eval", "note.ckpt", "--data", scenes, status=1, words_in_line=["note.ckpt"])
    fails("predict", "note.ckpt", scenes, status=1, words_in_line=["note.ckpt"])
    fails("predict", "missing.ckpt", scenes, status=2, words_in_line=["missing.ckpt"])


def test_a_checkpoint_of_something_else(fails, scenes):
    torch.save({"weights": torch.zeros(1)}, fails.lucid.folder / "other.ckpt")
    fails("eval", "other.ckpt", "--data", scenes, status=1, words_in_line=["other.ckpt"])


def test_a_pickle_that_would_execute_code_does_not(fails, scenes):
    (fails.lucid.folder / "evil.ckpt").write_bytes(pickle.dumps(Payload()))
    torch.save({"lucid": Payload()}, fails.lucid.folder / "evil2.ckpt")
    for name in ("evil.ckpt", "evil2.ckpt"):
        fails("eval", name, "--data", scenes, status=1, words_in_line=[name])
        fails(
            "fit",
            "--data",
            scenes,
            "--init",
            name,
            "--set",
            "run.output=run-" + name,
            status=1,
            words_in_line=[name],
        )
    assert not (fails.lucid.folder / "executed").exists()


def test_classes_that_are_not_the_checkpoints(fails, scenes, trained):
    other = fails.lucid.folder / "other"
    shutil.copytree(scenes, other)
    file = other / "annotations" / "instances_val.json"
    document = json.loads(file.read_text())
    document["categories"] = document["categories"][:1]
    document["annotations"] = [one for one in document["annotations"] if one["category_id"] == 1]
    file.write_text(json.dumps(document))
    last = trained / "checkpoints" / "last.ckpt"
    fails("eval", last, "--data", other, status=1, words_in_line=["1 class"])


def test_predict_without_an_image(fails, trained):
    fails(
        "predict",
        trained / "checkpoints" / "last.ckpt",
        "nothing-here-*",
        status=2,
        words_in_line=["nothing-here"],
    )


def test_a_confidence_out_of_range(fails, trained):
    fails(
        "predict", trained / "checkpoints" / "last.ckpt", "x", "--conf", 1.5, status=2, words_in_line=["1.5"]
    )


def test_an_unknown_path(fails, trained, scenes):
    last = trained / "checkpoints" / "last.ckpt"
    fails("eval", last, "--data", scenes, "--path", "both-ways", status=2, words_in_line=["both-ways"])


def test_plot_without_a_run(fails):
    fails("plot", "nowhere", status=2, words_in_line=["nowhere"])


def test_an_unknown_size(fails):
    fails("info", "--size", "q", status=2, words_in_line=["q", "n, s, m, l, x"])


def test_resume_without_a_run(fails, scenes):
    fails("fit", "--data", scenes, "--resume", "last", status=2, words_in_line=["no run"])


def test_a_second_fit_into_the_same_folder(fails, scenes, trained):
    fails("fit", "--data", scenes, "--output", trained, status=2, words_in_line=["already holds a run"])


@pytest.mark.parametrize("words", [(), ("data",)])
def test_a_command_that_needs_another_shows_its_help_and_no_empty_error(lucid, words):
    status, out, said = lucid(*words)
    assert status == 2
    assert "Usage: lucid" in out
    assert "error:" not in said


@pytest.mark.parametrize(
    ("words", "status"),
    [
        (["fit", "--data", "nowhere", "--json"], 2),
        (["fit", "--epoch", "3", "--json"], 2),
        (["info", "--size", "q", "--json"], 2),
        (["eval", "note.ckpt", "--data", "{data}", "--json"], 1),
        (["data", "check", "nowhere", "--json"], 2),
        (["bench", "eval", "--rounds", "0", "--json"], 2),
    ],
    ids=lambda value: " ".join(value) if isinstance(value, list) else str(value),
)
def test_with_json_a_failure_is_the_one_document_on_stdout(lucid, scenes, words, status):
    (lucid.folder / "note.ckpt").write_text("hello")
    got, out, err = lucid(*[word.format(data=scenes) for word in words])
    assert got == status
    assert len(out.splitlines()) == 1
    document = json.loads(out)
    assert document["status"] == status
    assert err == f"error: {document['error']}\n"


@pytest.mark.parametrize("error", [KeyboardInterrupt(), RuntimeError("a defect")], ids=["stopped", "defect"])
def test_with_json_whatever_ends_a_command_is_a_document(lucid, monkeypatch, capsys, error):
    def ended(*_):
        raise error

    monkeypatch.setattr("lucid_app.info.count", ended)
    if isinstance(error, KeyboardInterrupt):
        assert lucid("info", "--json")[:2] == (130, '{"error": "interrupted", "status": 130}\n')
        return
    with pytest.raises(RuntimeError):
        lucid("info", "--json")
    assert json.loads(capsys.readouterr().out) == {"error": "a defect", "status": 1}


def test_without_json_a_failure_leaves_stdout_empty(lucid):
    assert lucid("info", "--size", "q")[:2] == (2, "")


def test_of_several_processes_the_first_prints_the_document(lucid, monkeypatch):
    for rank, lines in (("0", 1), ("1", 0)):
        monkeypatch.setenv("RANK", rank)
        status, out, err = lucid("info", "--size", "q", "--json")
        assert (status, len(out.splitlines()), len(err.splitlines())) == (2, lines, 1)


FULL = Path("/dev/full")


@pytest.mark.skipif(not FULL.exists(), reason="a device that is always full")
@pytest.mark.parametrize(("words", "expected"), [(["--switches"], 1), (["--size", "q"], 2)], ids=str)
def test_a_full_stdout_is_one_line(monkeypatch, capsys, words, expected):
    monkeypatch.setattr("lucid_app.info.usable_switches", dict)
    with suppress(OSError), FULL.open("w") as full:  # closing tries again
        monkeypatch.setattr("sys.stdout", full)
        assert run(["info", *words, "--json"]) == expected
    (line,) = capsys.readouterr().err.splitlines()
    assert line.startswith("error: ")


@pytest.mark.skipif(not FULL.exists(), reason="a device that is always full")
def test_what_only_the_end_finds_undeliverable_is_one_line():
    code = "from lucid_app.main import main; main(['--version'])"
    buffered = {name: value for name, value in os.environ.items() if name != "PYTHONUNBUFFERED"}
    with FULL.open("w") as full:
        ended = subprocess.run(
            [sys.executable, "-c", code], stdout=full, stderr=subprocess.PIPE, env=buffered
        )
    assert ended.returncode == 1
    assert ended.stderr == b"error: [Errno 28] No space left on device\n"


def test_a_folder_without_permission_to_write_is_said_before_any_work(lucid, tmp_path, monkeypatch):
    monkeypatch.setattr("lucid_app.checks.os.access", lambda place, mode: False)
    status, _, err = lucid("demo", "--output", tmp_path / "new")
    assert status == 2
    assert f"no permission to write in {tmp_path}" in err


def test_a_data_set_named_by_its_file_is_missed_as_a_file(lucid):
    status, _, err = lucid("score", "nothing.json", "found.json")
    assert (status, err) == (
        2,
        "error: nothing.json: no such file; give the folder of images and labels\n",
    )
