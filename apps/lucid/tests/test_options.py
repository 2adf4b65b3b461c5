"""Options are taken as they are, checked before any work, and never cost a file that is there already."""

import json
import os
import shutil

import pytest
import torch
from PIL import Image

from lucid_app import demo, fit, predict, sheets
from lucid_app.checks import choose_device
from lucid_app.main import one_line, original_message
from lucid_data import read_image
from lucid_train import ConfigError

ORIENTATION = 0x0112


@pytest.fixture
def checkpoint(trained):
    return trained / "checkpoints" / "last.ckpt"


@pytest.fixture
def renamed(lucid, scenes, checkpoint):
    """Write named.ckpt and named/, the checkpoint and the scenes with another first class name."""

    def write(first):
        header = torch.load(checkpoint, weights_only=True)["lucid"]
        header["names"][0] = first
        torch.save({"lucid": header}, lucid.folder / "named.ckpt")
        shutil.copytree(scenes, lucid.folder / "named")
        for file in (lucid.folder / "named" / "annotations").glob("*.json"):
            document = json.loads(file.read_text())
            for category, name in zip(document["categories"], header["names"], strict=True):
                category["name"] = name
            file.write_text(json.dumps(document))

    return write


def photo(path, colour=(200, 30, 30), **more):
    path.parent.mkdir(parents=True, exist_ok=True)
    Image.new("RGB", (48, 32), colour).save(path, **more)
    return path


def taken(config):
    """Stand in for training: the configuration is all a test wants to see."""
    raise ConfigError(f"taken {config.to_yaml()}")


def test_sources_that_share_a_name_are_drawn_into_files_of_their_own(lucid, checkpoint):
    for name in ("dup.jpg", "dup.png", "dup-1.jpg", "more/dup.jpg", "more/dup.bmp", "more/dup.webp"):
        photo(lucid.folder / name)
    sources = ["dup.jpg", "dup.png", "dup-1.jpg"]
    assert lucid("predict", checkpoint, *sources, "--draw", "--output", "three")[0] == 0
    assert {path.name for path in (lucid.folder / "three").iterdir()} == {*sources, "predictions.json"}
    assert lucid("predict", checkpoint, "dup-1.jpg", "dup.jpg", "more", "--draw", "--output", "all")[0] == 0
    assert len(list((lucid.folder / "all").iterdir())) == 6


def test_a_source_is_never_drawn_over(lucid, checkpoint):
    source = photo(lucid.folder / "photos" / "a.jpg")
    os.link(source, lucid.folder / "hard.jpg")
    before = source.read_bytes()
    for words in (["photos/a.jpg", "--output", "photos"], ["photos/a.jpg", "--output", "."]):
        if words[-1] == ".":
            (lucid.folder / "a.jpg").symlink_to(source)
        status, _, err = lucid("predict", checkpoint, *words, "--draw")
        assert status == 2
        assert "would overwrite the source" in err
    assert source.read_bytes() == before
    assert not (lucid.folder / "photos" / "predictions.json").exists()


def test_a_photo_is_turned_upright_before_it_is_looked_at(lucid, checkpoint):
    tag = Image.Exif()
    tag[ORIENTATION] = 6
    photo(lucid.folder / "turned.jpg", exif=tag)
    status, out, _ = lucid("predict", checkpoint, "turned.jpg", "--draw", "--output", "found", "--json")
    assert status == 0
    assert json.loads(out)["images"][0]["image_size"] == [48, 32]
    # small drawings are enlarged: 13 times 48 px are at least 600
    assert read_image(lucid.folder / "found" / "turned.jpg", exif=False).shape == (3, 13 * 48, 13 * 32)


def test_the_confidence_is_a_bound_that_scores_must_exceed(lucid, scenes, checkpoint):
    image = next((scenes / "val").glob("*"))

    def found(bound):
        _, out, _ = lucid("predict", checkpoint, image, "--conf", bound, "--json")
        return [one["score"] for one in json.loads(out)["images"][0]["detections"]]

    scores = found(0)
    bound = scores[len(scores) // 2]
    assert found(repr(bound)) == [score for score in scores if score > bound]


def test_where_nothing_is_found_the_highest_score_is_printed(lucid, scenes, checkpoint):
    image = next((scenes / "val").glob("*"))
    status, out, _ = lucid("predict", checkpoint, image, "--conf", 1)
    (record,) = json.loads((lucid.folder / "predictions" / "predictions.json").read_text())["images"]
    assert status == 0
    assert 0 < record["highest_score"] < 1
    assert out.splitlines()[0] == f"{image}: nothing above 1; highest {record['highest_score']:.2g}"
    everything = json.loads(lucid("predict", checkpoint, image, "--conf", 0, "--json")[1])["images"][0]
    assert everything["detections"][0]["score"] == everything["highest_score"] == record["highest_score"]


def test_captions_can_be_left_out_of_drawings(lucid, checkpoint, monkeypatch):
    photo(lucid.folder / "a.jpg")
    styles = []
    monkeypatch.setattr(predict, "burn_predictions", lambda image, _, style: (styles.append(style), image)[1])
    for words in ([], ["--no-captions"]):
        assert lucid("predict", checkpoint, "a.jpg", "--draw", "--conf", 0.4, *words)[0] == 0
    assert [(style.show_labels, style.confidence) for style in styles] == [(True, 0.4), (False, 0.4)]


def test_the_batch_of_predict_is_that_of_the_network(checkpoint):
    assert predict.opened(checkpoint, None, "cpu", 0.25, 300, 5).batch_size == 5


@pytest.mark.parametrize("name", ["[/b]", "[red]a", ":smile:"])
def test_class_names_are_printed_as_they_are(lucid, renamed, name):
    renamed(name)
    status, out, _ = lucid("eval", "named.ckpt", "--data", "named", "--workers", 0)
    assert status == 0
    assert name in out
    status, out, _ = lucid("predict", "named.ckpt", "named/val", "--conf", 0)
    assert status == 0
    assert name in out


def test_folder_names_are_printed_as_they_are(lucid):
    photo(lucid.folder / "a[/b]c" / "x.jpg")
    status, out, err = lucid("data", "check", "a[/b]c")
    assert status == 1
    assert "a[/b]c" in out
    status, _, err = lucid("predict", "none.ckpt", "a[/b]c")
    assert status == 2
    assert "none.ckpt" in err


def test_folders_with_brackets_can_be_drawn_into(lucid, checkpoint):
    photo(lucid.folder / "in[/b]" / "x.jpg")
    status, out, _ = lucid("predict", checkpoint, "in[/b]", "--draw", "--output", "out[/b]")
    assert status == 0
    assert "written out[/b]" in out


@pytest.mark.parametrize("text", ["2024", "a: b", "a #1", "null", "1e3", "[x]"])
def test_paths_are_taken_as_they_are_typed(lucid, monkeypatch, text):
    seen = []
    monkeypatch.setattr(fit, "run_fit", lambda config, **_: seen.append(config) or taken(config))
    assert lucid("fit", "--data", text, "--output", text, "--init", text, "--precision", "32")[0] == 2
    (config,) = seen
    assert [str(path) for path in (config.data.path, config.run.output, config.model.init)] == [text] * 3
    assert config.run.precision == "32"


def test_settings_are_read_as_yaml_and_outrank_options(lucid, monkeypatch):
    seen = []
    monkeypatch.setattr(fit, "run_fit", lambda config, **_: seen.append(config) or taken(config))
    lucid("fit", "--epochs", 7, "--set", "run.epochs=3", "--set", "ema.enabled=false")
    assert (seen[0].run.epochs, seen[0].ema.enabled) == (3, False)


def test_demo_takes_its_output_as_typed(lucid, monkeypatch):
    seen = []
    monkeypatch.setattr(demo, "run_fit", lambda config, **_: seen.append(config) or taken(config))
    monkeypatch.setattr(demo.synthetic, "write_coco", lambda *_, **__: None)
    lucid("demo", "--output", "2024")
    assert [str(seen[0].data.path), str(seen[0].run.output)] == ["2024/scenes", "2024/run"]


@pytest.mark.parametrize("setting", ["run.epoch=3", "run.epochs=no", "run.epochs", "run.device=tpu"])
def test_demo_checks_its_settings_before_it_draws_a_scene(lucid, setting):
    status, _, err = lucid("demo", "--output", "made", "--set", setting)
    assert status == 2
    assert err.count("error: ") == 1
    assert lucid.files() == []


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (["--batch", 0], "--batch 0"),
        (["--image-size", 0], "--image-size 0"),
        (["--image-size", 100], "multiple of 32"),
        (["--workers", -1], "--workers -1"),
        (["--device", "nonsense"], "choose auto"),
        (["--device", "cuda:999"], "--device cuda:999"),
        (["--device", "meta"], "--device meta"),
        (["--engine", "slow"], "--engine slow: choose pycocotools, faster"),
        (["--output", "folder"], "--output folder: that is a folder"),
        (["--save-predictions", "folder"], "--save-predictions folder: that is a folder"),
        (["--save-predictions", "p.json"], "p-nms.json: that is a folder"),
        (["--output", "file/report.json"], "file is a file"),
    ],
)
def test_eval_refuses_before_it_looks_at_the_checkpoint(lucid, scenes, words, said):
    (lucid.folder / "folder").mkdir()
    (lucid.folder / "p-nms.json").mkdir()
    (lucid.folder / "file").write_text("")
    status, _, err = lucid("eval", "missing.ckpt", "--data", scenes, *words)
    assert status == 2
    assert said in err
    assert len(err.strip().splitlines()) == 1
    assert lucid.files() == ["file"]


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (["--image-size", 100], "multiple of 32"),
        (["--batch", 0], "--batch 0"),
        (["--max-detections", 0], "--max-detections 0"),
        (["--device", "nonsense"], "choose auto"),
        (["--output", "file"], "file is a file"),
    ],
)
def test_predict_refuses_before_it_looks_at_the_checkpoint(lucid, scenes, words, said):
    (lucid.folder / "file").write_text("")
    status, _, err = lucid("predict", "missing.ckpt", scenes, *words)
    assert status == 2
    assert said in err
    assert lucid.files() == ["file"]


@pytest.mark.parametrize(
    ("cuda", "mps", "chosen"), [(True, True, "cuda"), (False, True, "mps"), (False, False, "cpu")]
)
def test_auto_takes_the_fastest_device_there_is(monkeypatch, cuda, mps, chosen):
    monkeypatch.setattr(torch.cuda, "is_available", lambda: cuda)
    monkeypatch.setattr(torch.cuda, "device_count", lambda: 2 * cuda)
    monkeypatch.setattr(torch.backends.mps, "is_available", lambda: mps)
    assert choose_device("auto") == chosen
    for name, here in (("cuda", cuda), ("cuda:1", cuda), ("cuda:2", False), ("mps", mps), ("cpu", True)):
        if here:
            assert choose_device(name) == name
        else:
            with pytest.raises(
                ConfigError, match=f"--device {name}: not available here; choose auto, {chosen}"
            ):
                choose_device(name)


def test_eval_takes_one_gpu_of_several(lucid, scenes, monkeypatch):
    monkeypatch.setattr(torch.cuda, "is_available", lambda: True)
    monkeypatch.setattr(torch.cuda, "device_count", lambda: 2)
    status, _, err = lucid("eval", "missing.ckpt", "--data", scenes, "--device", "cuda:1")
    assert status == 2
    assert err == "error: no checkpoint at missing.ckpt\n"
    status, _, err = lucid("eval", "missing.ckpt", "--data", scenes, "--device", "cuda:2")
    assert status == 2
    assert err.startswith("error: --device cuda:2: not available here; choose auto, cuda")


@pytest.mark.parametrize("command", ["eval", "predict"])
def test_the_default_device_is_chosen(lucid, monkeypatch, scenes, command):
    def refuse(name):
        raise ConfigError(f"asked for {name}")

    monkeypatch.setattr(f"lucid_app.{'evaluate' if command == 'eval' else 'predict'}.choose_device", refuse)
    words = ["--data", scenes] if command == "eval" else [scenes]
    assert "asked for auto" in lucid(command, "missing.ckpt", *words)[2]


def test_an_error_of_a_loader_process_keeps_its_own_words(lucid, scenes, checkpoint):
    shutil.copytree(scenes, lucid.folder / "broken")
    for path in (lucid.folder / "broken" / "val").iterdir():
        path.write_bytes(path.read_bytes()[:60])
    status, _, err = lucid("eval", checkpoint, "--data", "broken", "--workers", 1)
    assert status == 1
    assert len(err.strip().splitlines()) == 1
    assert err.startswith("error: cannot read image broken/val/")
    assert "Traceback" not in err
    assert "worker" not in err


@pytest.mark.parametrize("said", ["gone", "a: b", "line one\nline two", "OSError: said twice"])
def test_the_words_of_the_first_error_are_found_again(said):
    trace = f'Traceback (most recent call last):\n  File "x.py", line 1, in f\n    raise OSError: no\nOSError: {said}\n'
    passed_on = OSError(f"Caught OSError in DataLoader worker process 0.\nOriginal {trace}")
    assert one_line(passed_on) == " ".join(said.split())
    assert original_message(said) == said


def test_a_picture_that_cannot_be_drawn_is_a_warning_after_the_fit(lucid, scenes, monkeypatch):
    def broken(*_):
        raise ValueError("no\nink")

    monkeypatch.setattr(sheets, "plot_curves", lambda *_, **__: broken())
    words = f"fit --data {scenes} --image-size 64 --batch 5 --epochs 1 --workers 0 --device cpu --quiet --output run"
    status, out, err = lucid(*words.split())
    assert status == 0
    assert "last checkpoint run" in out
    assert err.strip() == "warning: run/plots/curves.png is not drawn: no ink"
    assert (lucid.folder / "run" / "plots" / "val_predictions.png").is_file()


def test_a_ragged_metrics_table_is_one_line(lucid):
    (lucid.folder / "metrics.csv").write_text("epoch,val/mAP\n0,0.5,7\n")
    status, _, err = lucid("plot", "metrics.csv")
    assert status == 1
    assert err.strip() == "error: metrics.csv:2: 3 cells under 2 column names; correct or remove the row"


def test_every_switch_of_the_command_line_reaches_the_configuration(lucid, scenes, monkeypatch):
    monkeypatch.setattr(fit, "run_fit", lambda config, **_: taken(config))
    switches = (
        "fused_assignment",
        "device_hsv",
        "fused_hsv",
        "epoch_prefetch",
        "cache_train_images",
        "cache_prepared_train_images",
    )
    replay = ("network", "segment_heads", "loss", "orthogonalization", "updates", "gradient_norm")
    names = [*switches, *(f"capture_{part}" for part in replay)]
    for value, prefix in (("true", "--"), ("false", "--no-")):
        flags = [prefix + name.replace("_", "-") for name in names]
        _, _, told = lucid(
            "fit",
            "--data",
            scenes,
            *flags,
            "--replay",
            "step",
            "--replay-backend",
            "tape",
            "--set",
            "run.seed=3",
        )
        assert [name for name in names if f"{name}: {value}" not in told] == []
        assert "mode: step" in told
        assert "backend: tape" in told


def test_the_summary_of_a_replayed_fit_says_what_replayed_and_why_not():
    region = {"recorded": 1, "replayed": 5, "native": {"signature": 3}, "retired_by": None}
    replay = {
        "kept": "native",
        "options": {
            "capture_loss": [region],
            "capture_updates": [{**region, "native": {}, "retired_by": "hooks"}],
        },
    }
    assert fit.replay_lines(replay) == [
        "capture_loss: 1 recorded, 5 replayed, native 3 signature",
        "capture_updates: 1 recorded, 5 replayed, native 0; given up: hooks",
        "kept the faster: native steps",
    ]
