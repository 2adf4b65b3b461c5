"""Odd labels and malformed results: scored as the reader understands them, or refused in one line naming the row."""

import copy
import json
import math

import numpy as np
import pytest
from pycocotools import mask as rle

from lucid_data import coco_pairs, open_catalog, score_coco

TASKS = {"bbox": "detect", "segm": "segment", "keypoints": "pose"}
RING = [10, 10, 30, 10, 30, 30, 10, 30]
POINTS = [15, 15, 2, 25, 15, 2, 20, 25, 2]
ODD_OUTLINES = {
    "empty": [],
    "two points": [[10, 10, 30, 30]],
    "flat": RING,
    "null": None,
    "text": "mask",
    "no size": {"counts": [400, 1600]},
    "another size": {"size": [100, 40], "counts": [0, 4000]},
    "too short": {"size": [40, 100], "counts": [100, 50]},
    "no pixel": {"size": [40, 100], "counts": [4000]},
    "not finite": [[10, 10, 30, float("nan"), 30, 30]],
}


def label(number=1, image=1, **changes):
    return {
        "id": number, "image_id": image, "category_id": 1, "bbox": [10, 10, 20, 20], "area": 400, "iscrowd": 0,
        "segmentation": [RING], "keypoints": POINTS, "num_keypoints": 3,
    } | changes  # fmt: skip


def without(row, *names):
    return {name: value for name, value in row.items() if name not in names}


def truth(*labels):
    return {
        "images": [{"id": i, "file_name": f"{i}.png", "height": 40, "width": 100} for i in (1, 2)],
        "categories": [{"id": 1, "name": "a"}, {"id": 2, "name": "b"}],
        "annotations": list(labels) or [label()],
    }


def result(**changes):
    return {
        "image_id": 1, "category_id": 1, "score": 0.9, "bbox": [10, 10, 20, 20], "segmentation": [RING],
        "keypoints": POINTS,
    } | changes  # fmt: skip


def tree(tmp_path, picture, *labels, images=None):
    document = truth(*labels)
    document["images"] = images or document["images"]
    for image in document["images"]:
        picture(tmp_path / "val" / image["file_name"])
    file = tmp_path / "annotations" / "instances_val.json"
    file.parent.mkdir()
    file.write_text(json.dumps(document))
    return tmp_path


ODD = {
    **{f"outline {name}": ("segm", {"segmentation": value}) for name, value in ODD_OUTLINES.items()},
    "crowd without an outline": ("segm", {"segmentation": [], "iscrowd": 1}),
}


@pytest.mark.parametrize("place", ["document", "catalog"])
@pytest.mark.parametrize("name", ODD)
def test_an_unusable_outline_scores_as_if_its_annotation_were_absent(tmp_path, picture, place, name):
    kind, changes = ODD[name]
    sound, odd = label(), label(2, 2, **changes)
    results = [result(), result(image_id=2, score=0.95)]
    expected = score_coco(truth(sound), results, kind)
    if place == "catalog":
        catalog = open_catalog(tree(tmp_path, picture, sound, odd), "val", TASKS[kind])
        assert score_coco(catalog.to_coco(), results, kind).to_dict() == expected.to_dict()
    else:
        assert score_coco(truth(sound, odd), results, kind).to_dict() == expected.to_dict()


def test_an_instance_left_out_for_its_outline_is_absent_from_the_boxes_of_the_segment_task_too(
    tmp_path, picture
):
    root = tree(tmp_path, picture, label(), label(2, 2, segmentation=[]))
    kept = {task: open_catalog(root, "val", task) for task in ("detect", "segment")}
    ids = {task: [a["id"] for a in c.to_coco()["annotations"]] for task, c in kept.items()}
    assert ids == {"detect": [1, 2], "segment": [1]}
    assert sum(len(kept["segment"].targets(i)) for i in range(2)) == 1


@pytest.mark.parametrize("value", [{"size": [40, 100], "counts": [10**30]}, [[10**400] * 6]])
def test_an_outline_of_numbers_that_no_machine_holds_is_unusable(value):
    report = score_coco(truth(label(), label(2, 2, segmentation=value)), [result()], "segm")
    assert (report["map"], report.ground_truths) == (pytest.approx(1), 1)


def test_an_unusable_ring_goes_and_the_sound_one_stays():
    odd = truth(label(segmentation=[[], RING, [1, 2, 3]]))
    assert score_coco(odd, [result()], "segm")["map"] == pytest.approx(1)


@pytest.mark.parametrize("engine", ["pycocotools", "faster"])
@pytest.mark.parametrize("kind", TASKS)
def test_a_crowd_flag_of_null_or_none_at_all_is_no_crowd(kind, engine):
    if engine == "faster":
        pytest.importorskip("faster_coco_eval", reason="faster-coco-eval is not installed")
    expected = score_coco(truth(label()), [result()], kind, engine=engine).to_dict()
    for odd in (label(iscrowd=None), label(iscrowd=False), without(label(), "iscrowd")):
        assert score_coco(truth(odd), [result()], kind, engine=engine).to_dict() == expected


@pytest.mark.parametrize("place", ["document", "catalog"])
@pytest.mark.parametrize("value", ["absent", None, []])
def test_an_object_without_keypoints_does_not_count(tmp_path, picture, place, value):
    odd = without(label(2, 2), "num_keypoints", "keypoints") | (
        {} if value == "absent" else {"keypoints": value}
    )
    document = truth(label(), odd)
    if place == "catalog":
        document = open_catalog(tree(tmp_path, picture, label(), odd), "val", "pose").to_coco()
    results = [result(), result(image_id=2, score=0.5)]
    report = score_coco(document, results, "keypoints")
    # pycocotools on the same object written out: labelled with zeros and none of them counted
    zeros = truth(label(), label(2, 2, keypoints=[0] * 9, num_keypoints=0))
    assert report.to_dict() == score_coco(zeros, results, "keypoints").to_dict()
    assert report["map"] == pytest.approx(1)


@pytest.mark.parametrize("stated", [{}, {"height": None, "width": None}, {"height": 0, "width": 0}])
def test_sizes_that_the_file_lacks_are_those_of_the_pictures(tmp_path, picture, stated):
    images = [{"id": 1, "file_name": "1.png", **stated}]
    catalog = open_catalog(tree(tmp_path, picture, label(), images=images), "val", "segment")
    assert catalog.to_coco()["images"] == [{"id": 1, "file_name": "1.png", "height": 40, "width": 100}]
    assert score_coco(catalog.to_coco(), [result()], "segm")["map"] == pytest.approx(1)


def test_results_of_a_class_that_only_the_other_split_has_are_scored(tmp_path, picture):
    train = open_catalog(tree(tmp_path, picture, label()), "val")
    file = tmp_path / "annotations" / "instances_val.json"
    document = json.loads(file.read_text())
    document["categories"] = document["categories"][:1]
    (tmp_path / "annotations" / "instances_test.json").write_text(json.dumps(document))
    for image in document["images"]:
        picture(tmp_path / "test" / image["file_name"])
    truth_ = open_catalog(tmp_path, "test", like=train).to_coco()
    assert truth_["categories"] == [{"id": 1, "name": "a"}, {"id": 2, "name": "b"}]
    assert score_coco(truth_, [result(), result(category_id=2)])["map"] == pytest.approx(1)


def scored_or_refused(source, results, kind):
    """Return how many results were scored, or what was said against it; any other error is a failure."""
    try:
        return score_coco(source(), results, kind).predictions
    except (ValueError, OSError) as error:
        return str(error)


CASES = [
    "annotation_key_singular", "bad_polygons_a", "boxes_outside_image_a", "dangling_references_a",
    "degenerate_boxes_a", "duplicate_annotation_ids_a", "id_and_number_types_a", "json_bom",
    "keypoints_inconsistent_a", "missing_fields_a", "nan_and_booleans", "odd_file_names_a",
    "placeholder_category_zero", "rle_masks_a", "sparse_category_ids_a", "width_height_swapped_a",
]  # fmt: skip


@pytest.mark.parametrize("kind", TASKS)
@pytest.mark.parametrize("name", CASES)
def test_a_messy_data_set_is_scored_or_refused_in_one_line(shared_data, name, kind):
    folder = shared_data / "messy" / f"coco_{name}"
    document = json.loads((folder / "annotations.json").read_bytes().decode("utf-8-sig"))
    category = document["categories"][-1]["id"]
    points = [5.0, 5.0, 2.0] * len(document["categories"][-1].get("keypoints", [0]))
    each = [
        result(image_id=i["id"], category_id=category, bbox=[5, 5, 9, 9], keypoints=points)
        for i in document["images"]
    ]
    for task in TASKS.values():
        for results in ([], each):
            for source in (lambda: document, lambda t=task: open_catalog(folder, "all", t).to_coco()):
                outcome = scored_or_refused(source, results, kind)
                assert outcome == len(results) or len(outcome.splitlines()) == 1


@pytest.mark.parametrize("name", ["missing_fields_a", "bad_polygons_a", "rle_masks_a"])
def test_the_masks_that_are_learnt_of_a_messy_data_set_are_those_that_are_scored(shared_data, name):
    catalog = open_catalog(shared_data / "messy" / f"coco_{name}", "all", "segment")
    learnt = sum(int(catalog.targets(i).mask_ok.sum()) for i in range(len(catalog)))
    report = score_coco(catalog.to_coco(), [], "segm")
    assert sum(score.ground_truths for score in report.per_class.values()) == learnt > 0


BAD_RESULTS = {
    "number": (1, "bbox", "must be an object"),
    "null": (None, "bbox", "must be an object"),
    "score of null": (result(score=None), "bbox", "score must hold"),
    "score of words": (result(score="high"), "bbox", "score must hold"),
    "score of true": (result(score=True), "bbox", "score must be a number"),
    "score of a list": (result(score=[0.9]), "bbox", "score must hold"),
    "score without an end": (result(score=10**400), "bbox", "score must hold"),
    "box of three": (result(bbox=[1, 2, 3]), "bbox", "bbox must hold 4 numbers"),
    "box of null": (result(bbox=None), "bbox", "bbox must hold 4 numbers"),
    "box as object": (result(bbox={"x": 1}), "bbox", "bbox must hold 4 numbers"),
    "box of words": (result(bbox=["a", "b", "c", "d"]), "bbox", "bbox must hold 4 numbers"),
    "box of three beside a mask": (result(bbox=[1, 2, 3]), "segm", "bbox must hold 4 numbers"),
    "image unknown": (result(image_id=5), "bbox", "image 5 is not in the ground truth"),
    "image as list": (result(image_id=[1]), "bbox", "image_id must be a number or text"),
    "image as object": (result(image_id={}), "bbox", "image_id must be a number or text"),
    "image of null": (result(image_id=None), "bbox", "image_id must be a number or text"),
    "category unknown": (result(category_id=9), "bbox", "category 9 is not in 'categories'"),
    "category as list": (result(category_id=[1]), "bbox", "category_id must be a number or text"),
    **{
        f"mask {name}": (result(segmentation=value), "segm", "segmentation")
        for name, value in ODD_OUTLINES.items()
        if name not in ("no pixel", "not finite")
    },
    "mask of a huge count": (
        result(segmentation={"size": [40, 100], "counts": [10**30]}), "segm", "longer than any picture"
    ),
    "mask with an empty ring": (result(segmentation=[RING, []]), "segm", "a ring must hold"),
    "mask of words": (result(segmentation=[["a"] * 6]), "segm", "a ring must hold"),
    "mask of foreign characters": (
        result(segmentation={"size": [40, 100], "counts": "\x00~é"}), "segm", "foreign character"
    ),
    "keypoints of another count": (result(keypoints=[1, 2, 2]), "keypoints", "keypoints must hold 9 numbers"),
    "keypoints of null": (result(keypoints=None), "keypoints", "keypoints must hold 9 numbers"),
    "keypoints without": (without(result(), "keypoints"), "keypoints", "has no keypoints"),
}  # fmt: skip


@pytest.mark.parametrize("name", BAD_RESULTS)
def test_a_malformed_result_is_refused_in_one_line_with_its_row(name):
    row, kind, words = BAD_RESULTS[name]
    measures = [lambda r: score_coco(truth(), r, kind)]
    if kind == "bbox":
        measures.append(lambda r: coco_pairs(truth(), r))
    for measure in measures:
        with pytest.raises(ValueError, match=f"^result 1.*{words}") as caught:
            measure([result(), row])
        assert len(str(caught.value).splitlines()) == 1


def changed(part, position=0, drop=(), **changes):
    document = copy.deepcopy(truth(label(), label(2, 2)))
    document[part][position] = without(document[part][position], *drop) | changes
    return document


BAD_TRUTHS = {
    "no images": (without(truth(), "images"), "bbox", "no list 'images'"),
    "an image of null": (truth() | {"images": [None]}, "bbox", r"images\[0\] must be an object"),
    "image without id": (changed("images", drop=["id"]), "bbox", r"images\[0\]: id must be"),
    "image with a list as id": (changed("images", id=[1]), "bbox", r"images\[0\]: id must be"),
    "two images of one id": (changed("images", 1, id=1), "bbox", r"images\[1\]: id 1 .*renumber the images"),
    "category without id": (changed("categories", drop=["id"]), "bbox", r"categories\[0\]: id must be"),
    "category with words as id": (changed("categories", id="x"), "bbox", r"categories\[0\]: id .*'x'"),
    "category with an endless id": (
        changed("categories", id=float("inf")), "bbox", r"categories\[0\]: id must be a whole number"
    ),
    "image without width": (changed("images", drop=["width"]), "segm", r"images\[0\]: width is missing"),
    "image of no width": (changed("images", width=0), "segm", r"images\[0\]: width must be a whole"),
    "image of huge width": (changed("images", width=10**400), "segm", r"images\[0\]: width must hold"),
    "annotation without image": (
        changed("annotations", 1, ["image_id"]), "bbox", "annotation 2: image_id must be"
    ),
    "annotation of a list": (changed("annotations", image_id=[1]), "bbox", "annotation 1: image_id must be"),
    "annotation without category": (
        changed("annotations", 1, ["category_id"]), "bbox", "annotation 2 of image 2: category_id must be"
    ),
    "annotation of an unknown category": (
        changed("annotations", category_id=9), "bbox", "annotation 1 of image 1: category 9 is not in"
    ),
    "annotation without id or box": (
        changed("annotations", 1, ["id", "bbox"]), "bbox", r"annotations\[1\] of image 2: bbox must hold"
    ),
    "annotation without box, for keypoints": (
        changed("annotations", drop=["bbox"]), "keypoints", "annotation 1 of image 1: bbox must hold"
    ),
    "annotation without box or area": (
        changed("annotations", drop=["bbox", "area"]), "segm", "neither area nor bbox"
    ),
    "box of words": (changed("annotations", bbox=["a"] * 4), "bbox", "annotation 1 of image 1: bbox"),
    "huge area": (changed("annotations", area=10**400), "bbox", "annotation 1 of image 1: area"),
    "keypoints of two counts": (
        changed("annotations", 1, keypoints=[1, 2, 2]), "keypoints", "annotation 2 of image 2: keypoints must hold 9"
    ),
    "keypoints of words": (
        changed("annotations", keypoints="x"), "keypoints", "annotation 1 of image 1: keypoints must hold"
    ),
    "keypoints not finite": (
        changed("annotations", keypoints=[float("nan")] * 9), "keypoints", "keypoints .* is not finite"
    ),
    "count of keypoints in words": (
        changed("annotations", num_keypoints="x"), "keypoints", "annotation 1 of image 1: num_keypoints"
    ),
}  # fmt: skip


@pytest.mark.parametrize("name", BAD_TRUTHS)
def test_a_malformed_ground_truth_is_refused_in_one_line_with_its_row(name):
    document, kind, words = BAD_TRUTHS[name]
    measures = [lambda: score_coco(document, [], kind)]
    if kind == "bbox":
        measures.append(lambda: coco_pairs(document, []))
    for measure in measures:
        with pytest.raises(ValueError, match=words) as caught:
            measure()
        assert len(str(caught.value).splitlines()) == 1


def test_ground_truth_that_is_no_document_is_refused():
    with pytest.raises(ValueError, match="must be a COCO document or its file, got \\[1\\]"):
        score_coco([1], [])


def test_a_category_without_a_name_goes_by_its_id():
    document = changed("categories", drop=["name"])
    assert coco_pairs(document, []).class_names == ("1", "b")
    assert list(score_coco(document, []).per_class) == ["1", "b"]


def test_numbers_of_results_written_as_text_are_read():
    words = result(score="0.9", bbox=["10", "10", "20", "20"])
    assert score_coco(truth(), [words]).to_dict() == score_coco(truth(), [result()]).to_dict()
    boxes, scores, _ = coco_pairs(truth(), [words]).predictions[0]
    assert (boxes.tolist(), scores.tolist()) == ([[10, 10, 30, 30]], [0.9])


@pytest.mark.parametrize("boxes", [True, False])
def test_a_mask_scores_alike_as_rings_counts_and_compressed_counts(boxes):
    grid = np.zeros((40, 100), np.uint8, order="F")
    grid[10:30, 10:30] = 1
    packed = rle.encode(grid)
    flat = grid.ravel(order="F")
    edges = np.flatnonzero(np.diff(flat)) + 1
    counts = np.diff([0, *edges, flat.size]).tolist()
    forms = [
        [RING],
        {"size": [40, 100], "counts": counts},
        packed,
        packed | {"counts": packed["counts"].decode()},
    ]
    expected = score_coco(truth(), [result()], "segm").to_dict()
    for form in forms:
        row = result(segmentation=form) if boxes else without(result(segmentation=form), "bbox")
        assert score_coco(truth(), [row], "segm").to_dict() == expected
        assert score_coco(truth(label(segmentation=form)), [row], "segm").to_dict() == expected


def test_boxes_beside_some_of_the_masks_only_are_not_looked_at():
    rows = [result(), without(result(image_id=2), "bbox")]
    bare = [without(row, "bbox") for row in rows]
    document = truth(label(), label(2, 2))
    assert score_coco(document, rows, "segm").to_dict() == score_coco(document, bare, "segm").to_dict()


@pytest.mark.parametrize(
    ("kind", "odd"),
    [
        ("bbox", result(score=math.nan)),
        ("segm", result(segmentation=[[math.inf, *RING[1:]]])),
        ("keypoints", result(keypoints=[math.nan, *POINTS[1:]])),
    ],
)
def test_a_result_that_is_not_finite_is_dropped_and_counted(kind, odd):
    report = score_coco(truth(), [odd, result()], kind)
    assert (report["map"], report.predictions, report.dropped) == (pytest.approx(1), 1, 1)


def test_an_annotation_of_an_image_that_is_not_listed_does_not_count():
    report = score_coco(truth(label(), label(2, 99)), [result()])
    assert (report.ground_truths, report.per_class["a"].ground_truths) == (1, 1)


@pytest.mark.parametrize("own", ["x", [1], None, 7.5, True, 10**400], ids=lambda own: repr(own)[:5])
def test_annotation_ids_that_the_engine_cannot_use_are_numbered_anew(own):
    assert score_coco(truth(label(own), label(2, 2)), [result()]).ground_truths == 2


def test_sigmas_are_one_for_each_keypoint():
    with pytest.raises(ValueError, match="2 sigmas for 3 keypoints"):
        score_coco(truth(), [result()], "keypoints", sigmas=[0.1, 0.1])
    assert score_coco(truth(), [result()], "keypoints", sigmas=[0.1] * 3)["map"] == pytest.approx(1)


def test_what_is_scored_is_not_changed():
    document, results = truth(), [result()]
    before = copy.deepcopy((document, results))
    for kind in TASKS:
        score_coco(document, results, kind)
    assert (document, results) == before
