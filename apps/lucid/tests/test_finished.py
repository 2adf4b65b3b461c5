"""What makes a command line feel finished: examples, hints for typing errors, completion, plain text in a pipe."""

import doctest
import json
import re
import subprocess
import sys
from importlib import import_module
from pathlib import Path

import pytest
import typer

from lucid_app import app, evaluate, fit
from lucid_app.main import run
from lucid_train import FitResult, Progress, load_config


def commands(command=None, path="lucid"):
    command = command or typer.main.get_command(app)
    for name, one in command.commands.items():
        if getattr(one, "commands", None):
            yield from commands(one, f"{path} {name}")
        else:
            yield f"{path} {name}", one


@pytest.mark.parametrize(("path", "command"), list(commands()), ids=[path for path, _ in commands()])
def test_the_help_of_every_command_has_an_example_that_parses(path, command):
    lines = [
        line.strip() for line in (command.help or "").splitlines() if line.strip().startswith(path + " ")
    ]
    lines += [path] if re.search(rf"^\s*{path}$", command.help or "", re.MULTILINE) else []
    assert lines, path
    assert re.search(r"Examples?:", command.help)
    assert all(
        option.help
        for option in command.params
        if option.name != "help" and option.param_type_name == "option"
    )


@pytest.mark.parametrize("width", [10, 28, 60, 80])
@pytest.mark.parametrize(("path", "command"), list(commands()), ids=[path for path, _ in commands()])
def test_help_names_every_option_in_full_and_keeps_to_the_width(path, command, width, capsys, monkeypatch):
    monkeypatch.setenv("COLUMNS", str(width))
    assert run([*path.split()[1:], "--help"]) == 0
    shown = capsys.readouterr().out
    for option in command.params:
        for flag in (*option.opts, *option.secondary_opts):
            assert re.search(rf"(?<![\w-]){flag}(?![\w-])", shown), flag
    examples = [line for line in shown.splitlines() if line.startswith(f"    {path}")]
    usage = shown.splitlines()[: shown.splitlines().index("")] if width < 60 else []
    # one word, and a default with its value, are not broken
    wide = [line for line in shown.splitlines() if len(line) > width and re.search(r"\S (?!.*\]$)", line)]
    assert [line for line in wide if line not in (*usage, *examples)] == []


def test_the_examples_of_a_help_stand_together(capsys):
    assert run(["predict", "--help"]) == 0
    shown = capsys.readouterr().out.split("Examples:\n")[1].split("\n\n")[0]
    assert [line[:18] for line in shown.splitlines()] == ["    lucid predict "] * 4


@pytest.mark.parametrize(
    ("words", "hint"),
    [
        (["predcit"], "predict"),
        (["data", "chek"], "check"),
        (["fit", "--epoch", "3"], "--epochs"),
        (["predict", "a.ckpt", "b", "--confg", "0.2"], "--conf"),
        (["fit", "--data", ".", "--set", "optimizer.lrr=1"], "optimizer.lr"),
        (["fit", "--data", ".", "--set", "optimzer.lr=1"], "optimizer"),
        (["fit", "--data", ".", "--recipe", "demoo"], "demo"),
    ],
)
def test_a_typing_error_gets_a_hint_and_status_two(lucid, words, hint):
    status, out, err = lucid(*words)
    assert (status, out) == (2, "")
    (line,) = err.splitlines()
    assert re.search(rf"[Dd]id you mean.*{hint}\b", line), line
    assert lucid.files() == []


@pytest.mark.parametrize("shell", ["bash", "zsh", "fish"])
def test_shells_can_complete(shell):
    from typer._completion_shared import get_completion_script

    script = get_completion_script(prog_name="lucid", complete_var="_LUCID_COMPLETE", shell=shell)
    assert "_LUCID_COMPLETE" in script
    assert {"--install-completion", "--show-completion"} <= {
        flag for option in typer.main.get_command(app).params for flag in option.opts
    }


def test_tables_in_a_pipe_are_plain_text(tmp_path):
    code = "from lucid_app.main import main; main(['info', '--size', 'n', '--task', 'detect'])"
    result = subprocess.run([sys.executable, "-c", code], capture_output=True, cwd=tmp_path)
    assert result.returncode == 0
    assert b"\x1b" not in result.stdout
    assert b"detect" in result.stdout


def test_a_report_can_be_read_by_a_program(lucid, trained):
    replay = {
        "mode": "step",
        "options": {
            "capture_loss": [
                {"name": "loss", "state": "ready", "recorded": 1, "replayed": 7, "native": {"shape": 2}}
            ]
        },
    }
    kept = (trained / "replay.json").read_text() if (trained / "replay.json").exists() else None
    (trained / "replay.json").write_text(json.dumps(replay))
    try:
        status, out, err = lucid("report", trained, "--output", "run.html", "--limit", 2, "--json")
    finally:
        (trained / "replay.json").write_text(kept) if kept is not None else (trained / "replay.json").unlink()
    assert (status, err) == (0, "")
    document = json.loads(out)
    assert document["file"] == "run.html"
    assert document["images"] == 2
    assert "map" in document["scores"]["bbox"]
    text = (lucid.folder / "run.html").read_text()
    assert ">Replay</h2>" in text
    assert "2 shape" in text


def test_eval_says_a_dash_where_there_is_nothing_to_score_and_the_gap_in_words(lucid, scenes, trained):
    last = trained / "checkpoints" / "last.ckpt"
    words = ["eval", last, "--data", scenes, "--workers", 0, "--output", "report.json"]
    status, out, _ = lucid(*words)
    assert status == 0
    report = json.loads((lucid.folder / "report.json").read_text())["report"]
    assert report["e2e"]["map_large"] == -1  # pictures of 64 px have no large object
    assert re.search(r"S/M/L [\d.]+ [\d.–]+ –$", out, re.MULTILINE), out
    gap = round(100 * (report["e2e"]["map"] - report["nms"]["map"]), 2)
    said = f"is {abs(gap):.2f} AP points {'above' if gap > 0 else 'below'}" if gap else "equals"
    assert f"e2e {said} nms" in out
    assert "-1" not in out


@pytest.mark.parametrize(
    ("e2e", "nms", "said"),
    [
        (0.2, 0.3, ["e2e is 10.00 AP points below nms"]),
        (0.3, 0.29, ["e2e is 1.00 AP points above nms"]),
        (0.3, 0.3, ["e2e equals nms"]),
        (0.30001, 0.3, ["e2e equals nms"]),
        (-1.0, -1.0, []),
        (-1.0, 0.3, []),
        (0.3, -1.0, []),
    ],
)
def test_eval_compares_the_two_paths_where_both_have_a_score(lucid, scenes, monkeypatch, e2e, nms, said):
    def scored(*_, **__):
        numbers = {
            path: dict.fromkeys(("map", "map_50", "map_75"), ap) for path, ap in (("e2e", e2e), ("nms", nms))
        }
        info = {"task": "detect", "split": "val", "image_size": 64}
        return {"images": 1, "seconds": 0, "info": info, "report": numbers}

    monkeypatch.setattr(evaluate, "score", scored)
    (lucid.folder / "some.ckpt").write_text("")
    status, out, _ = lucid("eval", "some.ckpt", "--data", scenes)
    assert (status, out.splitlines()[3:]) == (0, said)


@pytest.mark.parametrize(
    ("recipe", "steps", "warned"), [("detect", 1, 1), ("detect", 2, 0), ("overfit", 1, 0)]
)
def test_a_training_set_of_one_batch_is_warned_of_once(capsys, recipe, steps, warned):
    seen = []
    tell = fit.warned_of_few(load_config(recipe), seen.append)
    told = [Progress(phase, epoch, 2, 1, steps) for epoch in range(2) for phase in ("train", "val", "epoch")]
    for progress in told:
        tell(progress)
    assert seen == told
    assert capsys.readouterr().err.count("warning: one batch holds every training image") == warned


def test_a_fit_ends_with_the_best_and_the_last_checkpoint(capsys, tmp_path):
    run = FitResult(tmp_path, Path("best.ckpt"), Path("last.ckpt"), {})
    fit.report(run, as_json=False)
    assert capsys.readouterr().out.splitlines()[:2] == [
        "best checkpoint best.ckpt",
        "last checkpoint last.ckpt",
    ]


def test_sizes_say_at_which_canvas_the_gflops_are(lucid):
    status, out, _ = lucid("info", "--size", "n", "--task", "obb")
    assert status == 0
    assert re.search(r"obb .* 1024 px", out)


@pytest.mark.parametrize("name", ["checks", "console", "evaluate", "help", "keys", "main", "options"])
def test_the_examples_in_the_docstrings_of_a_module_run(name):
    failures, tried = doctest.testmod(import_module(f"lucid_app.{name}"))
    assert failures == 0
    assert tried > 0
