import pytest

from lucid_data import open_catalog


def test_a_detect_row_is_denormalised(yolo_tree):
    targets = open_catalog(yolo_tree("1 0.5 0.5 0.5 0.25\n")).targets(0)
    assert targets.boxes.tolist() == [[25, 15, 75, 25]]
    assert targets.labels.tolist() == [1]


def test_names_may_be_a_mapping_and_paths_may_climb_out(yolo_tree):
    root = yolo_tree("0 0.5 0.5 0.5 0.5", keys="names: {0: x, 1: y}\nnc: 2")
    text = (root / "data.yaml").read_text().replace("images/train", "../images/train")
    (root / "data.yaml").write_text(text)
    assert open_catalog(root).class_names == ("x", "y")


def test_a_split_may_be_a_list_file_or_a_list_of_folders(yolo_tree, picture):
    root = yolo_tree("0 0.5 0.5 0.5 0.5")
    picture(root / "images" / "more" / "q.png")
    (root / "list.txt").write_text("./images/train/p.png\n")
    (root / "data.yaml").write_text("train: list.txt\nval: [images/train, images/more]\nnames: [a, b]\n")
    assert len(open_catalog(root).targets(0)) == 1
    assert [n.split("/")[-1] for n in open_catalog(root, "val").file_names] == ["p.png", "q.png"]


def test_a_missing_or_empty_label_file_is_background(yolo_tree):
    assert len(open_catalog(yolo_tree("")).targets(0)) == 0
    (yolo_tree("") / "labels" / "train" / "p.txt").unlink()
    catalog = open_catalog(yolo_tree(None))
    assert len(catalog.targets(0)) == 0
    assert catalog.dropped == {"picture without a label file (background)": 1}


def test_label_files_without_a_picture_are_counted_where_a_split_is_whole_folders(yolo_tree):
    root = yolo_tree("0 0.5 0.5 0.5 0.5")
    (root / "labels" / "train" / "gone.txt").write_text("0 0.5 0.5 0.5 0.5")
    (root / "labels" / "train" / "classes.txt").write_text("a\nb\n")
    assert open_catalog(root).dropped == {"label file without a picture": 1}
    # a list may leave out pictures, whose labels are no orphans
    (root / "list.txt").write_text("./images/train/p.png\n")
    (root / "data.yaml").write_text("train: list.txt\nnames: [a, b]\n")
    assert open_catalog(root).dropped == {}


def test_repeated_rows_are_removed_and_counted(yolo_tree):
    catalog = open_catalog(yolo_tree("0 .5 .5 .2 .5\n0 .5 .5 .2 .5\n1 .5 .5 .2 .5\n"))
    assert len(catalog.targets(0)) == 2
    assert catalog.dropped == {"repeated row": 1}


def test_a_segment_row_among_boxes_counts_as_its_envelope(yolo_tree):
    targets = open_catalog(yolo_tree("0 .1 .1 .5 .1 .5 .5 .1 .3\n")).targets(0)
    assert targets.boxes[0].tolist() == pytest.approx([10, 4, 50, 20])


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("0 .5 .5 .5", "4 columns"),
        ("0 .5 .5 .5 .5 .9", "6 columns"),
        ("0 .5 .5 1.2 .5", "1.2 is outside"),
        ("7 .5 .5 .5 .5", "class 7 is not one of 0..1"),
        ("-1 .5 .5 .5 .5", "class -1"),
        ("0.5 .5 .5 .5 .5", "class 0.5"),
        ("cat .5 .5 .5 .5", "'cat' is not a number"),
        ("0 nan .5 .5 .5", "not finite"),
    ],
)
def test_a_defective_row_is_named_with_file_and_line(yolo_tree, text, words):
    with pytest.raises(ValueError, match=rf"p\.txt:2: .*{words}"):
        open_catalog(yolo_tree(f"0 .5 .5 .5 .5\n{text}\n"))


def test_rounding_over_the_border_is_clamped_and_float_classes_are_read(yolo_tree):
    targets = open_catalog(yolo_tree("1.0 1.0005 .5 .5 .5\n")).targets(0)
    assert targets.labels.tolist() == [1]
    assert targets.boxes[0].tolist() == pytest.approx([75, 10, 100, 30])


@pytest.mark.parametrize(
    ("keys", "words"),
    [
        ("nc: 2", "names"),
        ("names: [a]\nnc: 2", "nc is 2 but names has 1"),
        ("names: {0: a, 2: b}", "keys of names"),
        ("names: [a", "not YAML"),
        ("names: [a]\nkpt_shape: [3]", "kpt_shape"),
        ("names: [a]\nkpt_shape: [3, 2]\nflip_idx: [1, 2, 0]", "flip_idx"),
    ],
)
def test_a_defective_dataset_file_is_named_with_its_key(yolo_tree, keys, words):
    with pytest.raises(ValueError, match=rf"data\.yaml.*{words}"):
        open_catalog(yolo_tree("", keys=keys))


def test_a_split_that_leads_nowhere_lists_every_place_tried(yolo_tree):
    root = yolo_tree("")
    (root / "data.yaml").write_text("train: ../gone/images\nnames: [a]\n")
    with pytest.raises(FileNotFoundError, match=r"gone/images.*gone/images"):
        open_catalog(root)


def test_a_segment_row_is_one_ring(yolo_tree):
    targets = open_catalog(yolo_tree("0 .1 .1 .5 .1 .5 .5\n"), task="segment").targets(0)
    assert targets.polygons[0][0].tolist() == [pytest.approx(p) for p in ([10, 4], [50, 4], [50, 20])]


def test_an_obb_row_is_fitted_and_bounded(yolo_tree, picture):
    root = yolo_tree("0 .1 .1 .5 .1 .5 .3 .1 .3\n")
    picture(root / "images" / "train" / "p.png", 10, 10)
    targets = open_catalog(root, task="obb").targets(0)
    assert targets.boxes.tolist() == [pytest.approx([1, 1, 5, 3])]
    assert targets.rboxes.tolist() == [pytest.approx([3, 2, 4, 2, 0])]
    (root / "labels" / "train" / "p.txt").write_text("0 .1 .1 .5 .1 .5 .3 .1 .3 1\n")
    with pytest.raises(ValueError, match="10 columns"):
        open_catalog(root, task="obb")


def test_pose_points_of_two_numbers_are_visible_unless_zero(yolo_tree):
    root = yolo_tree("0 .5 .5 .5 .5 .1 .5 0 0\n", keys="names: [a]\nkpt_shape: [2, 2]\nflip_idx: [1, 0]")
    catalog = open_catalog(root, task="pose")
    assert catalog.targets(0).keypoints.tolist() == [[pytest.approx([10, 20, 2]), [0, 0, 0]]]
    assert catalog.keypoint_flip_pairs == ((0, 1),)


def test_pose_without_a_keypoint_shape_is_an_error_not_empty_supervision(yolo_tree):
    with pytest.raises(ValueError, match="kpt_shape"):
        open_catalog(yolo_tree("0 .5 .5 .5 .5"), task="pose")


def test_a_bad_picture_raises_at_load_or_is_left_out(yolo_tree, picture):
    root = yolo_tree("0 .5 .5 .5 .5")
    (root / "images" / "train" / "broken.png").write_bytes(b"no picture")
    with pytest.raises(OSError, match=r"broken\.png"):
        open_catalog(root)
    catalog = open_catalog(root, bad_image="skip")
    assert len(catalog) == 1
    assert catalog.dropped == {"unreadable image": 1}


def test_a_ground_truth_document_is_made_from_the_labels(yolo_tree):
    document = open_catalog(yolo_tree("1 .5 .5 .5 .25\n")).to_coco()
    (annotation,) = document["annotations"]
    assert (annotation["id"], annotation["image_id"], annotation["category_id"]) == (1, 1, 1)
    assert annotation["bbox"] == [25, 15, 50, 10]
    assert annotation["area"] == 500
    assert document["categories"] == [{"id": 0, "name": "a"}, {"id": 1, "name": "b"}]


@pytest.mark.parametrize(
    ("keys", "words"),
    [
        ("kpt_shape: [x, 3]", r"kpt_shape must be \[points, 2\] or \[points, 3\], got \['x', 3\]"),
        ("kpt_shape: 3", "kpt_shape must be"),
        ("kpt_shape: [2.5, 3]", "kpt_shape must be"),
        ("kpt_shape: [2, 3]\nflip_idx: [a, 1]", r"flip_idx must swap the 2 points in pairs, got \['a', 1\]"),
        ("kpt_shape: [2, 3]\nflip_idx: 1", "flip_idx must swap"),
        ("kpt_shape: [2, 3]\nflip_idx: [true, false]", "flip_idx must swap"),
    ],
)
def test_malformed_keypoint_keys_are_named_with_the_file(yolo_tree, keys, words):
    with pytest.raises(ValueError, match=f"data.yaml: {words}"):
        open_catalog(yolo_tree("", keys=f"names: [a, b]\n{keys}"))


def test_a_label_file_that_is_not_text_is_named(yolo_tree):
    root = yolo_tree("")
    (root / "labels" / "train" / "p.txt").write_bytes(b"\x89PNG\r\n\x1a\n\xff\xfe")
    with pytest.raises(ValueError, match=r"p.txt is not UTF-8 text"):
        open_catalog(root)


def test_a_split_list_that_is_not_text_is_named(yolo_tree):
    root = yolo_tree("")
    (root / "list.txt").write_bytes(b"\xff\xfe\x00")
    (root / "data.yaml").write_text("train: list.txt\nnames: [a, b]\n")
    with pytest.raises(ValueError, match=r"list.txt is not UTF-8 text"):
        open_catalog(root)
