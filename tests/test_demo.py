"""The newcomer's command, at a tenth of its length: it makes scenes, trains, scores, draws and says where."""

import json

from lucid_app.main import run


def test_the_demo_runs_and_leaves_what_it_promises(tmp_path, capsys):
    folder = tmp_path / "demo"
    words = ["demo", "--output", str(folder), "--json", "--set", "run.epochs=1", "--set", "data.workers=0"]
    assert run(words) == 0
    document = json.loads(capsys.readouterr().out.splitlines()[-1])
    assert 0 <= document["report"]["report"]["e2e"]["map"] <= 1
    for name in ("curves.png", "train_batch_1.png", "train_batch_2.png", "val_predictions.png"):
        assert (folder / "run" / "plots" / name).is_file()
    assert len(list((folder / "scenes" / "train").glob("*"))) > 100


def test_a_second_demo_into_the_same_folder_is_refused(tmp_path, capsys):
    (tmp_path / "run").mkdir()
    (tmp_path / "run" / "config.yaml").write_text("{}")
    assert run(["demo", "--output", str(tmp_path)]) == 2
    assert "already holds a demo" in capsys.readouterr().err
