import contextlib
import json
import logging
import random
import sys
import warnings

import pytest
import torch

from lucid_data import confusion_matrix, score_coco
from lucid_data.metrics.engines import silent

NAMES = {
    "AP": "map", "AP50": "map_50", "AP75": "map_75", "APs": "map_small", "APm": "map_medium",
    "APl": "map_large", "AR1": "mar_1", "AR10": "mar_10", "AR100": "mar_100", "ARs": "mar_small",
    "ARm": "mar_medium", "ARl": "mar_large", "AR": "mar", "AR50": "mar_50", "AR75": "mar_75",
}  # fmt: skip


@pytest.mark.parametrize(
    "name",
    ["coco_noisy_a", "coco_noisy_kp_a", "cocoapi_fake100", "fce_small", "padilla_toy", "padilla_toy_ids1",
     "s01_perfect", "s03_more_than_100", "s05_no_detections", "s07_area_limits", "s09_duplicates",
     "s11_zero_area_detection",
     "s13_masks_a", "s15_keypoints_a", "xtcoco_keypoints"],
)  # fmt: skip
def test_scores_equal_the_reference_to_1e_12(shared_data, capsys, name):
    folder = shared_data / "eval_vectors" / name
    for case in json.loads((folder / "expected.json").read_text())["cases"]:
        report = score_coco(
            folder / case["gt"], folder / case["dt"], case["iou_type"],
            max_detections=case["max_dets"], class_agnostic=not case["use_cats"],
        )  # fmt: skip
        assert {k: report[NAMES[k]] for k in case["stats"]} == pytest.approx(case["stats"], abs=1e-12)
        assert set(report.numbers) == {NAMES[k] for k in case["stats"]}
        categories = json.loads((folder / case["gt"]).read_text())["categories"]
        by_id = {str(c["id"]): c["name"] for c in categories}
        if case["use_cats"]:
            for category, wanted in (case.get("per_category") or {}).items():
                got = report.per_class[by_id[category]]
                assert (got.map, got.map_50, got.mar) == pytest.approx(
                    (wanted["AP"], wanted["AP50"], wanted["AR"]), abs=1e-12
                )
    assert capsys.readouterr().out == ""


@pytest.mark.parametrize(
    "name", ["coco_noisy_a", "coco_noisy_kp_a", "s13_masks_a", "s07_area_limits", "padilla_toy"]
)
def test_the_faster_engine_gives_the_reference_numbers(shared_data, name):
    pytest.importorskip("faster_coco_eval", reason="faster-coco-eval is not installed")
    folder = shared_data / "eval_vectors" / name
    for case in json.loads((folder / "expected.json").read_text())["cases"]:
        files, kind = (folder / case["gt"], folder / case["dt"]), case["iou_type"]
        words = {"max_detections": case["max_dets"], "class_agnostic": not case["use_cats"]}
        one, other = (score_coco(*files, kind, **words, engine=e) for e in ("pycocotools", "faster"))
        assert dict(other.numbers) == pytest.approx(dict(one.numbers), abs=1e-12)
        for label, score in one.per_class.items():
            mine = other.per_class[label]
            wanted = (score.map, score.map_50, score.mar, score.ground_truths)
            assert (mine.map, mine.map_50, mine.mar, mine.ground_truths) == pytest.approx(wanted, abs=1e-12)
        assert abs(one.curves.precision - other.curves.precision).max() < 1e-12


def test_an_engine_that_is_unknown_or_not_installed_is_refused_with_the_remedy(monkeypatch):
    with pytest.raises(ValueError, match="unknown engine 'slow'; choose one of pycocotools, faster"):
        score_coco(truth((1, BOX)), [], engine="slow")
    monkeypatch.setitem(sys.modules, "faster_coco_eval", None)
    with pytest.raises(ImportError, match="extra 'fast-eval'"):
        score_coco(truth((1, BOX)), [], engine="faster")


def truth(*boxes, **more):
    annotations = [
        {
            "id": i,
            "image_id": 1,
            "category_id": label,
            "bbox": list(box),
            "area": box[2] * box[3],
            "iscrowd": 0,
        }
        | more
        for i, (label, box) in enumerate(boxes, 1)
    ]
    return {
        "images": [{"id": 1, "height": 100, "width": 100}],
        "annotations": annotations,
        "categories": [{"id": 1, "name": "a"}, {"id": 2, "name": "b"}],
    }


def found(label, box, score=0.9):
    return {"image_id": 1, "category_id": label, "bbox": list(box), "score": score}


BOX, OTHER = (10, 10, 20, 20), (60, 60, 30, 30)


def test_perfect_predictions_score_one_swapped_classes_and_none_score_zero():
    document = truth((1, BOX), (2, OTHER))
    assert score_coco(document, [found(1, BOX), found(2, OTHER)])["map"] == pytest.approx(1)
    assert score_coco(document, [found(2, BOX), found(1, OTHER)])["map"] == 0
    assert score_coco(document, [])["map"] == 0


def test_predictions_that_are_not_finite_are_dropped_and_counted():
    report = score_coco(
        truth((1, BOX)), [found(1, BOX), found(1, BOX, float("nan")), found(1, (float("inf"), 0, 1, 1))]
    )
    assert report["map"] == pytest.approx(1)
    assert (report.predictions, report.dropped) == (1, 2)


def test_a_crowd_region_absorbs_detections_without_lowering_ap():
    document = truth((1, BOX))
    document["annotations"].append(
        {
            "id": 9,
            "image_id": 1,
            "category_id": 1,
            "bbox": [40, 40, 60, 60],
            "area": 3600,
            "iscrowd": 1,
            "segmentation": {"size": [100, 100], "counts": [10000]},
        }
    )
    inside = [found(1, (45 + i, 45 + i, 8, 8), 0.95) for i in range(5)]
    assert score_coco(document, [found(1, BOX), *inside])["map"] == pytest.approx(1)


def test_area_buckets_follow_the_stated_area():
    report = score_coco(truth((1, BOX), area=96.0**2 + 1), [found(1, BOX)])
    assert report["map_large"] == pytest.approx(1)
    assert report["map_small"] == -1


def test_missing_and_repeated_ids_are_numbered_and_missing_fields_filled():
    document = truth((1, BOX), (1, OTHER))
    for annotation in document["annotations"]:
        annotation["id"] = 7
        del annotation["area"], annotation["iscrowd"]
    assert score_coco(document, [found(1, BOX), found(1, OTHER)])["map"] == pytest.approx(1)
    assert document["annotations"][0] == {"id": 7, "image_id": 1, "category_id": 1, "bbox": list(BOX)}


def test_per_class_scores_and_the_best_f1_point():
    report = score_coco(
        truth((1, BOX), (1, OTHER)), [found(1, BOX, 0.8), found(1, OTHER, 0.3), found(1, (0, 0, 5, 5), 0.1)]
    )
    a, b = report.per_class["a"], report.per_class["b"]
    assert (a.ground_truths, a.best_f1, a.precision, a.recall) == pytest.approx((2, 1, 1, 1))
    assert a.best_confidence == pytest.approx(0.3)
    assert (b.map, b.ground_truths) == (-1, 0)


def test_curves_hold_precision_on_the_recall_grid():
    report = score_coco(truth((1, BOX), (1, OTHER)), [found(1, BOX)])
    curves = report.curves
    assert curves.precision.shape == (10, 101, 2)
    half = curves.recall <= 0.5
    assert curves.precision[0, half, 0] == pytest.approx(1)
    assert (curves.precision[0, ~half, 0] == 0).all()
    assert curves.class_names == ("a", "b")


def test_a_report_reads_as_a_dictionary_ready_for_json():
    report = score_coco(truth((1, BOX)), [found(1, BOX)])
    assert dict(report) == report.to_dict()
    assert json.loads(json.dumps(report.to_dict()))["per_class"]["a"]["map"] == pytest.approx(1)


def test_one_point_oks_equals_the_closed_form():
    # exp(-25 / (2 * 1000 * 0.1**2)) = 0.2865: a match at no threshold; at distance 1 it is 0.951: all thresholds
    document = {
        "images": [{"id": 1, "height": 100, "width": 100}],
        "annotations": [
            {
                "id": 1,
                "image_id": 1,
                "category_id": 1,
                "bbox": [0, 0, 40, 25],
                "area": 1000,
                "iscrowd": 0,
                "keypoints": [50, 50, 2],
            }
        ],
        "categories": [{"id": 1, "name": "p"}],
    }

    def at(x):
        return score_coco(
            document, [{"image_id": 1, "category_id": 1, "keypoints": [x, 50, 2], "score": 1.0}], "keypoints"
        )

    assert at(55)["map"] == 0
    assert at(51)["map"] == pytest.approx(1)
    assert at(53)["map_50"] == pytest.approx(1)  # exp(-9 / 20) = 0.638
    assert at(53)["map"] == pytest.approx(0.3)


@pytest.mark.parametrize(
    ("results", "kind", "words"),
    [
        ([found(1, BOX)], "boxes", "bbox, segm, keypoints"),
        ([{"image_id": 1, "category_id": 1, "score": 1.0}], "bbox", "result 0 has no bbox"),
        ([found(1, BOX) | {"image_id": 5}], "bbox", "image 5"),
    ],
)
def test_results_that_cannot_be_scored_are_refused(results, kind, words):
    with pytest.raises(ValueError, match=words):
        score_coco(truth((1, BOX)), results, kind)


def test_result_files_are_checked(tmp_path):
    with pytest.raises(FileNotFoundError, match=r"none\.json"):
        score_coco(truth((1, BOX)), tmp_path / "none.json")
    (tmp_path / "odd.json").write_text("{}")
    with pytest.raises(ValueError, match="list of results"):
        score_coco(truth((1, BOX)), tmp_path / "odd.json")


def as_tensors(*rows):
    boxes = torch.tensor([r[1] for r in rows], dtype=torch.float32).view(-1, 4)
    return boxes, torch.tensor([r[2] for r in rows]), torch.tensor([r[0] for r in rows], dtype=torch.int64)


def test_the_confusion_matrix_counts_hits_mistakes_misses_and_inventions():
    predictions = as_tensors(
        (0, (0, 0, 10, 10), 0.9),
        (1, (20, 20, 30, 30), 0.8),
        (1, (50, 50, 60, 60), 0.7),
        (0, (0, 0, 10, 10), 0.2),
    )
    boxes, _, labels = as_tensors((0, (0, 0, 10, 10), 1), (0, (20, 20, 30, 30), 1), (1, (80, 80, 90, 90), 1))
    matrix = confusion_matrix([predictions], [(boxes, labels)], ("a", "b"))
    # predicted a: one hit; predicted b: one wrong, one invented; background: one b missed
    assert matrix.counts.tolist() == [[1, 0, 0], [1, 0, 1], [0, 1, 0]]


def greedy(iou, threshold):
    pairs = sorted(((iou[r][c], r, c) for r in range(len(iou)) for c in range(len(iou[0]))), reverse=True)
    rows, columns, out = set(), set(), set()
    for value, r, c in pairs:
        if value > threshold and r not in rows and c not in columns:
            rows.add(r)
            columns.add(c)
            out.add((r, c))
    return out


def test_matching_by_mutual_bests_equals_the_greedy_definition():
    from lucid_data.metrics.confusion import _match

    generator = random.Random(4)
    for _ in range(200):
        iou = [[generator.random() for _ in range(generator.randint(1, 6))]]
        iou += [[generator.random() for _ in iou[0]] for _ in range(generator.randint(0, 5))]
        rows, columns = _match(torch.tensor(iou, dtype=torch.float64), 0.45)
        assert set(zip(rows.tolist(), columns.tolist(), strict=True)) == greedy(iou, 0.45)


@pytest.mark.parametrize(
    ("changes", "words"),
    [
        ({"bbox": [float("nan"), 0, 4, 4]}, "annotation 1 of image 1: bbox .* is not finite"),
        ({"bbox": [0, 0, float("inf"), 4]}, "annotation 1 of image 1: bbox .* is not finite"),
        ({"bbox": [0, 0, 4]}, "annotation 1 of image 1: bbox must hold 4 numbers"),
        ({"area": "x"}, "annotation 1 of image 1: area must hold 1 numbers"),
        ({"area": float("nan")}, "annotation 1 of image 1: area must be finite"),
    ],
)
def test_a_labelled_box_that_cannot_be_scored_is_refused_with_its_annotation(changes, words):
    with pytest.raises(ValueError, match=words):
        score_coco(truth((1, BOX), **changes), [found(1, BOX)])


@pytest.mark.parametrize("image", [1, "1", 1.0])
@pytest.mark.parametrize("theirs", [1, "1", 1.0])
@pytest.mark.parametrize("detected", [1, "1"])
def test_ids_written_as_numbers_and_as_text_are_the_same(image, theirs, detected):
    document = truth((1, BOX), image_id=theirs, category_id=theirs)
    document["images"][0]["id"] = document["categories"][0]["id"] = image
    results = [found(detected, BOX) | {"image_id": detected}]
    report = score_coco(document, results)
    assert (report["map"], report.per_class["a"].ground_truths) == (pytest.approx(1), 1)


@pytest.mark.parametrize("engine", ["pycocotools", "faster"])
def test_image_ids_in_words_are_scored(engine):
    if engine == "faster":
        pytest.importorskip("faster_coco_eval", reason="faster-coco-eval is not installed")
    document = truth((1, BOX), (1, OTHER), image_id="b")
    document["images"] = [{"id": "b"}, {"id": "a"}]
    report = score_coco(document, [found(1, BOX) | {"image_id": "b"}], engine=engine)
    assert (report["mar_1"], report.images) == (pytest.approx(0.5), 2)


def test_images_that_differ_only_in_the_type_of_their_id_are_refused():
    document = truth((1, BOX))
    document["images"].append({"id": "1", "height": 100, "width": 100})
    with pytest.raises(ValueError, match="renumber the images"):
        score_coco(document, [found(1, BOX)])


def test_numbers_written_as_text_are_read_as_readers_read_them():
    document = truth((1, BOX), area="400")
    document["annotations"][0]["bbox"] = [str(v) for v in BOX]
    assert score_coco(document, [found(1, BOX)])["map"] == pytest.approx(1)


def test_scored_as_one_class_every_object_counts():
    report = score_coco(truth((1, BOX), (2, OTHER)), [found(1, BOX)], class_agnostic=True)
    assert report.per_class["all"].ground_truths == 2


def test_the_faster_engine_neither_logs_nor_warns_and_its_logger_is_as_before(caplog, capsys):
    pytest.importorskip("faster_coco_eval", reason="faster-coco-eval is not installed")
    logger = logging.getLogger("faster_coco_eval")
    before = logger.level
    with warnings.catch_warnings(), caplog.at_level(logging.DEBUG):
        warnings.simplefilter("error")
        score_coco(truth((1, BOX), id=0), [found(1, BOX)], engine="faster")
    captured = capsys.readouterr()
    assert (caplog.records, captured.out, captured.err, logger.level) == ([], "", "", before)


def test_the_logger_is_as_before_after_an_error_too():
    logger = logging.getLogger("faster_coco_eval")
    before = logger.level
    with contextlib.suppress(KeyError), silent():
        assert not logger.isEnabledFor(logging.CRITICAL)
        raise KeyError
    assert logger.level == before
