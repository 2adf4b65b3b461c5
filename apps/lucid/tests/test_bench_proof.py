"""``lucid bench proof``: the table, and an exit status that tells whether everything was equal."""

import json

import pytest

from lucid_app.main import run
from lucid_train import ProofRow

ROWS = [
    ProofRow("detect", "native", True),
    ProofRow("detect", "capture_loss", True, launches=4, eager=2),
    ProofRow("detect", "fused_assignment", None, why="needs an NVIDIA device"),
]


@pytest.fixture
def given(monkeypatch):
    def give(*rows):
        monkeypatch.setattr("lucid_app.bench.proof.prove", lambda *_, **__: iter(rows))

    return give


def test_equal_rows_are_a_table_and_success(given, capsys):
    given(*ROWS)
    assert run(["bench", "proof"]) == 0
    text = capsys.readouterr().out
    assert [" ".join(line.split()) for line in text.splitlines()][1:] == [
        "detect native equal - -",
        "detect capture_loss equal 4 2",
        "detect fused_assignment not here - -",
        "not here: needs an NVIDIA device",
    ]


@pytest.mark.parametrize(
    ("row", "words"),
    [
        (ProofRow("obb", "all", False, launches=3, differs=("model", "ema")), "DIFFERS in model, ema"),
        (ProofRow("obb", "all", True), "NEVER LAUNCHED"),
    ],
)
def test_a_row_that_proves_nothing_fails_the_command(given, capsys, row, words):
    given(*ROWS, row)
    assert run(["bench", "proof"]) == 1
    assert words in " ".join(capsys.readouterr().out.split())


def test_rows_as_json(given, capsys):
    given(*ROWS)
    assert run(["bench", "proof", "--json"]) == 0
    rows = json.loads(capsys.readouterr().out)
    assert [row["equal"] for row in rows] == [True, True, None]
    assert rows[1]["launches"] == 4


def test_an_unknown_task_is_a_usage_error(capsys):
    assert run(["bench", "proof", "--task", "boxes"]) == 2
    assert "--task boxes: choose detect, segment, pose, obb" in capsys.readouterr().err
