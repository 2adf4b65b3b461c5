"""``lucid report``: a run as one HTML file."""

import json

import pytest
import torch

from lucid_app.judged import judge
from lucid_data import open_catalog


@pytest.fixture(scope="module")
def judged(scenes, trained):
    catalog = open_catalog(scenes, "val")
    seen = []
    found = judge(
        trained / "checkpoints" / "last.ckpt", catalog, "cpu", lambda *numbers: seen.append(numbers)
    )
    assert seen[-1] == (4, 4)
    return found


def test_the_report_has_its_sections(lucid, trained):
    status, out, _ = lucid("report", trained, "--output", "deep/run.html", "--limit", 2)
    assert status == 0
    assert out.strip() == "deep/run.html"
    text = (lucid.folder / "deep" / "run.html").read_text()
    for title in (
        "Scores",
        "Curves",
        "Precision and recall",
        "Confusions and errors",
        "Epochs",
        "Settings",
        "Environment",
    ):
        assert f">{title}</h2>" in text, title
    assert "run.epochs" in text
    assert "2 validation images" in text
    assert lucid.files() == ["deep/run.html"]


def test_scores_are_those_of_the_evaluation(lucid, scenes, trained, judged):
    last = trained / "checkpoints" / "last.ckpt"
    _, out, _ = lucid("eval", last, "--data", scenes, "--workers", 0, "--path", "e2e", "--json")
    report = json.loads(out)["report"]["e2e"]
    # the predictor folds normalisation into its weights: equal up to rounding
    assert judged.reports["bbox"]["map"] == pytest.approx(report["map"], abs=5e-3)


def test_images_are_ordered_by_how_well_they_went(judged):
    for index in range(4):
        targets = judged.catalog.targets(index)
        found = judged.predictions[index]
        keep = slice(0, len(targets) if index == 2 else 0)
        judged.predictions[index] = type(found)(
            targets.boxes[keep],
            torch.full((len(targets.boxes[keep]),), 0.9),
            targets.labels[keep],
            found.names,
            found.image_size,
        )
    assert judged.by_quality(0.25)[0] == 2


def test_a_folder_that_is_no_run_is_one_line(lucid):
    status, _, err = lucid("report", "nowhere")
    assert status in (1, 2)
    assert len(err.splitlines()) == 1
