"""Every command on a small run: what it prints, what it writes, how it exits."""

import io
import json
from contextlib import contextmanager
from importlib.util import find_spec

import pytest
import torch
from rich.console import Console

from lucid_app import console, export, score
from lucid_data import read_image, score_coco
from lucid_train import REPLAY_SWITCHES, SPEED_SWITCHES, recipes


def test_help_of_every_command_works_without_data(lucid):
    for words in (
        [],
        ["demo"],
        ["fit"],
        ["eval"],
        ["predict"],
        ["plot"],
        ["report"],
        ["export"],
        ["score"],
        ["info"],
        ["data"],
        ["data", "check"],
    ):
        status, out, _ = lucid(*words, "--help")
        assert status == 0
        assert "Usage" in out


def test_every_command_shows_an_example(lucid):
    for words in (["demo"], ["fit"], ["eval"], ["predict"], ["plot"], ["report"], ["export"], ["score"]):
        _, out, _ = lucid(*words, "--help")
        assert "lucid " + " ".join(words) in " ".join(out.split()), words


def test_fit_draws_curves_batches_and_predictions(trained):
    assert sorted(file.name for file in (trained / "plots").iterdir()) == [
        "curves.png",
        "train_batch_1.png",
        "train_batch_2.png",
        "val_predictions.png",
    ]


def test_fit_json_ends_with_the_contract(lucid, scenes):
    words = (
        f"fit --data {scenes} --image-size 64 --batch 5 --epochs 1 --workers 0 --device cpu --quiet --json"
    )
    status, out, _ = lucid(*words.split(), "--fingerprint", "--output", "run")
    assert status == 0
    document = json.loads(out.splitlines()[-1])
    assert set(document) == {"run", "best_checkpoint", "last_checkpoint", "metrics", "fingerprint"}
    assert len(document["fingerprint"]["all"]) == 64


def test_fit_shows_an_epoch_line_on_stderr(lucid, scenes):
    words = f"fit --data {scenes} --image-size 64 --batch 5 --epochs 1 --workers 0 --device cpu --output run"
    status, _, err = lucid(*words.split())
    assert status == 0
    assert "epoch 1/1" in err
    assert "AP" in err


def test_eval_prints_both_paths_and_writes_the_report(lucid, scenes, trained):
    last = trained / "checkpoints" / "last.ckpt"
    status, out, _ = lucid("eval", last, "--data", scenes, "--workers", 0, "--output", "report.json")
    assert status == 0
    assert "e2e" in out
    assert "nms" in out
    report = json.loads((lucid.folder / "report.json").read_text())
    assert set(report["report"]) == {"e2e", "nms"}


def test_eval_json_is_the_report(lucid, scenes, trained):
    last = trained / "checkpoints" / "last.ckpt"
    status, out, _ = lucid(
        "eval", last, "--data", scenes, "--workers", 0, "--path", "e2e", "--limit", 2, "--json"
    )
    assert status == 0
    report = json.loads(out)
    assert report["images"] == 2
    state = {name: report["info"][name] for name in ("epoch", "global_step", "ema", "ema_updates")}
    # ten images in batches of five: two steps of the only epoch
    assert state == {"epoch": 1, "global_step": 2, "ema": True, "ema_updates": 2}


def test_eval_on_rectangular_canvases_scores_every_image(lucid, scenes, trained):
    last = trained / "checkpoints" / "last.ckpt"
    words = ("eval", last, "--data", scenes, "--workers", 0, "--path", "e2e", "--json")
    square, rect = (json.loads(lucid(*words, *more)[1]) for more in ((), ("--rect",)))
    assert (square["info"]["rect"], rect["info"]["rect"]) == (False, True)
    # square pictures have square canvases
    assert rect["report"] == square["report"]


def test_predict_writes_json_and_drawn_images(lucid, scenes, trained):
    last = trained / "checkpoints" / "last.ckpt"
    images = sorted(path for path in scenes.rglob("*") if path.suffix in (".png", ".jpg"))[:3]
    status, out, _ = lucid("predict", last, *images, "--draw", "--conf", 0.01, "--output", "found", "--json")
    assert status == 0
    document = json.loads(out)
    records = document["images"]
    assert [record["image"] for record in records] == [str(path) for path in images]
    assert all(
        {"box", "score", "label", "name"} <= set(one) for record in records for one in record["detections"]
    )
    assert document == json.loads((lucid.folder / "found" / "predictions.json").read_text())
    assert document["info"] == {"checkpoint": str(last), "conf_threshold": 0.01, "decoder": "e2e"}
    for path in images:
        # small drawings are enlarged: 10 times 64 px are at least 600
        assert read_image(lucid.folder / "found" / path.name).shape == (3, 640, 640)


def test_predict_takes_folders_and_globs(lucid, scenes, trained):
    last = trained / "checkpoints" / "last.ckpt"
    folder = next(path.parent for path in scenes.rglob("*") if path.suffix in (".png", ".jpg"))
    by_folder, by_glob = (
        json.loads(lucid("predict", last, source, "--json")[1])["images"]
        for source in (folder, f"{folder}/*.*")
    )
    assert by_folder == by_glob
    assert len(by_folder) == len(list(folder.iterdir()))


def test_predict_keeps_going_past_a_broken_image_and_says_so(lucid, scenes, trained):
    good = next(path for path in scenes.rglob("*") if path.suffix in (".png", ".jpg"))
    (lucid.folder / "broken.jpg").write_bytes(good.read_bytes()[:40])
    status, out, err = lucid("predict", trained / "checkpoints" / "last.ckpt", "broken.jpg", good, "--json")
    assert status == 1
    assert len(json.loads(out)["images"]) == 1
    assert "broken.jpg" in err
    assert "Traceback" not in err


def test_plot_writes_where_told(lucid, trained):
    status, out, _ = lucid("plot", trained, "--output", "curves.png")
    assert status == 0
    assert out.strip() == "curves.png"
    assert read_image(lucid.folder / "curves.png").shape[0] == 3


def test_info_json_lists_the_sizes(lucid):
    status, out, _ = lucid("info", "--task", "detect", "--json")
    rows = json.loads(out)
    assert status == 0
    assert [(row["task"], row["size"]) for row in rows] == [("detect", size) for size in "nsmlx"]
    assert rows[0] == {
        "task": "detect",
        "size": "n",
        "params_deployed": 2408932,
        "params_training": 2572280,
        "gflops": pytest.approx(5.3599, abs=5e-5),
    }


def test_info_of_one_network_leaves_the_switches_out(lucid):
    assert "switches" not in lucid("info", "--task", "detect", "--size", "n")[1]


def test_info_lists_every_task(lucid):
    status, out, _ = lucid("info", "--size", "n", "--json")
    assert status == 0
    assert [row["task"] for row in json.loads(out)] == ["detect", "segment", "pose", "obb"]


def test_data_check_of_a_sound_set_exits_zero(lucid, scenes):
    status, out, _ = lucid("data", "check", scenes, "--json")
    assert status == 0
    assert json.loads(out)["counts"]["error"] == 0


def test_resume_last_continues_the_named_run(lucid, scenes):
    words = f"fit --data {scenes} --image-size 64 --batch 5 --epochs 1 --workers 0 --device cpu --quiet --output run"
    assert lucid(*words.split())[0] == 0
    before = torch.load(lucid.folder / "run" / "checkpoints" / "last.ckpt", weights_only=True)["global_step"]
    assert lucid("fit", "--resume", "last", "--output", "run", "--quiet")[0] == 0
    after = torch.load(lucid.folder / "run" / "checkpoints" / "last.ckpt", weights_only=True)["global_step"]
    assert before == after == 2


def test_eval_scores_by_the_engine_that_is_asked_for(lucid, scenes, trained, monkeypatch):
    pytest.importorskip("faster_coco_eval")
    asked = []
    monkeypatch.setattr(
        "lucid_train.results.score_coco",
        lambda *words, engine, **more: asked.append(engine) or score_coco(*words, engine=engine, **more),
    )
    last = trained / "checkpoints" / "last.ckpt"
    words = ("eval", last, "--data", scenes, "--workers", 0, "--path", "e2e", "--json")
    slow, fast = (json.loads(lucid(*words, *more)[1]) for more in ((), ("--engine", "faster")))
    assert (slow["info"]["eval_backend"], fast["info"]["eval_backend"]) == ("pycocotools", "faster")
    assert fast["report"]["e2e"]["map"] == pytest.approx(slow["report"]["e2e"]["map"], abs=1e-9)
    # each is tried before the work, and scores after it
    assert asked == ["pycocotools", "pycocotools", "faster", "faster"]


def test_info_says_of_every_switch_whether_it_can_be_used(lucid, monkeypatch):
    monkeypatch.setattr(torch.cuda, "is_available", lambda: False)
    monkeypatch.setattr(torch.backends.mps, "is_available", lambda: False)
    status, out, _ = lucid("info")
    assert status == 0
    lines = {
        line.split()[0]: " ".join(line.split()[1:]) for line in out.splitlines() if line.startswith("  --")
    }
    assert set(lines) == {f"--{name.replace('_', '-')}" for name in (*REPLAY_SWITCHES, *SPEED_SWITCHES)}
    assert lines["--cache-train-images"] == "yes"
    assert lines["--capture-loss"] == "no: needs a CUDA device, and this run is on cpu"
    assert lines["--fused-assignment"] == "no: needs an NVIDIA device and Triton"
    rows = json.loads(lucid("info", "--switches", "--json")[1])
    assert [row["switch"] for row in rows] == [*REPLAY_SWITCHES, *SPEED_SWITCHES]
    missing = {"fused_assignment"} if find_spec("numba") else {"fused_assignment", "fused_hsv"}
    assert [row["switch"] for row in rows if row["usable"]] == [n for n in SPEED_SWITCHES if n not in missing]
    assert all(row["usable"] == (row["reason"] is None) for row in rows)


def test_help_of_fit_names_every_packaged_recipe(lucid):
    words = " ".join(lucid("fit", "--help")[1].replace("│", " ").split())
    assert f"A packaged recipe ({', '.join(recipes())}), or a YAML file." in words
    assert "CUDA_VISIBLE_DEVICES=1 lucid fit" in words


class Terminal(io.StringIO):
    def isatty(self):
        return True


@pytest.mark.parametrize(("quiet", "terminal"), [(False, True), (True, True), (False, False)])
def test_a_spinner_turns_on_a_terminal_that_wants_it(monkeypatch, capsys, quiet, terminal):
    stream = Terminal() if terminal else io.StringIO()
    monkeypatch.setattr(console, "err", Console(file=stream, force_terminal=terminal))
    with console.waiting("scoring", quiet=quiet):
        pass
    assert ("scoring" in stream.getvalue()) == (terminal and not quiet)
    assert capsys.readouterr().out == ""


@pytest.mark.parametrize("more", [(), ("--quiet",), ("--json",)])
def test_long_commands_say_what_they_wait_for(lucid, scenes, trained, monkeypatch, more):
    said = []

    @contextmanager
    def waiting(title, quiet=False):
        said.append((title, quiet))
        yield

    @contextmanager
    def counting(title, quiet=False):
        said.append((title, quiet))
        yield lambda done, total: said.append((done, total))

    for module in (score, export):
        monkeypatch.setattr(module, "waiting", waiting)
    monkeypatch.setattr("lucid_app.data.check.counting", counting)
    (lucid.folder / "none.json").write_text("[]")
    last = trained / "checkpoints" / "last.ckpt"
    lucid("score", scenes, "none.json", *more)
    lucid("export", last, "--format", "safetensors", "--output", "w.safetensors", *more)
    lucid("data", "check", scenes, *more)
    still = bool(more)
    assert [one for one in said if isinstance(one[0], str)] == [
        ("scoring", still),
        ("exporting", still),
        ("checking", still),
    ]
    assert said[-1] == (14, 14)
