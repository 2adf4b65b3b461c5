"""The options that set a key of the configuration: defaults, words, and who is named when one is wrong."""

import re
import shutil

import pytest
import typer
from rich.text import Text
from typer.core import TyperOption

from lucid_app import app
from lucid_app.keys import KEYS
from lucid_train import FitConfig


def options(path=(), command=None):
    """Yield the words of a command and each of its options, for all commands."""
    command = command or typer.main.get_command(app)
    for name, one in getattr(command, "commands", {}).items():
        yield from options((*path, name), one)
    yield from ((path, option) for option in command.params if isinstance(option, TyperOption))


def fit_options():
    return {option.name: option for path, option in options() if path == ("fit",)}


def test_every_option_of_a_key_shows_the_default_of_the_configuration():
    defaults = FitConfig().model_dump(mode="json")
    for name, key in KEYS.items():
        section, _, field = key.partition(".")
        value = defaults[section][field]
        shown = re.findall(r"\[default: (.*)\]", fit_options()[name].help)
        if name == "fingerprint":  # a flag that is off is plain
            assert (value, shown) == (False, [])
        elif fit_options()[name].is_bool_flag:
            assert (bool(value), shown) == (False, ["off"]), name
        else:
            assert shown == ([] if value in (None, []) else [str(value)]), name


def test_an_option_without_a_default_says_what_happens_when_it_is_absent():
    silent = {"data", "layout", "logger", "fingerprint"}  # needed, found, nothing, nothing
    for name in KEYS.keys() - silent:
        assert re.search(r"\[default: |absent", fit_options()[name].help), name


def test_every_key_is_one_of_the_configuration_and_has_one_option():
    assert len(set(KEYS.values())) == len(KEYS)
    for key in KEYS.values():
        section, _, field = key.partition(".")
        assert field in FitConfig.model_fields[section].annotation.model_fields, key


CHOICES = {
    "--task",
    "--size",
    "--layout",
    "--precision",
    "--engine",
    "--replay",
    "--replay-backend",
    "--logger",
    "--freeze",
    "--format",
    "--kind",
    "--path",
    "--to",
    "--pictures",
    "--switch",
    "--dota-version",
}
CHOOSING = [
    (path, option)
    for path, option in options()
    if option.opts[-1] in CHOICES and not (path == ("data", "sample") and option.name == "size")
]


@pytest.mark.parametrize(
    ("path", "option"), CHOOSING, ids=[f"{' '.join(path)} {option.opts[-1]}" for path, option in CHOOSING]
)
def test_words_are_completed_listed_and_held_to(lucid, path, option):
    flag = option.opts[-1]
    context = typer.Context(typer.main.get_command(app))
    words = [item.value for item in option.shell_complete(context, "")]
    assert len(words) > 1
    assert words[0] in [item.value for item in option.shell_complete(context, words[0])]
    assert all(re.search(rf"(?<!\w){re.escape(word)}(?!\w)", option.help) for word in words)
    required = ["somewhere"] * sum(
        one.required and one.param_type_name == "argument" for one in command_at(path).params
    )
    status, out, err = lucid(*path, *required, flag, words[-1] + "x")
    assert (status, out) == (2, "")
    assert err.startswith(f"error: {flag} {words[-1]}x: choose {', '.join(words)}"), err
    if len(words[-1]) > 2:
        assert err.endswith(f"; did you mean {words[-1]}?\n")


def command_at(path):
    command = typer.main.get_command(app)
    for name in path:
        command = command.commands[name]
    return command


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (["--epochs", 0], "--epochs 0: "),
        (["--set", "run.epochs=0"], "--set run.epochs=0: "),
        (["--epochs", 3, "--set", "run.epochs=0"], "--set run.epochs=0: "),
        (["--recipe", "wrong.yaml"], "wrong.yaml: run.epochs = 0: "),
        (["--devices", 0], "--devices 0: "),
        (["--data", "nowhere"], "--data nowhere: "),
        (["--set", "data.path=nowhere"], "data.path = nowhere: "),
        (["--batch", "3.5"], "--batch 3.5: "),
        (["--data", "more", "--device", "cuda"], "--device cuda: not available here"),
        (["--data", "more", "--set", "run.device=cuda"], "run.device = 'cuda': not available here"),
        (["--data", "more", "--precision", "16-mixed"], "--precision 16-mixed needs an accelerator"),
        (["--data", "more/run.epochs", "--epochs", 3], "--data more/run.epochs: no such folder"),
        (
            ["--data", "more", "--capture-step", "--capture-loss", "--replay-backend", "tape"],
            "--capture-step covers what --capture-loss records",
        ),
        (
            ["--cache-train-images", "--cache-prepared-train-images", "--data", "wrong.yaml"],
            "--cache-prepared-t",
        ),
    ],
)
def test_a_wrong_value_is_named_as_it_was_written(lucid, scenes, monkeypatch, words, said):
    monkeypatch.setattr("torch.cuda.is_available", lambda: False)
    monkeypatch.setattr("torch.backends.mps.is_available", lambda: False)
    (lucid.folder / "wrong.yaml").write_text("run:\n  epochs: 0\n")
    shutil.copytree(scenes, lucid.folder / "more")
    status, out, err = lucid("fit", *words)
    assert (status, out) == (2, "")
    assert err.startswith(f"error: {said}"), err


def test_a_setting_of_a_demo_is_named_as_it_was_written(lucid, monkeypatch):
    assert lucid("demo", "--seed", -1)[2].startswith("error: --seed -1: ")
    assert lucid("demo", "--set", "run.seed=-1")[2].startswith("error: --set run.seed=-1: ")
    # demo has no --device
    monkeypatch.setattr("torch.backends.mps.is_available", lambda: False)
    assert lucid("demo", "--set", "run.device=mps")[2].startswith("error: run.device = 'mps': ")
    assert lucid.files() == []


def test_devices_are_completed_where_other_words_are_taken_too():
    (device,) = [one for path, one in options() if path == ("eval",) and one.name == "device"]
    context = typer.Context(typer.main.get_command(app))
    assert [item.value for item in device.shell_complete(context, "")] == ["auto", "cpu", "cuda", "mps"]


def test_the_devices_that_a_command_lists_are_those_it_takes(lucid):
    listed = {
        path: set(re.findall(r"auto|cpu|cuda:1|cuda(?! where|_)|mps", option.help))
        for path, option in options()
        if option.name == "device"
    }
    kinds = {"auto", "cpu", "cuda", "mps"}
    assert listed.pop(("fit",)) == kinds
    assert lucid("fit", "--device", "cuda:1")[2].startswith(
        "error: --device cuda:1: choose auto, cpu, cuda, mps"
    )
    assert listed.pop(("bench", "proof")) == {"cpu", "cuda"}
    assert lucid("bench", "proof", "--device", "mps")[2].startswith("error: --device mps: choose cpu, cuda")
    for path, words in listed.items():
        assert words == {*kinds, "cuda:1"} - ({"mps"} if path[0] == "bench" else set()), path


def test_what_a_shell_shows_of_an_option_keeps_its_default():
    fit = command_at(["fit"])
    (item,) = fit.shell_complete(typer.Context(fit), "--epochs")
    assert Text.from_markup(item.help).plain == fit_options()["epochs"].help
    assert "[default: 50]" in fit_options()["epochs"].help
