"""COCO files that are not what they should be: one clear error, or a counted loss."""

import json

import pytest

from lucid_data import open_catalog


def row(number=1, image=7, category=5, bbox=(10, 10, 10, 20), **more):
    return {
        "id": number,
        "image_id": image,
        "category_id": category,
        "bbox": list(bbox),
        "area": 100.0,
        "iscrowd": 0,
    } | more


def test_the_nan_that_python_writes_does_not_stop_the_rest(coco_tree):
    catalog = open_catalog(coco_tree([row(1, score=float("nan")), row(2, visible_fraction=float("inf"))]))
    assert len(catalog.targets(1)) == 2


def test_an_empty_file_is_named(tmp_path, coco_tree):
    root = coco_tree([row()])
    (file,) = root.rglob("*.json")
    file.write_bytes(b"")
    with pytest.raises(ValueError, match=f"{file.name} is not JSON"):
        open_catalog(root)


def test_image_ids_that_repeat_are_refused(coco_tree):
    root = coco_tree([row()])
    file = root / "annotations" / "instances_train.json"
    document = json.loads(file.read_text())
    document["images"][1]["id"] = 7
    file.write_text(json.dumps(document))
    with pytest.raises(ValueError, match="image ids 7 and 7 cannot be told apart; renumber"):
        open_catalog(root)


@pytest.mark.parametrize(("task", "what"), [("segment", "a usable outline"), ("obb", "a quadrilateral")])
def test_labels_without_what_the_task_learns_are_refused(coco_tree, task, what):
    root = coco_tree([row(), row(2, image=3)])
    with pytest.raises(ValueError, match=f"no annotation has {what}, which the {task} task learns from"):
        open_catalog(root, task=task)


def test_a_split_without_objects_is_no_error_for_any_task(coco_tree):
    root = coco_tree([])
    assert [len(open_catalog(root, task=task)) for task in ("detect", "segment", "obb")] == [2, 2, 2]


def test_text_that_is_not_utf8_is_refused_wherever_it_stands(coco_tree):
    root = coco_tree([row()])
    file = root / "annotations" / "instances_train.json"
    file.write_bytes(file.read_bytes().replace(b'{"images"', b'{"info": {"by": "Jos\xe9"}, "images"', 1))
    with pytest.raises(ValueError, match=r"is not JSON: 'utf-8' codec"):
        open_catalog(root)


def test_a_lone_surrogate_in_a_key_is_none_of_our_business(coco_tree):
    catalog = open_catalog(coco_tree([row(), {**row(2), "\ud800": 1}]))
    assert len(catalog.targets(1)) == 2


@pytest.mark.parametrize(
    ("image", "words"),
    [({"height": 10**20}, "height must be at most"), ({"id": 10**30}, "has no place in 64 bits")],
)
def test_huge_numbers_of_images_are_refused_by_name(coco_tree, image, words):
    root = coco_tree([])
    file = root / "annotations" / "instances_train.json"
    document = json.loads(file.read_text())
    document["images"][0] |= image
    file.write_text(json.dumps(document))
    with pytest.raises(ValueError, match=words):
        open_catalog(root)


@pytest.mark.parametrize("names", [5, [["a"]], "ab"])
def test_keypoint_names_that_are_no_list_of_names_are_refused(coco_tree, names):
    root = coco_tree([row()], categories=[{"id": 5, "name": "early", "keypoints": names}])
    with pytest.raises(ValueError, match="'keypoints' must list names"):
        open_catalog(root, task="pose")


def test_json_nested_too_deep_is_refused(coco_tree):
    root = coco_tree([row()])
    (root / "annotations" / "instances_train.json").write_text("[" * 100_000)
    with pytest.raises(ValueError, match="is not JSON"):
        open_catalog(root)


@pytest.mark.parametrize(
    "outline",
    [
        {"size": [40, 100], "counts": [10**30]},
        [[10**400, 0, 4, 0, 4, 4]],
        {"size": [40, 100], "counts": [-1]},
    ],
)
def test_outlines_of_huge_numbers_are_unusable(coco_tree, outline):
    catalog = open_catalog(coco_tree([row(segmentation=outline)]), outlines=True)
    assert catalog.targets(1).polygons == ((),)


def test_keypoints_that_are_not_finite_are_refused_by_name(coco_tree):
    root = coco_tree([row(keypoints=[float("nan"), 1, 2])])
    with pytest.raises(ValueError, match="annotation 1 of image 7: keypoints must be finite"):
        open_catalog(root, task="pose")
