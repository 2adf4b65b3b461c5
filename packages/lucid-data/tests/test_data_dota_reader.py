import pytest
import torch

from lucid_data import check, open_catalog, synthetic

SHIP = "1 1 5 1 5 3 1 3 ship 0"


@pytest.fixture
def dota_tree(tmp_path, picture):
    def write(text, *, split="train", labels="labelTxt"):
        picture(tmp_path / split / "images" / "p.png")
        if text is not None:
            path = tmp_path / split / labels / "p.txt"
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_text(text)
        return tmp_path

    return write


def read(root, **more):
    return open_catalog(root, more.pop("split", "train"), "obb", **more).targets(0)


def test_a_line_is_a_fitted_rectangle_bounded_by_its_corners(dota_tree):
    targets = read(dota_tree(SHIP))
    assert targets.boxes.tolist() == [[1, 1, 5, 3]]
    assert targets.rboxes.tolist() == [[3, 2, 4, 2, 0]]
    assert targets.labels.tolist() == [1]
    assert targets.area.tolist() == [8]


@pytest.mark.parametrize(
    "header",
    [
        "",
        "imagesource:GoogleEarth\ngsd:0.1\n",
        "gsd:null\n",
        "'acquisition dates: 2017-01-01'\n",
        "\ufeffgsd:1\n",
    ],
)
def test_headers_are_not_objects(dota_tree, header):
    assert len(read(dota_tree(header + SHIP))) == 1


def test_nine_columns_are_easy_and_any_other_number_is_difficult(dota_tree):
    targets = read(dota_tree(f"{SHIP[:-2]}\n{SHIP[:-1]}1\n{SHIP[:-1]}2\n{SHIP}"))
    assert targets.difficult.tolist() == [False, True, True, False]


def test_names_have_many_spellings(dota_tree):
    rows = [SHIP.replace("ship", n) for n in ("storage-tank", "Large_Vehicle", "soccer ball field")]
    assert read(dota_tree("\n".join(rows))).labels.tolist() == [2, 9, 13]


def test_the_class_list_is_the_first_that_holds_the_names(dota_tree):
    crane = SHIP.replace("ship", "container-crane")
    root = dota_tree(f"{SHIP}\n{crane}")
    assert open_catalog(root, task="obb").num_classes == 16
    assert open_catalog(root, task="obb", dota_version="2.0").num_classes == 18
    with pytest.raises(ValueError, match=r"p\.txt: class 'container-crane' belongs to DOTA-v1\.5"):
        open_catalog(root, task="obb", dota_version="1.0")
    with pytest.raises(ValueError, match=r"1\.0, 1\.5, 2\.0"):
        open_catalog(root, task="obb", dota_version="3")


def test_own_classes_are_shared_by_all_splits(dota_tree):
    dota_tree(SHIP.replace("ship", "Truck"))
    root = dota_tree(SHIP.replace("ship", "Car"), split="val")
    assert open_catalog(root, task="obb").class_names == ("Car", "Truck")
    assert open_catalog(root, "val", "obb").class_names == ("Car", "Truck")


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("1 1 5 1 5 3 1 ship 0", r"p\.txt:1: 7 numbers before 'ship 0' instead of 8"),
        ("1, 1, 5, 1, 5, 3, 1, 3, ship, 0", "commas"),
        ("1 1 5 1 5 3 1 nan ship 0", "not finite"),
        (f"{SHIP}\n1 1 5 1 5 3 1 3 ship x y", r"p\.txt:2: difficulty 'y'"),
        ("1 1 5 1", "4 columns"),
        (f"{SHIP}\n{SHIP.replace('ship', 'spaceship')}", "unknown class 'spaceship'"),
    ],
)
def test_a_defective_line_is_named_with_file_and_line(dota_tree, text, words):
    with pytest.raises(ValueError, match=words):
        read(dota_tree(text))


def test_repeats_and_objects_without_area_are_left_out_and_counted(dota_tree):
    catalog = open_catalog(dota_tree(f"{SHIP}\n{SHIP}\n1 1 1 1 1 1 1 1 ship 0"), task="obb")
    assert len(catalog.targets(0)) == 1
    assert catalog.dropped == {"repeated line": 1, "object without area": 1}


def test_corners_may_leave_the_picture(dota_tree):
    assert read(dota_tree("-4 1 5 1 5 3 -4 3 ship 0")).boxes.tolist() == [[-4, 1, 5, 3]]


def test_a_missing_label_file_is_background_unless_strict(dota_tree, picture):
    root = dota_tree(SHIP)
    picture(root / "train" / "images" / "q.png")
    catalog = open_catalog(root, task="obb")
    assert len(catalog.targets(1)) == 0
    assert catalog.dropped == {"picture without a label file (background)": 1}
    with pytest.raises(FileNotFoundError, match=r"q\.txt"):
        open_catalog(root, task="obb", strict_labels=True)


def test_label_files_without_a_picture_are_counted(dota_tree):
    root = dota_tree(SHIP)
    (root / "train" / "labelTxt" / "gone.txt").write_text(SHIP)
    assert open_catalog(root, task="obb").dropped == {"label file without a picture": 1}


def test_upright_detection_reads_the_envelopes_cut_to_the_picture(dota_tree):
    targets = open_catalog(dota_tree("-4 1 5 1 5 3 -4 3 ship 0")).targets(0)
    assert targets.boxes.tolist() == [[0, 1, 5, 3]]
    assert targets.rboxes.shape == (0, 5)


def test_real_dota_trees_open(shared_data):
    assert len(open_catalog(shared_data / "dota_sample" / "full", "all", "obb").targets(0)) == 536
    tiles = open_catalog(shared_data / "dota_sample" / "tiles", "all", "obb")
    assert sum(len(tiles.targets(i)) for i in range(len(tiles))) == 130
    uav = open_catalog(shared_data / "hit_uav_obb", "train", "obb", layout="dota")
    assert len(uav) == 150
    assert sum(len(uav.targets(i)) for i in range(150)) == 1287
    with pytest.raises(ValueError, match="fits coco and dota; choose one with --layout"):
        open_catalog(shared_data / "hit_uav_obb", "train", "obb")


@pytest.mark.parametrize("task", ["detect", "segment", "pose", "obb"])
def test_one_scene_reads_the_same_from_every_format(tmp_path, task):
    writers = {
        "detect": ("write_coco", "write_yolo", "write_voc"),
        "segment": ("write_coco", "write_yolo"),
        "pose": ("write_coco", "write_yolo"),
        "obb": ("write_coco", "write_yolo", "write_dota"),
    }[task]
    found = []
    for name in writers:
        more = {} if name in ("write_voc", "write_dota") else {"task": task}
        root = getattr(synthetic, name)(tmp_path / name, splits={"train": 4}, size=96, seed=2, **more)
        found.append(open_catalog(root, "train", task))
    first = found[0]
    for other in found[1:]:
        assert len(other) == len(first) == 4
        for i in range(4):
            a, b = first.targets(i), other.targets(i)
            names = [first.class_names[k] for k in a.labels.tolist()]
            assert names == [other.class_names[k] for k in b.labels.tolist()]
            assert torch.allclose(a.boxes, b.boxes, atol=1e-3)
            assert torch.allclose(a.rboxes, b.rboxes, atol=1e-3)
            assert torch.allclose(a.keypoints, b.keypoints, atol=1e-3)
            for mine, theirs in zip(a.polygons, b.polygons, strict=True):
                # a second part comes back through a slit: the same points, some of them twice
                points = torch.cat(theirs)
                assert all((points - p).abs().amax(1).min() < 1e-3 for ring in mine for p in ring)


def test_what_is_told_once_for_a_tree_names_the_folder_of_all_its_splits(dota_tree):
    root = dota_tree(SHIP)
    dota_tree(SHIP, split="val")
    (one,) = [finding for finding in check(root, "obb") if finding.code == "dota-no-header"]
    assert one.file == str(root)
    assert one.message == "files that begin without imagesource and gsd: 2, such as p.txt, p.txt"


DOTA_CASES = [
    ("commas.txt", "dota-commas", "error"), ("seven_numbers.txt", "dota-columns", "error"),
    ("unknown_class.txt", "dota-class", "error"), ("unknown_class.txt", "dota-class-version", "warning"),
    ("duplicates.txt", "dota-object-repeated", "warning"), ("outside.txt", "dota-box-outside", "warning"),
    ("outside.txt", "dota-box-over-border", "warning"), ("self_crossing.txt", "dota-self-crossing", "warning"),
    ("zero_area.txt", "dota-box-no-area", "warning"), ("crlf.txt", "dota-line-ends", "note"),
    ("empty.txt", "dota-background", "note"), ("header_only.txt", "dota-background", "note"),
    ("gsd_null.txt", "dota-gsd", "note"), ("no_header.txt", "dota-no-header", "note"),
    ("counter_clockwise.txt", "dota-counter-clockwise", "note"), ("difficulty_two.txt", "dota-difficulty", "note"),
    ("no_difficulty.txt", "dota-no-difficulty", "note"), ("not_rectangular.txt", "dota-not-rectangular", "note"),
    ("square_any_angle.txt", "dota-square", "note"),
]  # fmt: skip


@pytest.fixture(scope="module")
def peculiar(shared_data):
    return check(shared_data / "messy" / "dota_labels_a", "obb")


@pytest.mark.parametrize(("file", "code", "severity"), DOTA_CASES)
def test_each_peculiar_dota_file_is_named(peculiar, file, code, severity):
    found = [f for f in peculiar if f.code == code]
    assert {f.severity for f in found} == {severity}
    assert any(f.file.endswith(f"/{file}") or file in f.message for f in found)


def test_the_sound_dota_file_is_not_named(shared_data):
    assert not [
        f for f in check(shared_data / "messy" / "dota_labels_a", "obb") if f.file.endswith("/ok.txt")
    ]


def test_labels_of_another_size_are_told(shared_data):
    found = check(shared_data / "messy" / "dota_label_not_fitting_image", "obb")
    codes = {f.code: f for f in found}
    assert "3 of 4" in codes["dota-does-not-fit"].message
    assert codes["dota-orphan-label"].file.endswith("1024.txt")
    assert "dota-self-crossing" in codes


def test_the_smallest_rectangle_around_four_points_can_be_asked_for(tmp_path, picture):
    picture(tmp_path / "train" / "images" / "a.png", 60, 60)
    (tmp_path / "train" / "labelTxt").mkdir()
    (tmp_path / "train" / "labelTxt" / "a.txt").write_text("0 0 10 0 8 4 0 4 ship 0\n")
    mean, least = (
        open_catalog(tmp_path, "train", "obb", rbox_fit=fit).targets(0).rboxes[0].tolist()
        for fit in ("mean", "minarea")
    )
    # a right-angled trapezium: 10 x 4 encloses it
    assert least == pytest.approx([5, 2, 10, 4, 0], abs=1e-5)
    assert mean[0] == pytest.approx(4.5)
    with pytest.raises(ValueError, match="rbox_fit must be one of mean, minarea"):
        open_catalog(tmp_path, "train", "obb", rbox_fit="least")
