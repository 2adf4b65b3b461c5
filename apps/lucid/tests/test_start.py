"""What needs no torch does not wait for it, and the tables that stand in for the commands say what the commands say."""

import os
import subprocess
import sys

import pytest
import typer

from lucid_app import app

QUICK = """
import sys
from lucid_app.main import run
status = run(sys.argv[1:])
assert "torch" not in sys.modules, "torch was imported"
sys.exit(status)
"""


@pytest.mark.parametrize(
    ("words", "status", "said"),
    [
        (["--version"], 0, "lucid 20"),
        (["--help"], 0, "Train a detector on your own images."),
        (["data", "--help"], 0, "Draw training samples"),
        (["fti"], 2, "Did you mean 'fit'?"),
        (["bench", "stp"], 2, "Did you mean 'step'"),
        (["--hepl"], 2, "--help"),
    ],
    ids=str,
)
def test_what_stands_before_a_command_needs_no_torch(words, status, said):
    result = subprocess.run([sys.executable, "-c", QUICK, *words], capture_output=True, text=True)
    assert result.returncode == status, result.stderr
    assert said in result.stdout + result.stderr


def groups():
    root = typer.main.get_command(app)
    return [root, *(one for one in root.commands.values() if hasattr(one, "table"))]


@pytest.mark.parametrize("group", groups(), ids=lambda group: group.name)
def test_the_line_of_a_command_in_the_help_of_its_group_is_the_first_of_its_own(group):
    lines = {name: " ".join(one.help.split("\n\n")[0].split()) for name, one in group.commands.items()}
    assert {name: later.line for name, later in group.table.items()} == lines
    assert [one.name for one in group.commands.values()] == list(group.table)


def test_the_commands_of_a_group_are_the_real_ones_whoever_asks():
    for group in groups():
        for name in group.list_commands(None):
            assert group.get_command(None, name) is group.commands[name]
        assert group.get_command(None, "fti") is None


COMPLETE = """
import sys
from lucid_app.main import run
try:
    run([])
finally:
    assert "torch" not in sys.modules, "torch was imported"
"""


@pytest.mark.parametrize(
    ("typed", "offered"), [("lucid f", ["fit"]), ("lucid --d", ["--debug"]), ("lucid data st", ["stats"])]
)
def test_completing_the_name_of_a_command_imports_none(typed, offered):
    told = {"_LUCID_COMPLETE": "complete_bash", "COMP_WORDS": typed, "COMP_CWORD": str(typed.count(" "))}
    result = subprocess.run(
        [sys.executable, "-c", COMPLETE], capture_output=True, text=True, env={**os.environ, **told}
    )
    assert result.stderr == ""
    assert result.stdout.split() == offered
