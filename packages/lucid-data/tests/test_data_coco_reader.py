import json
import pickle

import numpy as np
import pytest
import torch
from pycocotools.coco import COCO

from lucid_data import open_catalog, score_coco
from lucid_data.raster import fill_rings

RING = [10.0, 10.0, 20.0, 10.0, 20.0, 30.0]


def row(number=1, image=7, category=5, bbox=(10, 10, 10, 20), **more):
    return {
        "id": number,
        "image_id": image,
        "category_id": category,
        "bbox": list(bbox),
        "area": 100.0,
        "iscrowd": 0,
    } | more


def test_sparse_shuffled_category_ids_become_ranks_and_images_go_by_id(coco_tree):
    catalog = open_catalog(coco_tree([row(1, 7, 90), row(2, 3, 5)]))
    assert catalog.class_names == ("early", "late")
    assert catalog.category_ids == (5, 90)
    assert catalog.image_ids == [3, 7]
    assert catalog.file_names == ["3.png", "7.png"]
    assert catalog.targets(0).labels.tolist() == [0]
    assert catalog.targets(1).labels.tolist() == [1]
    assert catalog.targets(1).boxes.tolist() == [[10, 10, 20, 30]]
    assert catalog.targets(1).area.tolist() == [100]


def test_images_without_annotations_stay_as_background(coco_tree):
    catalog = open_catalog(coco_tree([row()]))
    assert len(catalog) == 2
    assert len(catalog.targets(0)) == 0


def test_crowd_becomes_an_ignore_region(coco_tree):
    targets = open_catalog(coco_tree([row(), row(2, iscrowd=1, bbox=(0, 0, 50, 40))])).targets(1)
    assert len(targets) == 1
    assert targets.crowd.tolist() == [[0, 0, 50, 40]]


def test_boxes_are_cut_to_the_image_and_what_is_left_under_a_pixel_is_dropped_and_counted(coco_tree):
    catalog = open_catalog(
        coco_tree(
            [
                row(1, bbox=(-5, -5, 20, 20)),
                row(2, bbox=(200, 5, 10, 10)),
                row(3, bbox=(5, 5, 0, 9)),
                row(4, bbox=(5, 9, 9, -3)),
            ]
        )
    )
    assert catalog.targets(1).boxes.tolist() == [[0, 0, 15, 15]]
    assert catalog.dropped == {"box under 1 px": 3}


def test_a_box_that_is_not_finite_is_dropped_and_counted(coco_tree):
    catalog = open_catalog(coco_tree([row(1, bbox=(float("nan"), 0, 5, 5)), row(2)]))
    assert len(catalog.targets(1)) == 1
    assert catalog.dropped == {"box with a number that is not finite": 1}


@pytest.mark.parametrize(
    ("annotation", "words"),
    [
        (row(31, category=6), "annotation 31.*category 6"),
        (row(32, bbox=(1, 2, 3)), "annotation 32.*bbox must hold 4 numbers"),
        (row(33, bbox=("a", 0, 1, 1)), "annotation 33.*bbox must hold 4 numbers"),
    ],
)
def test_a_defective_annotation_is_named_with_its_file(coco_tree, annotation, words):
    with pytest.raises(ValueError, match=f"instances_train.json, {words}"):
        open_catalog(coco_tree([annotation]))


def test_an_annotation_of_an_unlisted_image_is_dropped_and_counted(coco_tree):
    assert open_catalog(coco_tree([row(image=8)])).dropped == {"annotation of an unknown image": 1}


def test_all_parts_of_an_outline_are_kept(coco_tree):
    catalog = open_catalog(
        coco_tree([row(1, segmentation=[RING, RING]), row(2, segmentation=[[1, 2, 3, 4]]), row(3)]),
        task="segment",
    )
    targets = catalog.targets(1)
    # an unusable outline leaves the object out of mask training, an absent one leaves it a box
    assert [len(rings) for rings in targets.polygons] == [2, 0]
    assert targets.polygons[0][1].flatten().tolist() == RING
    assert targets.mask_ok.tolist() == [True, False]
    assert catalog.dropped == {
        "instance with an unusable outline": 1,
        "instance without an outline (box kept)": 1,
    }


def test_an_unusable_outline_keeps_its_box_where_boxes_are_learnt(coco_tree):
    root = coco_tree([row(1, segmentation=[[1, 2, 3, 4]])])
    assert len(open_catalog(root).targets(1)) == 1
    assert open_catalog(root, outlines=True).targets(1).mask_ok.tolist() == [False]


def test_run_lengths_become_rings_that_fill_the_same_pixels(shared_data):
    # compressed, uncompressed and a polygon are usable; swapped sizes and short counts are not
    catalog = open_catalog(shared_data / "messy" / "coco_rle_masks_a", "all", "segment")
    document = catalog.to_coco()
    coco = COCO()
    coco.dataset = document
    coco.createIndex()
    seen = 0
    for index in range(len(catalog)):
        targets = catalog.targets(index)
        rows = [a for a in document["annotations"] if a["image_id"] == catalog.image_ids[index]]
        lengths = [a for a in rows if isinstance(a["segmentation"], dict) and not a["iscrowd"]]
        for annotation in lengths[: int(targets.mask_ok.sum())]:
            expected = coco.annToMask(annotation).astype(bool)
            masks = [fill_rings(rings, *expected.shape) for rings in targets.polygons]
            seen += any(np.array_equal(mask, expected) for mask in masks)
    assert seen == 2
    assert catalog.dropped["instance with an unusable outline"] == 2


def test_flagged_instances_can_be_left_out(coco_tree):
    root = coco_tree([row(1, difficult=1), row(2)])
    catalog = open_catalog(root, keep_difficult=False)
    assert len(catalog.targets(1)) == 1
    assert catalog.dropped == {"difficult instance": 1}
    assert open_catalog(root).targets(1).difficult.tolist() == [True, False]


def test_oriented_boxes_are_fitted_to_four_points_and_bounded_by_them(coco_tree):
    catalog = open_catalog(
        coco_tree([row(segmentation=[[3, 2, 7, 2, 7, 4, 3, 4]], bbox=(0, 0, 1, 1))]), task="obb"
    )
    targets = catalog.targets(1)
    assert targets.boxes.tolist() == [[3, 2, 7, 4]]
    assert targets.rboxes.tolist() == [[5, 3, 4, 2, 0]]
    with pytest.raises(ValueError, match="four points"):
        open_catalog(coco_tree([row(segmentation=[RING])]), task="obb")


PEOPLE = [{"id": 5, "name": "person", "keypoints": ["nose", "left_eye", "right_eye"]}]


def test_keypoints_move_to_pixel_centres_and_unlabelled_ones_stay(coco_tree):
    root = coco_tree([row(keypoints=[1, 2, 2, 0, 0, 0, 5, 6, 1]), row(2, num_keypoints=0)], categories=PEOPLE)
    catalog = open_catalog(root, task="pose")
    assert catalog.targets(1).keypoints.tolist() == [
        [[1.5, 2.5, 2], [0, 0, 0], [5.5, 6.5, 1]],
        [[0, 0, 0]] * 3,
    ]
    assert catalog.keypoint_names == ("nose", "left_eye", "right_eye")
    assert catalog.keypoint_flip_pairs == ((1, 2),)


@pytest.mark.parametrize("points", [[1, 2], [1, 2, 2]])
def test_a_wrong_number_of_keypoints_names_the_image_and_does_not_stop_detection(coco_tree, points):
    root = coco_tree([row(keypoints=points)], categories=PEOPLE)
    with pytest.raises(ValueError, match="image 7"):
        open_catalog(root, task="pose")
    assert len(open_catalog(root).targets(1)) == 1


@pytest.mark.parametrize("names", [["left_eye", "nose"], ["eye", "Eye"], ["left_eye", "eye_left"]])
def test_defective_keypoint_names_are_refused_for_pose_only(coco_tree, names):
    root = coco_tree(
        [row(keypoints=[1, 1, 2] * len(names))], categories=[{"id": 5, "name": "p", "keypoints": names}]
    )
    with pytest.raises(ValueError, match="keypoint"):
        open_catalog(root, task="pose")
    open_catalog(root)


def test_coco_people_have_the_eight_known_pairs(shared_data):
    catalog = open_catalog(shared_data / "coco_subset", "val", "pose")
    assert catalog.keypoint_flip_pairs == (
        (1, 2),
        (3, 4),
        (5, 6),
        (7, 8),
        (9, 10),
        (11, 12),
        (13, 14),
        (15, 16),
    )


def test_the_ground_truth_document_is_the_file_verbatim(coco_tree):
    root = coco_tree([row(extra="kept"), row(2, iscrowd=1)])
    path = root / "annotations" / "instances_train.json"
    assert open_catalog(root).to_coco() == json.loads(path.read_text())


def test_a_subset_keeps_its_labels_and_its_part_of_the_document(coco_tree):
    catalog = open_catalog(
        coco_tree([row(1, 7, segmentation=[RING]), row(2, 3, iscrowd=1)]), task="segment"
    ).subset([1])
    assert catalog.image_ids == [7]
    assert catalog.targets(0).polygons[0][0].flatten().tolist() == RING
    assert len(catalog.targets(0).crowd) == 0
    assert [a["id"] for a in catalog.to_coco()["annotations"]] == [1]
    with pytest.raises(IndexError):
        catalog.subset([1])


def test_missing_sizes_are_read_from_the_pictures(coco_tree):
    assert open_catalog(coco_tree([row()], height=None, width=None)).sizes.tolist() == [[40, 100], [40, 100]]


def test_the_decoded_size_outranks_the_stated_one_with_a_warning(coco_tree):
    catalog = open_catalog(coco_tree([row(bbox=(50, 10, 40, 20))], height=100, width=40))
    with pytest.warns(UserWarning, match="stated picture sizes differ"):
        image, targets, used = catalog.sample(1)
    assert image.shape == (3, 40, 100)
    assert targets.boxes.tolist() == [[50, 10, 90, 30]]
    assert used == 1


def test_a_bad_picture_raises_or_is_replaced_by_the_next(coco_tree):
    root = coco_tree([row()])
    (root / "train" / "3.png").write_bytes(b"no picture")
    with pytest.raises(OSError, match=r"3\.png"):
        open_catalog(root).sample(0)
    with pytest.warns(UserWarning, match=r"skipped.*3\.png"):
        _, targets, used = open_catalog(root, bad_image="skip").sample(0)
    assert (used, len(targets)) == (1, 1)


def test_like_shares_the_label_space_and_refuses_strange_classes(coco_tree):
    train = open_catalog(coco_tree([row()]))
    val = open_catalog(
        coco_tree([row(category=90)], categories=[{"id": 90, "name": "late"}], split="val"), "val", like=train
    )
    assert val.class_names == train.class_names
    assert val.targets(1).labels.tolist() == [1]
    with pytest.raises(ValueError, match="91 'new'"):
        open_catalog(coco_tree([], categories=[{"id": 91, "name": "new"}], split="val"), "val", like=train)


def test_a_byte_order_mark_and_numbers_as_text_are_read(shared_data):
    for name in ("coco_json_bom", "coco_id_and_number_types_a", "coco_missing_fields_a"):
        catalog = open_catalog(shared_data / "messy" / name, "all")
        assert sum(len(catalog.targets(i)) for i in range(len(catalog))) == 6, name


def test_a_catalogue_survives_pickling(coco_tree):
    catalog = open_catalog(coco_tree([row()]))
    again = pickle.loads(pickle.dumps(catalog))
    assert again.file_names == catalog.file_names
    assert torch.equal(again.targets(1).boxes, catalog.targets(1).boxes)


@pytest.mark.parametrize("key", ["images", "annotations", "categories"])
def test_entries_that_are_not_objects_are_named_with_file_and_place(coco_tree, key):
    file = coco_tree([row()]) / "annotations" / "instances_train.json"
    document = json.loads(file.read_text())
    document[key].insert(1, "x")
    file.write_text(json.dumps(document))
    with pytest.raises(ValueError, match=rf"instances_train.json, {key}\[1\]: must be an object, got 'x'"):
        open_catalog(file.parent.parent)


@pytest.mark.parametrize("area", ["x", [1], float("nan")])
def test_an_area_that_is_no_number_is_named_with_its_annotation(coco_tree, area):
    with pytest.raises(ValueError, match=r"instances_train.json, annotation 1: area must"):
        open_catalog(coco_tree([row(area=area)]))


@pytest.mark.parametrize("image", [{"file_name": 3}, {"id": None}, {"height": "x"}, {"width": float("nan")}])
def test_a_defective_image_entry_is_named_with_its_file(coco_tree, image):
    with pytest.raises(ValueError, match=r"instances_train.json"):
        open_catalog(coco_tree([row()], **image))


@pytest.mark.parametrize("written", [7, "7", 7.0])
def test_what_is_trained_on_is_what_is_scored(coco_tree, written):
    nan = float("nan")
    annotations = [row(1, image=written, category="5"), row(2, bbox=(nan, 0, 5, 5)), row(3, image=99)]
    catalog = open_catalog(coco_tree(annotations))
    document = catalog.to_coco()
    assert [one["id"] for one in document["annotations"]] == [1]
    results = [{"image_id": 7, "category_id": 5, "bbox": [10, 10, 10, 20], "score": 0.9}]
    report = score_coco(document, results)
    assert (report["map"], report.ground_truths) == (pytest.approx(1), len(catalog.targets(1)))


def test_image_ids_that_differ_only_in_type_are_refused(coco_tree):
    file = coco_tree([row()]) / "annotations" / "instances_train.json"
    document = json.loads(file.read_text())
    document["images"][1]["id"] = "7"
    file.write_text(json.dumps(document))
    with pytest.raises(ValueError, match=r"image ids 7 and '7' cannot be told apart"):
        open_catalog(file.parent.parent)


@pytest.mark.parametrize("kind", [float, str])
def test_image_ids_of_another_type_are_scored_as_they_are_read(coco_tree, kind):
    file = coco_tree([row(1, image=7)]) / "annotations" / "instances_train.json"
    document = json.loads(file.read_text())
    for image in document["images"]:
        image["id"] = kind(image["id"])
    file.write_text(json.dumps(document))
    catalog = open_catalog(file.parent.parent)
    number = next(i for i in range(2) if len(catalog.targets(i)))
    box = {"category_id": 5, "bbox": [10, 10, 10, 20], "score": 0.9}
    report = score_coco(catalog.to_coco(), [box | {"image_id": catalog.image_ids[number]}])
    assert report["map"] == pytest.approx(1)


def test_annotations_in_any_order_are_grouped_by_image_and_keep_their_own_order(coco_tree):
    rows = [
        row(1, 7, 90, (1, 1, 9, 9), segmentation=[RING], keypoints=[4.0, 4.0, 2]),
        row(
            2,
            3,
            5,
            (2, 2, 9, 9),
            segmentation=[RING, [1.0, 1.0, 5.0, 1.0, 5.0, 9.0]],
            keypoints=[5.0, 5.0, 1],
        ),
        row(3, 7, 5, (3, 3, 9, 9), segmentation=[[0.0, 0.0, 7.0, 0.0, 7.0, 7.0]], keypoints=[6.0, 6.0, 2]),
        row(4, 3, 90, (0, 0, 5, 5), iscrowd=1),
        row(5, 7, 90, (0, 0, 6, 6), iscrowd=1),
        row(6, 3, 5, (4, 4, 9, 9), segmentation=[RING], keypoints=[7.0, 7.0, 2]),
    ]
    for task in ("segment", "pose"):
        mixed = open_catalog(coco_tree(rows), task=task)
        sorted_ = open_catalog(coco_tree(sorted(rows, key=lambda r: r["image_id"])), task=task)
        for index, corners in enumerate([[2, 4], [1, 3]]):
            ours, theirs = mixed.targets(index), sorted_.targets(index)
            assert ours.boxes[:, 0].tolist() == corners
            for name in ("boxes", "labels", "keypoints", "crowd", "area"):
                assert torch.equal(getattr(ours, name), getattr(theirs, name)), name
            rings = [[r.tolist() for r in one] for one in ours.polygons]
            assert rings == [[r.tolist() for r in one] for one in theirs.polygons]
