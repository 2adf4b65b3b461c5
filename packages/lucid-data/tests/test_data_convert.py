import json

import numpy as np
import pytest
import torch
from PIL import Image

from lucid_data import check, convert, open_catalog, synthetic

DONUT = [
    [0, 0, 30, 0, 30, 30, 0, 30, 0, 0, 10, 10, 20, 10, 20, 20, 10, 20, 10, 10],
]
PARTS = [[2, 2, 12, 2, 12, 12, 2, 12], [40, 2, 50, 2, 50, 12, 40, 12]]


def row(number, **more):
    return {
        "id": number, "image_id": 7, "category_id": 5, "bbox": [2, 2, 48, 10], "area": 200.0, "iscrowd": 0,
    } | more  # fmt: skip


def same(a, b, box=1e-3):
    assert len(a) == len(b)
    for i in range(len(a)):
        x, y = a.targets(i), b.targets(i)
        assert [a.class_names[k] for k in x.labels] == [b.class_names[k] for k in y.labels]
        assert torch.allclose(x.boxes, y.boxes, atol=box)
        assert torch.allclose(x.rboxes, y.rboxes, atol=box)
        assert torch.allclose(x.keypoints, y.keypoints, atol=box)
        assert torch.equal(a.image(i), b.image(i))


def test_coco_to_coco_keeps_every_byte(coco_tree, tmp_path):
    crowd = row(3, iscrowd=1, segmentation={"size": [40, 100], "counts": [0, 40, 3960]})
    root = coco_tree([row(1, segmentation=PARTS), row(2, segmentation=DONUT, extra="kept"), crowd])
    report = convert(root, tmp_path / "out", "coco", "segment", splits=["train"])
    written = tmp_path / "out" / "annotations" / "instances_train.json"
    assert written.read_bytes() == (root / "annotations" / "instances_train.json").read_bytes()
    assert report.lost == {}
    assert open_catalog(tmp_path / "out", "train", "segment").targets(1).polygons[0][1].shape == (4, 2)


@pytest.mark.parametrize(
    ("task", "writer", "to"),
    [
        ("detect", "coco", "yolo"), ("segment", "coco", "yolo"), ("pose", "coco", "yolo"), ("obb", "coco", "yolo"),
        ("detect", "yolo", "coco"), ("segment", "yolo", "coco"), ("pose", "yolo", "coco"), ("obb", "yolo", "coco"),
        ("obb", "dota", "coco"), ("obb", "dota", "yolo"), ("obb", "coco", "dota"), ("obb", "yolo", "dota"),
        ("detect", "voc", "coco"), ("detect", "voc", "yolo"), ("detect", "voc", "dota"),
    ],
)  # fmt: skip
def test_a_round_of_formats_keeps_the_labels(tmp_path, task, writer, to):
    more = {} if writer in ("voc", "dota") else {"task": task}
    root = getattr(synthetic, f"write_{writer}")(
        tmp_path / "in", splits={"train": 3, "val": 2}, size=96, **more
    )
    report = convert(root, tmp_path / "out", to, task)
    assert report.images == {"train": 3, "val": 2}
    for split in ("train", "val"):
        a, b = open_catalog(root, split, task), open_catalog(tmp_path / "out", split, task)
        same(a, b)
        assert report.instances[split] == sum(len(a.targets(i)) for i in range(len(a)))
    assert not [f for f in check(tmp_path / "out", task) if f.severity == "error"]


def test_pose_keeps_names_and_mirror_through_yolo_and_back(tmp_path):
    root = synthetic.write_coco(tmp_path / "in", splits={"train": 3}, size=96, task="pose")
    convert(root, tmp_path / "yolo", "yolo", "pose")
    convert(tmp_path / "yolo", tmp_path / "back", "coco", "pose")
    first = open_catalog(root, "train", "pose")
    back = open_catalog(tmp_path / "back", "train", "pose")
    same(first, back)
    assert back.keypoint_names == first.keypoint_names
    assert back.keypoint_flip_pairs == first.keypoint_flip_pairs


def test_yolo_keeps_the_pixels_of_parts_and_holes_and_says_what_it_lost(coco_tree, tmp_path):
    from lucid_data.raster import fill_rings

    crowd = row(4, iscrowd=1)
    three = [*PARTS, [70, 20, 80, 20, 80, 30, 70, 30]]
    root = coco_tree([row(1, segmentation=three), row(2, segmentation=DONUT), crowd, row(3, note="x")])
    report = convert(root, tmp_path / "out", "yolo", "segment", splits=["train"])
    assert report.lost == {
        "instance without an outline": 1,
        "outline of several parts (joined by a slit)": 1,
        "crowd region": 1,
        "annotation field 'note'": 1,
        "original category id": 2,
    }
    a = open_catalog(root, "train", "segment").targets(1)
    b = open_catalog(tmp_path / "out", "train", "segment").targets(1)
    assert len(b) == 2
    for mine, theirs in zip(a.polygons, b.polygons, strict=False):
        assert np.array_equal(fill_rings(mine, 40, 100), fill_rings(theirs, 40, 100))


def test_what_is_not_part_of_the_task_is_reported(coco_tree, tmp_path):
    root = coco_tree([row(1, segmentation=PARTS), row(2, keypoints=[1, 1, 2])])
    lost = convert(root, tmp_path / "out", "yolo", splits=["train"]).lost
    assert lost["outline (not part of the task)"] == 1
    assert lost["keypoints (not part of the task)"] == 1


def test_difficult_flags_survive_in_dota_and_coco_and_are_lost_in_yolo(tmp_path):
    root = synthetic.write_dota(tmp_path / "in", splits={"train": 1}, size=96, shapes=2)
    path = root / "train" / "labelTxt" / "00001.txt"
    path.write_text(path.read_text().replace(" 0\n", " 1\n"))
    count = len(open_catalog(root, "train", "obb").targets(0))
    for to in ("coco", "dota"):
        assert convert(root, tmp_path / to, to, "obb").lost == {}
        assert open_catalog(tmp_path / to, "train", "obb").targets(0).difficult.all()
    assert convert(root, tmp_path / "yolo", "yolo", "obb").lost == {"difficult flag": count}


def test_a_turned_photograph_is_rewritten_where_the_formats_disagree_on_its_tag(tmp_path):
    pixels = np.zeros((40, 100, 3), np.uint8)
    pixels[5:15, 10:30] = 255
    (tmp_path / "in" / "images").mkdir(parents=True)
    picture = Image.fromarray(pixels)
    exif = picture.getexif()
    exif[0x0112] = 6
    picture.save(tmp_path / "in" / "images" / "a.png", exif=exif)
    document = {
        "images": [{"id": 1, "file_name": "a.png", "height": 40, "width": 100}],
        "annotations": [{"id": 1, "image_id": 1, "category_id": 1, "bbox": [10, 5, 20, 10], "area": 200}],
        "categories": [{"id": 1, "name": "bright"}],
    }
    (tmp_path / "in" / "annotations.json").write_text(json.dumps(document))
    report = convert(tmp_path / "in", tmp_path / "out", "yolo")
    assert report.lost["picture rewritten without its orientation tag"] == 1
    out = open_catalog(tmp_path / "out")
    assert out.targets(0).boxes.round().tolist() == [[10, 5, 30, 15]]
    assert (out.image(0)[:, 5:15, 10:30] == 255).all()


def test_pictures_whose_label_files_would_collide_get_names_of_their_own(tmp_path, picture):
    for name in ("a.png", "a.bmp"):
        picture(tmp_path / "in" / "images" / name)
    document = {
        "images": [
            {"id": i, "file_name": n, "height": 40, "width": 100} for i, n in enumerate(("a.png", "a.bmp"))
        ],
        "annotations": [{"id": 1, "image_id": 1, "category_id": 1, "bbox": [10, 5, 20, 10], "area": 200}],
        "categories": [{"id": 1, "name": "x"}],
    }
    (tmp_path / "in" / "annotations.json").write_text(json.dumps(document))
    convert(tmp_path / "in", tmp_path / "out", "yolo", pictures="link")
    out = open_catalog(tmp_path / "out")
    assert sorted(len(out.targets(i)) for i in range(2)) == [0, 1]


@pytest.mark.parametrize(
    ("name", "task", "to"),
    [
        ("bccd", "detect", "coco"), ("raccoon", "detect", "yolo"), ("nuclei", "segment", "yolo"),
        ("coco_subset", "segment", "yolo"), ("coco_subset", "pose", "yolo"), ("hit_uav_obb", "obb", "yolo"),
        ("dota_sample/full", "obb", "coco"), ("dota_sample/tiles", "obb", "yolo"), ("coco_subset", "detect", "dota"),
    ],
)  # fmt: skip
def test_real_data_sets_convert(shared_data, tmp_path, name, task, to):
    layout = "dota" if name == "hit_uav_obb" else None
    report = convert(shared_data / name, tmp_path / "out", to, task, layout=layout, pictures="link")
    assert sum(report.images.values()) > 0
    for split, images in report.images.items():
        assert len(open_catalog(tmp_path / "out", split, task)) == images


def test_words_and_targets_are_checked(coco_tree, tmp_path):
    root = coco_tree([])
    with pytest.raises(ValueError, match="coco, yolo, dota"):
        convert(root, tmp_path / "out", "voc")
    with pytest.raises(ValueError, match="copy, link, skip"):
        convert(root, tmp_path / "out", "yolo", pictures="move")
    with pytest.raises(ValueError, match="holds boxes only"):
        convert(root, tmp_path / "out", "dota", "pose")
    with pytest.raises(FileExistsError):
        convert(root, root, "yolo")
