import json
from dataclasses import replace

import pytest

from lucid_data import check, open_catalog, stats, synthetic


def facts(found, code, file=None):
    return [f for f in found if f.code == code and (file is None or f.file.endswith(file))]


@pytest.mark.parametrize(
    ("name", "task"),
    [
        ("bccd", "detect"), ("coco_subset", "detect"), ("raccoon", "detect"), ("hit_uav_obb", "detect"),
        ("nuclei", "detect"), ("coco_subset", "segment"), ("nuclei", "segment"), ("coco_subset", "pose"),
        ("hit_uav_obb", "obb"), ("dota_sample/full", "obb"), ("dota_sample/tiles", "obb"),
        ("dota_sample/tiles", "detect"),
    ],
)  # fmt: skip
def test_sound_data_sets_have_no_error(shared_data, name, task):
    decode = task == "detect"
    assert [f for f in check(shared_data / name, task, decode=decode) if f.severity == "error"] == []


def test_labels_that_cannot_serve_the_task_are_an_error(shared_data):
    found = check(shared_data / "bccd", "segment", decode=False)
    assert {(f.code, f.severity) for f in found if f.severity == "error"} == {("cannot-open", "error")}


def test_an_oriented_task_wants_four_corners(coco_tree):
    root = coco_tree(
        [
            {
                "id": 1,
                "image_id": 7,
                "category_id": 5,
                "bbox": [1, 1, 9, 9],
                "segmentation": [[1, 1, 9, 1, 9, 9]],
            }
        ]
    )
    assert [f.where for f in facts(check(root, "obb"), "coco-quad")] == ["annotation 1"]


def test_annotation_files_without_a_split_name_are_all_checked(shared_data):
    found = check(shared_data / "messy" / "exif_landscape")
    assert "annotations_stored.json" in facts(found, "layout")[0].message
    assert facts(found, "image-orientation")
    assert any("orientation tag" in f.message for f in facts(found, "coco-size-differs"))


def test_a_folder_of_pictures_alone_is_examined(shared_data):
    found = check(shared_data / "messy" / "pillow_images_a")
    assert {f.file.rsplit("/", 1)[1] for f in facts(found, "image-unreadable")} >= {"broken.png"}
    assert facts(found, "image-mode")
    assert facts(found, "layout")[0].severity == "error"


def test_every_messy_case_has_a_finding(shared_data):
    cases = json.loads((shared_data / "messy" / "cases.json").read_text())
    sound = {"coco_odd_file_names_a"}
    for case in cases:
        task = "obb" if case["format"] == "dota" else "detect"
        found = check(shared_data / "messy" / case["id"], task)
        assert case["id"] in sound or found, case["id"]


def test_pose_without_a_mirror_permutation_is_told(yolo_tree):
    root = yolo_tree("0 .5 .5 .2 .2 .5 .5 2", keys="names: [a]\nkpt_shape: [1, 3]")
    assert facts(check(root, "pose"), "yolo-no-flip-index")


def test_every_format_of_drawn_scenes_is_clean(tmp_path):
    for write in (synthetic.write_coco, synthetic.write_yolo, synthetic.write_voc):
        root = write(tmp_path / write.__name__, splits={"train": 4, "val": 2}, size=64)
        assert {f.severity for f in check(root)} <= {"note"}, write.__name__


MESSY = [
    ("coco_duplicate_annotation_ids_a", "coco-annotation-id-repeated", 2, "share this id"),
    ("coco_sparse_category_ids_a", "coco-category-ids", 1, "90, 55, 17"),
    ("coco_sparse_category_ids_a", "coco-category-unused", 1, "'unused' has no annotation"),
    ("coco_degenerate_boxes_a", "coco-box-no-area", 3, "has no area"),
    ("coco_boxes_outside_image_a", "coco-box-outside", 1, "wholly outside"),
    ("coco_boxes_outside_image_a", "coco-box-over-border", 3, "over the border"),
    ("coco_bad_polygons_a", "coco-outline", 4, "unusable outline"),
    ("coco_bad_polygons_a", "coco-outline-empty", 1, "annotation 2"),
    ("coco_rle_masks_a", "coco-outline", 2, "run lengths"),
    ("coco_dangling_references_a", "image-missing", 1, "does not exist"),
    ("coco_dangling_references_a", "coco-unknown-image", 1, "12345"),
    ("coco_dangling_references_a", "coco-unknown-category", 1, "category 9"),
    ("coco_dangling_references_a", "coco-unlisted-image", 1, "no annotation file lists"),
    ("coco_dangling_references_a", "coco-background", 1, "image 77"),
    ("coco_width_height_swapped_a", "coco-size-differs", 2, "swapped"),
    ("coco_missing_fields_a", "coco-no-area", 1, "'area'"),
    ("coco_missing_fields_a", "coco-no-iscrowd", 1, "'iscrowd'"),
    ("coco_missing_fields_a", "coco-no-segmentation", 1, "'segmentation'"),
    ("coco_missing_fields_a", "coco-no-id", 1, "'id'"),
    ("coco_missing_fields_a", "coco-size-missing", 1, "height: 2"),
    ("coco_id_and_number_types_a", "coco-id-type", 1, "text"),
    ("coco_id_and_number_types_a", "coco-number-type", 3, "numbers as text"),
    ("coco_keypoints_inconsistent_a", "coco-num-keypoints", 1, "3 points are labelled"),
    ("coco_keypoints_inconsistent_a", "coco-keypoint-hidden", 1, "visibility 0"),
    ("coco_keypoints_inconsistent_a", "coco-keypoint-outside", 1, "outside the picture"),
    ("coco_keypoints_inconsistent_a", "coco-keypoint-length", 1, "8 numbers"),
    ("coco_keypoints_inconsistent_a", "coco-skeleton", 1, "[1, 9]"),
    ("coco_placeholder_category_zero", "coco-category-unused", 1, "placeholder"),
    ("coco_annotation_key_singular", "coco-missing-list", 1, "'annotations'"),
    ("coco_json_bom", "coco-bom", 1, "byte-order mark"),
    ("coco_nan_and_booleans", "coco-bbox-not-finite", 1, "not finite"),
    ("coco_nan_and_booleans", "coco-iscrowd-type", 1, "true or false"),
    ("image_kinds_a", "image-suffix", 2, "the suffix says"),
    ("image_broken_a", "image-unreadable", 6, ""),
    ("yolo_labels_a", "yolo-class", 3, "is not one of 0..1"),
    ("yolo_labels_a", "yolo-no-label-file", 1, "no_label_file.png"),
    ("voc_xml_a", "voc-xml", 1, "not well-formed"),
    ("voc_xml_a", "voc-name-case", 1, "Ball, ball"),
]


@pytest.mark.parametrize(("case", "code", "count", "words"), MESSY)
def test_a_messy_data_set_is_told_what_is_wrong_with_it(shared_data, case, code, count, words):
    found = facts(check(shared_data / "messy" / case), code)
    assert len(found) == count
    assert all(words in f.message for f in found)
    assert all(f.remedy and f.file for f in found)


def test_odd_but_sound_file_names_raise_no_alarm(shared_data):
    assert {f.severity for f in check(shared_data / "messy" / "coco_odd_file_names_a")} <= {"note"}


@pytest.mark.parametrize(
    ("file", "code"),
    [
        ("bom.txt", "yolo-bom"), ("class_out_of_range.txt", "yolo-class"), ("duplicates.txt", "yolo-row-repeated"),
        ("float_class.txt", "yolo-float-class"), ("four_columns.txt", "yolo-columns"), ("nan.txt", "yolo-not-finite"),
        ("negative.txt", "yolo-class"), ("negative_class.txt", "yolo-class"), ("out_of_range.txt", "yolo-range"),
        ("pixel_coordinates.txt", "yolo-range"), ("polygon_and_box_mixed.txt", "yolo-mixed-rows"),
        ("polygon_two_points.txt", "yolo-columns"), ("sixth_column_score.txt", "yolo-columns"),
        ("words.txt", "yolo-not-a-number"), ("zero_size.txt", "yolo-box-no-area"),
    ],
)  # fmt: skip
def test_each_defective_yolo_file_is_named_with_its_line(shared_data, file, code):
    found = facts(check(shared_data / "messy" / "yolo_labels_a"), code, file)
    assert found
    assert all(f.where.startswith("line ") for f in found if code not in ("yolo-bom", "yolo-mixed-rows"))


@pytest.mark.parametrize(
    "file",
    [
        "ok.txt",
        "blank_lines.txt",
        "crlf_and_tabs.txt",
        "scientific.txt",
        "no_final_newline_trailing_space.txt",
    ],
)
def test_sound_yolo_files_are_not_named(shared_data, file):
    assert not [f for f in check(shared_data / "messy" / "yolo_labels_a") if f.file.endswith(f"/{file}")]


@pytest.mark.parametrize(
    ("file", "code"),
    [
        ("corner_order_swapped.xml", "voc-corners-swapped"), ("float_corners.xml", "voc-fractions"),
        ("name_with_spaces.xml", "voc-name-spaces"), ("no_objects.xml", "voc-background"),
        ("outside.xml", "voc-box-over-border"), ("point_box.xml", "voc-box-no-area"),
        ("size_missing.xml", "voc-size-missing"), ("size_wrong.xml", "voc-size-differs"),
        ("size_zero.xml", "voc-size-missing"), ("wrong_file_name.xml", "voc-file-name"),
    ],
)  # fmt: skip
def test_each_defective_voc_file_is_named(shared_data, file, code):
    assert facts(check(shared_data / "messy" / "voc_xml_a"), code, file)


def test_findings_beyond_a_limit_are_counted(yolo_tree):
    found = facts(check(yolo_tree("9 .5 .5 .5 .5\n" * 60)), "yolo-class")
    assert len(found) == 26
    assert found[-1].message == "35 more of this kind"


def test_errors_come_first(shared_data):
    order = [f.severity for f in check(shared_data / "messy" / "coco_dangling_references_a")]
    assert order == sorted(order, key=("error", "warning", "note").index)


def test_without_decoding_only_headers_are_read(shared_data):
    found = facts(check(shared_data / "messy" / "image_broken_a", decode=False), "image-unreadable")
    assert not [f for f in found if "truncated_half" in f.file]


def test_a_place_that_is_no_data_set_is_one_finding(tmp_path):
    (found,) = check(tmp_path)
    assert (found.code, found.severity) == ("layout", "error")
    with pytest.raises(FileNotFoundError):
        check(tmp_path / "nowhere")


def test_nothing_is_written(coco_tree):
    root = coco_tree([])
    before = {p: p.read_bytes() for p in root.rglob("*") if p.is_file()}
    check(root)
    assert {p: p.read_bytes() for p in root.rglob("*") if p.is_file()} == before


def test_statistics_equal_the_published_counts(shared_data):
    counts = stats(open_catalog(shared_data / "bccd", "train"))
    # one of the 2382 published red cells is a point and cannot be read
    assert counts.per_class == {"Platelets": 209, "RBC": 2381, "WBC": 214}
    assert (counts.images, counts.instances, counts.background) == (205, 2804, 0)
    assert counts.small + counts.medium + counts.large == counts.instances
    assert counts.dropped == {"box under 1 px": 1}
    assert stats(open_catalog(shared_data / "coco_subset", "val")).crowd == 16
    assert counts.image_sizes == {"640 x 480": 205}
    assert counts.no_area == 1
    assert sum(counts.box_sides.values()) == counts.instances
    assert counts.no_outline is None
    table = str(counts)
    assert "RBC     2381 " + 40 * "#" in table
    assert "640 x 480" in table


def test_statistics_count_what_is_odd(coco_tree):
    box = {"image_id": 7, "category_id": 5, "area": 1, "iscrowd": 0}
    root = coco_tree(
        [
            {"id": 1, "bbox": [1, 1, 20, 20], **box}, {"id": 2, "bbox": [1, 1, 20, 20], **box},
            {"id": 3, "bbox": [200, 1, 20, 20], **box}, {"id": 4, "bbox": [1, 1, 0, 20], **box},
            {"id": 5, "bbox": [1, 1, 9, 9], "segmentation": [[1, 1, 9, 1, 9, 9]], **box},
        ]
    )  # fmt: skip
    counts = stats(open_catalog(root, outlines=True))
    assert (counts.repeated, counts.outside, counts.no_area, counts.no_outline) == (1, 1, 1, 2)
    assert counts.box_sides == {"8-16": 1, "16-32": 2}


def test_rows_that_the_table_leaves_out_are_counted(coco_tree):
    counts = replace(stats(open_catalog(coco_tree([]))), image_sizes={f"{n} x 9": 20 - n for n in range(15)})
    table = str(counts).splitlines()
    assert table[-2:] == [f"{'  11 x 9':>8} {9:>8} {'#' * 18}", f"  and 3 more with {8 + 7 + 6} together"]


def test_a_folder_that_fits_two_formats_is_said_to(coco_tree, yolo_tree):
    coco_tree([])
    (one,) = [finding for finding in check(yolo_tree("")) if finding.code == "layout-ambiguous"]
    assert one.severity == "warning"
    assert one.message == "the folder fits coco (train) and yolo (train)"


@pytest.mark.parametrize("task", ["segment", "obb"])
def test_labels_without_what_the_task_learns_are_an_error(tmp_path, task):
    root = synthetic.write_coco(tmp_path, splits={"train": 2}, size=64)
    assert [f.code for f in check(root, task) if f.severity == "error"] == ["cannot-open"]


@pytest.mark.parametrize(
    ("part", "key", "value"),
    [
        ("images", "height", 10**20),
        ("images", "id", 10**30),
        ("categories", "id", float("inf")),
        ("categories", "keypoints", 5),
        ("annotations", "keypoints", True),
        ("annotations", "bbox", [1e308, 0, 1e308, 5]),
        ("images", "file_name", "a\0b"),
    ],
)
@pytest.mark.parametrize("task", ["detect", "pose"])
def test_odd_values_end_in_findings(tmp_path, task, part, key, value):
    root = synthetic.write_coco(tmp_path, splits={"train": 2}, size=64, task=task)
    (file,) = (root / "annotations").iterdir()
    document = json.loads(file.read_text())
    document[part][0][key] = value
    file.write_text(json.dumps(document))
    assert check(root, task)


@pytest.mark.parametrize("write", [synthetic.write_coco, synthetic.write_yolo, synthetic.write_voc])
def test_an_observer_hears_of_every_picture_of_every_split(tmp_path, write):
    root = write(tmp_path / "set", splits={"train": 3, "val": 2}, size=64)
    heard = []
    found = check(root, observer=lambda done, known: heard.append((done, known)))
    assert found == check(root)
    assert [done for done, _ in heard] == [1, 2, 3, 4, 5]
    assert all(done <= known for done, known in heard)
    assert heard[-1] == (5, 5)


def test_an_observer_hears_of_pictures_without_labels(tmp_path, picture):
    picture(tmp_path / "photos" / "a.png")
    heard = []
    check(tmp_path, observer=lambda *counts: heard.append(counts))
    assert heard == [(1, 1)]
