import os
from pathlib import Path

import pytest

from lucid_app.main import run
from lucid_data import synthetic


@pytest.fixture(scope="session")
def scenes(tmp_path_factory) -> Path:
    folder = tmp_path_factory.mktemp("scenes")
    synthetic.write_coco(folder, splits={"train": 10, "val": 4}, size=64, seed=5)
    return folder


@pytest.fixture(scope="session")
def trained(scenes, tmp_path_factory) -> Path:
    """The folder of a one-epoch run."""
    folder = tmp_path_factory.mktemp("trained") / "run"
    words = f"fit --data {scenes} --image-size 64 --batch 5 --epochs 1 --workers 0 --device cpu --quiet"
    assert run([*words.split(), "--output", str(folder)]) == 0
    return folder


@pytest.fixture
def lucid(capsys, tmp_path, monkeypatch):
    """Run a command line in an empty folder; return status, stdout and stderr."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("COLUMNS", "200")

    def call(*words):
        status = run([str(word) for word in words])
        captured = capsys.readouterr()
        return status, captured.out, captured.err

    call.folder = tmp_path
    call.files = lambda: sorted(
        os.path.relpath(os.path.join(base, name), tmp_path)
        for base, _, names in os.walk(tmp_path)
        for name in names
    )
    return call
