"""A stopped run, continued, ends with the bytes of one that was never stopped."""

import os
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from lucid_train import ConfigError, fit

# trains a run and, after a given number of steps, sends itself a signal
CHILD = """
import os, signal, sys
import torch
torch.set_num_threads(1)
from lucid_train import Interrupted, fit, load_config
steps = 0
def observe(progress):
    global steps
    steps += progress.phase == "train"
    if progress.phase == "train" and steps == int(sys.argv[2]):
        os.kill(os.getpid(), int(sys.argv[3]))
try:
    fit(load_config(sys.argv[1]), observer=observe, resume="last" if sys.argv[4:] else None)
except Interrupted as stop:
    print(stop)
    sys.exit(130)
"""


@pytest.fixture(scope="module")
def reference(scenes, tmp_path_factory):
    from lucid_train import load_config

    settings = {
        "data.path": str(scenes),
        "data.image_size": 64,
        "data.batch": 8,
        "data.workers": 0,
        "augment.close_mosaic": 1,
        "run.epochs": 3,
        "run.device": "cpu",
        "run.fingerprint": True,
        "run.output": str(tmp_path_factory.mktemp("reference") / "run"),
    }
    return fit(load_config("detect", settings))


def run_until(config, step: int, number: int, tmp_path: Path) -> subprocess.CompletedProcess:
    file = tmp_path / "child.yaml"
    file.write_text(config.to_yaml())
    return subprocess.run(
        [sys.executable, "-c", CHILD, str(file), str(step), str(int(number))],
        capture_output=True,
        text=True,
        env={**os.environ},
    )


@pytest.mark.parametrize(
    ("step", "workers"),
    [(2, 0), (3, 0), (5, 2), (7, 0)],
    ids=["in-the-first-epoch", "at-an-epoch's-end", "in-a-later-epoch-with-workers", "in-the-closing-epoch"],
)
def test_sigterm_saves_and_the_continued_run_is_the_uninterrupted_one(
    small_config, reference, tmp_path, step, workers
):
    config = small_config("stopped", **{"data.workers": workers})
    child = run_until(config, step, signal.SIGTERM, tmp_path)
    assert child.returncode == 130, child.stderr
    assert "--resume last" in child.stdout
    result = fit(config, resume="last")
    assert result.fingerprint == reference.fingerprint
    assert (result.run / "metrics.csv").read_bytes() == (reference.run / "metrics.csv").read_bytes()


@pytest.mark.parametrize("every", [None, 2], ids=["from-the-epoch's-start", "from-inside-the-epoch"])
def test_sigkill_loses_nothing_that_was_saved(small_config, reference, tmp_path, every):
    config = small_config("killed", **({"run.checkpoint_steps": every} if every else {}))
    child = run_until(config, 5, signal.SIGKILL, tmp_path)
    assert child.returncode == -signal.SIGKILL
    assert fit(config, resume="last").fingerprint == reference.fingerprint


def test_a_run_killed_before_its_first_checkpoint_starts_again(small_config, reference, tmp_path):
    config = small_config("young")
    assert run_until(config, 1, signal.SIGKILL, tmp_path).returncode == -signal.SIGKILL
    assert not (config.run.output / "checkpoints" / "last.ckpt").exists()
    assert fit(config, resume="last").fingerprint == reference.fingerprint


def test_resuming_with_another_setting_is_refused_by_name(small_config, reference):
    changed = small_config().updated(run={"output": reference.run}, optimizer={"lr": 0.123})
    with pytest.raises(ConfigError, match=r"optimizer\.lr = 0\.123"):
        fit(changed, resume="last")


def test_resuming_a_finished_run_changes_nothing(small_config, reference):
    finished = small_config().updated(run={"output": reference.run})
    assert fit(finished, resume="last").fingerprint == reference.fingerprint
