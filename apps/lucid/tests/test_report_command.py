"""``lucid report``: a run as one HTML file."""

import json
from dataclasses import replace

import pytest
import torch

from lucid_app.judged import judge
from lucid_app.report import _images
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
    quality = judged.quality(0.25)
    assert next(iter(quality)) == 2
    assert [quality[index] for index in quality] == [1, 0, 0, 0]
    best, worst = _images(judged)
    assert (best.title, worst.title) == ("Best images", "Worst images")
    # an image in which nothing was found is none of the best
    name = judged.catalog.file_names[2]
    assert best.figures[0].caption == f"Best images: {name} (1.00)"
    assert name not in worst.figures[0].caption


@pytest.mark.parametrize(
    ("score", "said"),
    [
        (0.07, "nothing above 0.25; highest 0.07"),
        (0.9, "nothing that scores above 0.25 overlaps an object of its class by more than 0.5"),
    ],
)
def test_where_nothing_was_found_a_sentence_takes_the_place_of_images(judged, score, said):
    nowhere = [
        replace(
            one, boxes=torch.zeros(1, 4), scores=torch.tensor([score]), labels=one.labels[:0].new_zeros(1)
        )
        for one in judged.predictions
    ]
    blind = replace(judged, predictions=[replace(one, highest_score=score) for one in nowhere])
    (section,) = _images(blind)
    assert (section.title, section.figures) == ("Best and worst images", ())
    assert section.text == f"No image is better than another: {said}."


def test_tables_and_figures_say_which_boxes_they_are_about(lucid, trained):
    assert lucid("report", trained, "--output", "run.html", "--limit", 2)[0] == 0
    text = (lucid.folder / "run.html").read_text()
    assert "Confusions of boxes that score above 0.25 and overlap by more than 0.45" in text
    assert "of every detection, low scores too, with hits from overlap 0.5 and background below 0.1" in text
    # the only epoch is the first one, as on the console
    assert '<th scope="col">epoch</th>' in text
    assert '<tbody><tr><td class="n">1</td>' in text


def test_a_folder_that_is_no_run_is_one_line(lucid):
    status, _, err = lucid("report", "nowhere")
    assert status in (1, 2)
    assert len(err.splitlines()) == 1
