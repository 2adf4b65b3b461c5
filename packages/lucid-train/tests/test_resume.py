"""A stopped run, continued, ends with the bytes of one that was never stopped."""

import logging
import shutil
import signal
import subprocess
import sys
from pathlib import Path

import pytest
import torch

from lucid_data import synthetic
from lucid_train import ConfigError, fit, stored_config

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
        (os.killpg if sys.argv[4] == "group" else os.kill)(os.getpid(), int(sys.argv[3]))
try:
    fit(load_config(sys.argv[1]), observer=observe)
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


def run_until(
    config, step: int, number: int, tmp_path: Path, whom: str = "self"
) -> subprocess.CompletedProcess:
    file = tmp_path / "child.yaml"
    file.write_text(config.to_yaml())
    return subprocess.run(
        [sys.executable, "-c", CHILD, str(file), str(step), str(int(number)), whom],
        capture_output=True,
        text=True,
        start_new_session=True,
    )


@pytest.mark.parametrize(
    ("step", "workers"),
    [(3, 0), (5, 2)],
    ids=["at-an-epoch's-end", "inside-an-epoch-with-workers"],
)
def test_sigterm_saves_and_the_continued_run_is_the_uninterrupted_one(
    small_config, reference, tmp_path, step, workers
):
    config = small_config("stopped", **{"data.workers": workers})
    # to the whole process group, as service managers and batch systems send it
    child = run_until(config, step, signal.SIGTERM, tmp_path, "group")
    assert child.returncode == 130, child.stderr
    assert "--resume last" in child.stdout
    result = fit(config, resume="last")
    assert result.fingerprint == reference.fingerprint
    assert (result.run / "metrics.csv").read_bytes() == (reference.run / "metrics.csv").read_bytes()


def test_sigkill_loses_nothing_that_was_saved(small_config, reference, tmp_path):
    config = small_config("killed", **{"run.checkpoint_steps": 2})
    child = run_until(config, 5, signal.SIGKILL, tmp_path)
    assert child.returncode == -signal.SIGKILL
    assert fit(config, resume="last").fingerprint == reference.fingerprint


def test_a_run_killed_before_its_first_checkpoint_starts_again(small_config, reference, tmp_path):
    config = small_config("young")
    assert run_until(config, 1, signal.SIGKILL, tmp_path).returncode == -signal.SIGKILL
    assert not (config.run.output / "checkpoints" / "last.ckpt").exists()
    assert fit(config, resume="last").fingerprint == reference.fingerprint


class Stop(Exception):
    """Ends a run from its observer, as a crash would."""


def stop_at(step: int):
    seen = []

    def observe(progress):
        seen.append(progress.phase == "train")
        if progress.phase == "train" and sum(seen) == step:
            raise Stop

    return observe


def test_a_crash_between_the_micro_batches_of_a_step_repeats_the_step(small_config, caplog):
    caplog.set_level(logging.INFO, logger="lucid")
    settings = {"data.batch": 4, "optimizer.accumulate": 2, "run.epochs": 2, "run.checkpoint_steps": 1}
    whole = fit(small_config("whole", **settings))
    config = small_config("parts", **settings)
    with pytest.raises(Stop):
        fit(config, observer=stop_at(5))
    assert fit(config, resume="last").fingerprint == whole.fingerprint
    assert "continuing the run" in caplog.text
    assert "training on the split train (22 images), validating on val (6 images)" in caplog.text
    assert "nothing was left to do" not in caplog.text


def test_a_crash_from_the_start_of_an_epoch_with_sparse_validation(small_config):
    settings = {"run.validate_every": 2}
    whole = fit(small_config("whole", **settings))
    config = small_config("parts", **settings)
    with pytest.raises(Stop):
        fit(config, observer=stop_at(5))
    assert fit(config, resume="last").fingerprint == whole.fingerprint


def test_resuming_on_another_data_set_is_refused_before_anything_is_written(
    small_config, reference, tmp_path
):
    other = tmp_path / "more"
    synthetic.write_coco(other, splits={"train": 23, "val": 6}, size=64, seed=3)
    before = {path: path.read_bytes() for path in reference.run.rglob("*") if path.is_file()}
    changed = small_config().updated(run={"output": reference.run}, data={"path": other})
    with pytest.raises(ConfigError, match="number of images"):
        fit(changed, resume="last")
    assert before == {path: path.read_bytes() for path in reference.run.rglob("*") if path.is_file()}


def test_resuming_half_a_checkpoint_is_refused(small_config, reference, tmp_path):
    copy = tmp_path / "copy"
    shutil.copytree(reference.run, copy)
    last = copy / "checkpoints" / "last.ckpt"
    last.write_bytes(last.read_bytes()[:1000])
    with pytest.raises(ValueError, match=r"last\.ckpt"):
        fit(small_config().updated(run={"output": copy}), resume="last")


def test_resuming_from_weights_alone_is_refused(small_config, reference, tmp_path):
    copy = tmp_path / "copy"
    shutil.copytree(reference.run, copy)
    last = copy / "checkpoints" / "last.ckpt"
    state = torch.load(last, weights_only=True)
    torch.save({key: value for key, value in state.items() if key != "global_step"}, last)
    with pytest.raises(ConfigError, match="no state of a run"):
        fit(small_config().updated(run={"output": copy}), resume="last")


def test_a_copied_run_with_open_values_continues_in_its_own_folder(small_config, reference, tmp_path):
    copy = tmp_path / "copy"
    shutil.copytree(reference.run, copy)
    open_again = stored_config(copy).updated(augment={"mixup": None, "scale": None})
    (copy / "config.yaml").write_text(open_again.to_yaml(), encoding="utf-8")
    result = fit(
        stored_config(copy).updated(run={"fingerprint": True}), resume=str(copy / "checkpoints" / "last.ckpt")
    )
    assert result.run == copy
    assert result.fingerprint == reference.fingerprint


def test_resuming_with_another_setting_is_refused_by_name(small_config, reference):
    changed = small_config().updated(run={"output": reference.run}, optimizer={"lr": 0.123})
    with pytest.raises(ConfigError, match=r"optimizer\.lr = 0\.123"):
        fit(changed, resume="last")


def test_resuming_a_finished_run_changes_nothing(small_config, reference):
    finished = small_config().updated(run={"output": reference.run})
    assert fit(finished, resume="last").fingerprint == reference.fingerprint
