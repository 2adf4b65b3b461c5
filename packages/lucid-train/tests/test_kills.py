"""A run that is killed again and again, at any moment, ends with the bytes of one that was left alone.

Three kills here; twenty on request: ``LUCID_SLOW=1 pytest packages/lucid-train/tests/test_kills.py``.
"""

import json
import os
import subprocess
import sys

import pytest

from lucid_train import load_config

# Forks a fit from a process that has imported everything, and kills it after some of its reports and a moment more.
KILLER = """
import csv, json, os, random, signal, sys, time, traceback
from pathlib import Path
import torch
torch.set_num_threads(1)

from lucid_models import describe
from lucid_train import find_run, fit, load_config

config, kills, chance = load_config(sys.argv[1]), int(sys.argv[2]), random.Random(0)
folder = config.run.output

def train(report, output=folder):
    resume = "last" if (output / "config.yaml").exists() else None
    observe = lambda progress: os.write(report, b".")
    return fit(config.updated(run={"output": output}), resume=resume, observer=observe).fingerprint

def forked(report, **arguments):
    if pid := os.fork():
        return pid
    status = 1
    try:
        (Path(sys.argv[3]) / "digests.json").write_text(json.dumps(train(report, **arguments)))
        status = 0
    except BaseException:
        traceback.print_exc()
    os._exit(status)

def whole_files():
    for file in folder.rglob("*"):
        if file.suffix == ".ckpt":
            torch.load(file, weights_only=True)
            describe(file)
        elif file.suffix == ".json":
            json.loads(file.read_text())
        elif file.suffix == ".yaml":
            load_config(file)
        elif file.suffix == ".csv":
            assert len({len(row) for row in csv.reader(file.open())}) == 1

hits = 0
while hits < kills:
    reports, report = os.pipe()
    pid = forked(report)
    os.close(report)
    for _ in range(chance.randrange(4)):
        if not os.read(reports, 1):
            sys.exit("the run ended before its kills")
    time.sleep(chance.random() * 0.15)
    os.kill(pid, signal.SIGKILL)
    status = os.waitpid(pid, 0)[1]
    if not os.WIFSIGNALED(status):
        sys.exit("the run ended before its kills")
    os.close(reports)
    hits += 1
    whole_files()

def finished(**arguments):
    reports, report = os.pipe()
    os.set_blocking(report, False)
    if os.waitpid(forked(report, **arguments), 0)[1]:
        sys.exit("the run could not go on")
    return json.loads((Path(sys.argv[3]) / "digests.json").read_text())

told = [finished(), finished(output=folder.with_name("alone"))]
whole_files()
print(json.dumps({"hits": hits, "killed": told[0], "alone": told[1]}))
"""

SLOW = pytest.mark.skipif(os.environ.get("LUCID_SLOW") != "1", reason="twenty kills; set LUCID_SLOW=1")


@pytest.mark.parametrize(("kills", "epochs"), [(3, 3), pytest.param(20, 20, marks=SLOW)])
def test_a_run_that_is_killed_again_and_again_ends_with_the_bytes_of_one_left_alone(
    scenes, tmp_path, kills, epochs
):
    settings = {
        "data.path": str(scenes),
        "data.image_size": 64,
        "data.batch": 4,
        "data.workers": 0,
        "run.epochs": epochs,
        "run.device": "cpu",
        "run.checkpoint_steps": 1,
        "run.fingerprint": True,
        "run.output": str(tmp_path / "killed"),
    }
    file = tmp_path / "config.yaml"
    file.write_text(load_config("detect", settings).to_yaml())
    child = subprocess.run(
        [sys.executable, "-c", KILLER, str(file), str(kills), str(tmp_path)], capture_output=True, text=True
    )
    assert child.returncode == 0, child.stderr[-3000:]
    told = json.loads(child.stdout.splitlines()[-1])
    assert told["hits"] == kills
    assert told["killed"] == told["alone"]
    assert not list((tmp_path / "killed").rglob("*.tmp"))
