"""``lucid score``: other tools' results, without a model."""

import json

import pytest

from lucid_data import open_catalog, read_image, synthetic


@pytest.fixture
def perfect(lucid, scenes):
    """Ground truth of the scenes and results that state it again, written to files."""
    truth = open_catalog(scenes, "val").to_coco()
    results = [
        {key: a[key] for key in ("image_id", "category_id", "bbox")} | {"score": 0.9}
        for a in truth["annotations"]
    ]
    (lucid.folder / "truth.json").write_text(json.dumps(truth))
    (lucid.folder / "results.json").write_text(json.dumps(results))
    return len(results)


def test_perfect_results_score_one_and_the_report_has_its_keys(lucid, perfect):
    status, out, _ = lucid("score", "truth.json", "results.json", "--output", "deep/report.json", "--json")
    assert status == 0
    document = json.loads(out)
    assert document == json.loads((lucid.folder / "deep" / "report.json").read_text())
    assert document["report"]["bbox"]["map"] == pytest.approx(1.0)
    assert document["report"]["bbox"]["predictions"] == perfect
    assert document["images"] == 4
    assert set(document) == {"info", "images", "seconds", "report"}
    assert document["info"]["eval_backend"] == "pycocotools"


def test_a_folder_of_images_and_labels_is_a_ground_truth(lucid, perfect, scenes):
    status, out, _ = lucid("score", scenes, "results.json")
    assert status == 0
    assert "map              1.0000" in out


def test_errors_are_split_by_kind(lucid, perfect):
    results = json.loads((lucid.folder / "results.json").read_text())
    (lucid.folder / "results.json").write_text(json.dumps(results[1:]))
    status, out, _ = lucid("score", "truth.json", "results.json", "--errors", "--json")
    assert status == 0
    errors = json.loads(out)["errors"]
    assert errors["counts"] == {
        "class": 0,
        "location": 0,
        "both": 0,
        "duplicate": 0,
        "background": 0,
        "missed": 1,
    }


def test_curves_and_confusions_are_drawn(lucid, perfect):
    status, _, _ = lucid("score", "truth.json", "results.json", "--plot", "curves.png")
    assert status == 0
    assert lucid.files() == ["curves-confusion.png", "curves.png", "results.json", "truth.json"]
    assert read_image(lucid.folder / "curves.png").float().std() > 5


def test_dota_results_are_scored_by_the_development_kits_rule(lucid):
    labels, results = lucid.folder / "labelTxt", lucid.folder / "results"
    labels.mkdir()
    results.mkdir()
    (labels / "P1.txt").write_text("10 10 30 10 30 20 10 20 plane 0\n50 50 80 50 80 60 50 60 ship 0\n")
    (results / "Task1_plane.txt").write_text("P1 0.9 10 10 30 10 30 20 10 20\n")
    (results / "Task1_ship.txt").write_text("P1 0.9 0 0 5 0 5 5 0 5\n")
    status, out, _ = lucid("score", labels, results, "--kind", "dota", "--json")
    assert status == 0
    report = json.loads(out)["report"]["dota"]
    assert report["voc07_map_50"] == pytest.approx(0.5)
    assert report["per_class"]["plane"]["voc12_50"] == 1.0


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (("--kind", "boxes"), "--kind boxes: choose bbox, segm, keypoints, dota; did you mean bbox?"),
        (("--kind", "dota", "--plot", "x.png"), "--plot: not for --kind dota"),
        (("--kind", "dota", "--split", "val"), "--split: not for --kind dota"),
        (("--kind", "segm", "--errors"), "--errors: for --kind bbox only, not segm"),
        (("--engine", "slow"), "--engine slow: choose pycocotools, faster"),
        (("--max-detections", "0"), "--max-detections 0: give 1 or more"),
    ],
)
def test_a_wrong_option_is_one_line_and_status_2(lucid, perfect, words, message):
    status, _, err = lucid("score", "truth.json", "results.json", *words)
    assert status == 2
    assert err == f"error: {message}\n"


def test_results_that_are_no_list_are_refused_in_one_line(lucid, perfect):
    (lucid.folder / "results.json").write_text("{}")
    status, _, err = lucid("score", "truth.json", "results.json")
    assert status == 1
    assert err == "error: results.json must hold a list of results, got dict\n"


def test_the_split_that_is_scored_is_the_one_that_eval_scores(lucid):
    tree = synthetic.write_voc(
        lucid.folder / "tree", splits={"train": 2, "val": 2, "trainval": 2, "test": 3}, size=64
    )
    truth = open_catalog(tree, "test").to_coco()
    rows = [
        {key: a[key] for key in ("image_id", "category_id", "bbox")} | {"score": 0.9}
        for a in truth["annotations"]
    ]
    (lucid.folder / "r.json").write_text(json.dumps(rows))
    status, out, err = lucid("score", tree, "r.json", "--json")
    assert (status, err) == (0, "")
    document = json.loads(out)
    assert (document["images"], document["info"]["split"]) == (3, "test")
    assert document["report"]["bbox"]["map"] == pytest.approx(1.0)
    assert lucid("score", tree, "r.json", "--split", "val")[0] == 1


def test_eval_and_score_say_the_same_of_their_split(lucid):
    said = "Split to score; when absent the one a fit validates on: test beside trainval, else val, valid or test."
    for command in ("eval", "score"):
        words = " ".join(lucid(command, "--help")[1].replace("│", " ").split())
        assert said in words, command


def test_a_file_of_ground_truth_has_no_splits(lucid, perfect):
    status, _, err = lucid("score", "truth.json", "results.json", "--split", "val")
    assert (status, err) == (
        2,
        "error: --split val: truth.json is one split already; leave the option out\n",
    )
