import json

import pytest

from lucid_data import available_splits, open_catalog


@pytest.mark.parametrize(
    ("name", "splits", "layout", "images", "classes"),
    [
        ("bccd", {"train", "val", "trainval", "test"}, "voc", 205, ("Platelets", "RBC", "WBC")),
        ("coco_subset", {"train", "val"}, "coco", 266, None),
        ("raccoon", {"train", "val", "all"}, "coco", 160, ("raccoon",)),
        (
            "hit_uav_obb",
            {"train", "val", "test"},
            "coco",
            150,
            ("Person", "Car", "Bicycle", "OtherVehicle", "DontCare"),
        ),
        ("nuclei", {"train", "val"}, "coco", 120, ("nucleus",)),
    ],
)
def test_real_data_sets_open_without_being_told_which_they_are(
    shared_data, name, splits, layout, images, classes
):
    root = shared_data / name
    assert set(available_splits(root)) == splits
    catalog = open_catalog(root)
    assert (catalog.layout, len(catalog)) == (layout, images)
    assert classes is None or catalog.class_names == classes
    height, width = catalog.sizes[0].tolist()
    assert catalog.image(0).shape == (3, height, width)


def test_the_same_boxes_come_out_of_voc_and_its_coco_conversion(shared_data):
    voc = open_catalog(shared_data / "bccd", "val")
    coco = open_catalog(shared_data / "bccd", "val", layout="coco")
    by_name = {name: i for i, name in enumerate(coco.file_names)}
    for i, name in enumerate(voc.file_names):
        ours, theirs = voc.targets(i), coco.targets(by_name[name])
        assert sorted(ours.boxes.tolist()) == sorted(theirs.boxes.tolist())
        names = sorted(voc.class_names[j] for j in ours.labels.tolist())
        assert names == sorted(coco.class_names[j] for j in theirs.labels.tolist())


def test_a_roboflow_export_opens_and_valid_serves_for_val(tmp_path, picture):
    for split in ("train", "valid"):
        picture(tmp_path / split / "a.png")
        document = {
            "images": [{"id": 0, "file_name": "a.png", "height": 40, "width": 100}],
            "annotations": [{"id": 0, "image_id": 0, "category_id": 1, "bbox": [1, 2, 3, 4]}],
            "categories": [{"id": 0, "name": "things"}, {"id": 1, "name": "cup"}],
        }
        (tmp_path / split / "_annotations.coco.json").write_text(json.dumps(document))
    catalog = open_catalog(tmp_path, "val")
    assert catalog.class_names == ("things", "cup")
    assert catalog.targets(0).boxes.tolist() == [[1, 2, 4, 6]]


def test_a_file_is_accepted_in_place_of_a_folder(coco_tree, yolo_tree):
    root = coco_tree([])
    assert len(open_catalog(root / "annotations" / "instances_train.json")) == 2
    assert len(open_catalog(yolo_tree("") / "data.yaml")) == 1


def test_a_tree_that_fits_two_formats_is_refused_until_told(coco_tree, yolo_tree):
    coco_tree([])
    root = yolo_tree("")
    with pytest.raises(ValueError, match="fits coco and yolo; choose one with --layout"):
        open_catalog(root)
    assert open_catalog(root, layout="yolo").layout == "yolo"
    assert open_catalog(root, layout="coco").layout == "coco"


def test_a_split_that_is_not_there_lists_places_and_splits(coco_tree):
    root = coco_tree([])
    with pytest.raises(FileNotFoundError, match=r"choose 'train' with --split.*instances_val.json"):
        open_catalog(root, "val")


def test_a_path_that_does_not_exist_is_named(tmp_path):
    with pytest.raises(FileNotFoundError, match="nowhere"):
        open_catalog(tmp_path / "nowhere")


def test_unknown_words_are_refused_with_the_known_ones(coco_tree):
    root = coco_tree([])
    with pytest.raises(ValueError, match="detect, segment, pose, obb"):
        open_catalog(root, task="keypoints")
    with pytest.raises(ValueError, match="coco, yolo, voc, dota"):
        open_catalog(root, layout="xml")
    with pytest.raises(ValueError, match="bad_image"):
        open_catalog(root, bad_image="ignore")
    with pytest.raises(ValueError, match="min_side"):
        open_catalog(root, min_side=0)


@pytest.mark.parametrize("missing", ["JPEGImages", "Annotations"])
def test_a_voc_tree_without_one_of_its_folders_says_which(tmp_path, picture, missing):
    picture(tmp_path / "JPEGImages" / "a.jpg")
    (tmp_path / "Annotations").mkdir()
    (tmp_path / "Annotations" / "a.xml").write_text("<annotation/>")
    (tmp_path / "ImageSets" / "Main").mkdir(parents=True)
    (tmp_path / "ImageSets" / "Main" / "train.txt").write_text("a\n")
    (tmp_path / missing).rename(tmp_path / "elsewhere")
    with pytest.raises(
        FileNotFoundError, match=f"train.txt names a Pascal VOC split, .* no folder {missing}$"
    ):
        open_catalog(tmp_path)
    assert "train" not in available_splits(tmp_path)


def test_pictures_and_labels_without_a_dataset_file_are_told_to_write_one(tmp_path):
    for folder in ("images/train", "labels/train"):
        (tmp_path / folder).mkdir(parents=True)
    with pytest.raises(
        FileNotFoundError, match=r"images and labels, but no data\.yaml that names the classes; write"
    ):
        open_catalog(tmp_path, "train")


def test_a_folder_without_labels_is_told_in_a_few_words(tmp_path):
    with pytest.raises(
        FileNotFoundError, match=r"no labelled data set of a known format in .* other places$"
    ) as said:
        open_catalog(tmp_path, "train")
    assert len(str(said.value)) < 300
