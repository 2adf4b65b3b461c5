"""Every notebook's source is converted and executed by a kernel, and the documentation names it."""

import json
import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[1]
SOURCES = sorted((ROOT / "apps" / "notebooks").glob("*.py"))
PAGE = ROOT / "docs" / "notebooks.md"


def test_there_is_one_for_every_task_and_two_packages():
    assert {source.stem for source in SOURCES} >= {"detect", "segment", "pose", "obb", "optim", "capture"}


@pytest.mark.parametrize("source", SOURCES, ids=lambda source: source.stem)
def test_a_notebook_runs_from_its_first_cell_to_its_last(source, tmp_path):
    target = tmp_path / f"{source.stem}.ipynb"
    words = (
        f"-m jupytext --from py:percent --to ipynb --execute --run-path {tmp_path} --output {target} {source}"
    )
    environment = {
        **os.environ,
        "LUCID_NOTEBOOK_FAST": "1",
        "OMP_NUM_THREADS": "1",
        "JUPYTER_CONFIG_DIR": str(tmp_path / "config"),
        "IPYTHONDIR": str(tmp_path / "ipython"),
    }
    result = subprocess.run(
        [sys.executable, *words.split()], capture_output=True, text=True, env=environment, cwd=tmp_path
    )
    assert result.returncode == 0, result.stderr[-3000:]
    cells = [cell for cell in json.loads(target.read_text())["cells"] if cell["cell_type"] == "code"]
    assert all(cell["execution_count"] for cell in cells)
    outputs = [output for cell in cells for output in cell["outputs"]]
    assert not [output for output in outputs if output["output_type"] == "error"]
    shown = [output for output in outputs if "image/png" in output.get("data", {})]
    assert bool(shown) is ("%matplotlib" in source.read_text(encoding="utf-8"))


@pytest.mark.parametrize("source", SOURCES, ids=lambda source: source.stem)
def test_a_notebook_uses_the_library_and_no_shell(source):
    text = source.read_text(encoding="utf-8")
    assert not re.search(r"^(# )?[!%](?!%|matplotlib)|subprocess|os\.system", text, re.MULTILINE)


@pytest.mark.parametrize("source", SOURCES, ids=lambda source: source.stem)
def test_the_documentation_has_an_entry_for_it(source):
    assert f"apps/notebooks/{source.name}" in PAGE.read_text(encoding="utf-8")


def test_no_executed_notebook_is_tracked():
    try:
        listed = subprocess.run(["git", "ls-files", "*.ipynb"], cwd=ROOT, capture_output=True, text=True)
    except FileNotFoundError:
        pytest.skip("git is not installed")
    if listed.returncode:
        pytest.skip(f"not a git work tree: {listed.stderr.strip()}")
    assert listed.stdout == ""
