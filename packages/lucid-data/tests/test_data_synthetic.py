import hashlib

import numpy as np
import pytest
import torch
from shapely.geometry import Point, Polygon

from lucid_data import open_catalog, synthetic
from lucid_data.raster import fill_ring, fill_rings


def test_scenes_are_the_same_on_every_machine():
    digest = hashlib.sha256()
    for task in ("detect", "segment", "pose", "obb"):
        image, targets = synthetic.scene(11, 64, 4, task)
        digest.update(np.round(targets.boxes.double().numpy(), 2).tobytes())
        digest.update(targets.labels.numpy().tobytes())
    assert digest.hexdigest()[:16] == "0c7c16650f4cb1ea"
    # pixels: the libraries' rounding may differ by a code, the picture does not
    assert float(image.float().mean()) == pytest.approx(118.55, abs=0.05)


def test_the_same_arguments_give_the_same_scene_and_another_seed_another():
    first, second, other = (synthetic.scene(seed, 64)[0] for seed in (1, 1, 2))
    assert torch.equal(first, second)
    assert not torch.equal(first, other)


def test_boxes_bound_what_is_drawn():
    # against the same scene with one shape fewer, the changed pixels are those of the last shape
    for seed in range(6):
        image, targets = synthetic.scene(seed, 128, 1)
        empty = synthetic.scene(seed, 128, 0)[0]
        assert len(targets) == 1
        assert image.shape == empty.shape
        x1, y1, x2, y2 = targets.boxes[0].tolist()
        assert 0.2 * (x2 - x1) * (y2 - y1) < targets.area[0] <= (x2 - x1) * (y2 - y1) * 1.01


def test_areas_are_those_of_the_outline():
    for seed in range(8):
        _, targets = synthetic.scene(seed, 160, 4, "segment")
        for rings, area in zip(targets.polygons, targets.area.tolist(), strict=True):
            exact = sum(Polygon(ring.numpy()).area for ring in rings)
            assert area == pytest.approx(exact, rel=0.06, abs=2)


def test_pairs_have_two_parts_and_stars_are_concave():
    found = {}
    for seed in range(30):
        _, targets = synthetic.scene(seed, 128, 6, "segment")
        for label, rings in zip(targets.labels.tolist(), targets.polygons, strict=True):
            found[synthetic.class_names("segment")[label]] = rings
    assert len(found["pair"]) == 2
    star = Polygon(found["star"][0].numpy())
    assert star.area < 0.8 * star.convex_hull.area


def test_later_shapes_hide_points_of_earlier_ones():
    seen = set()
    for seed in range(40):
        _, targets = synthetic.scene(seed, 128, 6, "pose", overlap=0.6, truncate=True)
        seen |= set(targets.keypoints[..., 2].flatten().tolist())
    assert seen == {0.0, 1.0, 2.0}


def test_options_make_background_tiny_and_truncated_shapes():
    assert len(synthetic.scene(0, 64, 0)[1]) == 0
    _, tiny = synthetic.scene(0, 96, 3, tiny=3)
    assert (tiny.boxes[:, 2:] - tiny.boxes[:, :2]).max() < 4
    touching = 0
    for seed in range(20):
        boxes = synthetic.scene(seed, 96, 4, truncate=True)[1].boxes
        assert boxes.min() >= 0
        assert boxes.max() <= 96
        touching += int(((boxes[:, :2] == 0).any(1) | (boxes[:, 2:] == 96).any(1)).sum())
    assert touching > 5
    with pytest.raises(ValueError, match="16 px"):
        synthetic.scene(0, 8)


def test_scenes_hold_every_class_at_many_sizes():
    labels, sides = [], []
    for seed in range(60):
        targets = synthetic.scene(seed, 128, 5)[1]
        labels += targets.labels.tolist()
        sides += (targets.boxes[:, 2:] - targets.boxes[:, :2]).amax(1).tolist()
    assert set(labels) == set(range(6))
    assert min(sides) < 16
    assert max(sides) > 50


SPLITS = {"train": 2, "val": 2}


@pytest.mark.parametrize("task", ["detect", "segment", "pose", "obb"])
def test_one_scene_reads_back_alike_from_coco_and_yolo(tmp_path, task):
    coco = open_catalog(synthetic.write_coco(tmp_path / "coco", splits=SPLITS, task=task), "val", task)
    yolo = open_catalog(synthetic.write_yolo(tmp_path / "yolo", splits=SPLITS, task=task), "val", task)
    assert coco.class_names == yolo.class_names == synthetic.class_names(task)
    for index in range(2):
        image, truth = synthetic.scene(3 + index, 128, 5, task)
        for catalog in (coco, yolo):
            read = catalog.targets(index)
            assert torch.equal(catalog.image(index), image)
            assert torch.equal(read.labels, truth.labels)
            assert torch.allclose(read.boxes, truth.boxes, atol=1e-3)
            assert torch.allclose(read.rboxes, truth.rboxes, atol=1e-3)
            assert torch.allclose(read.keypoints, truth.keypoints, atol=1e-3)
        for ours, theirs in zip(coco.targets(index).polygons, truth.polygons, strict=True):
            assert all(torch.allclose(a, b, atol=1e-3) for a, b in zip(ours, theirs, strict=True))
    assert coco.keypoint_flip_pairs == yolo.keypoint_flip_pairs


def test_voc_reads_back_the_same_boxes(tmp_path):
    voc = open_catalog(synthetic.write_voc(tmp_path, splits=SPLITS), "val")
    for index in range(2):
        truth = synthetic.scene(3 + index, 128, 5)[1]
        assert torch.allclose(voc.targets(index).boxes, truth.boxes, atol=1e-3)
        names = [voc.class_names[i] for i in voc.targets(index).labels.tolist()]
        assert names == [synthetic.class_names()[i] for i in truth.labels.tolist()]


def test_dota_lines_hold_the_corners_and_the_class(tmp_path):
    synthetic.write_dota(tmp_path, splits={"train": 1})
    lines = (tmp_path / "train" / "labelTxt" / "00001.txt").read_text().splitlines()
    truth = synthetic.scene(1, 128, 5, "obb")[1]
    assert lines[:2] == ["imagesource:drawn", "gsd:1"]
    for line, box, label in zip(lines[2:], truth.rboxes, truth.labels.tolist(), strict=True):
        *corners, name, difficult = line.split()
        polygon = Polygon(np.array(corners, float).reshape(4, 2))
        assert polygon.area == pytest.approx(float(box[2] * box[3]), rel=1e-3)
        assert (polygon.centroid.x, polygon.centroid.y) == pytest.approx(tuple(box[:2].tolist()), abs=1e-2)
        assert (name, difficult) == (synthetic.class_names("obb")[label], "0")


def test_a_folder_with_content_is_never_written_into(tmp_path):
    (tmp_path / "mine.txt").write_text("keep")
    for write in (synthetic.write_coco, synthetic.write_yolo, synthetic.write_voc, synthetic.write_dota):
        with pytest.raises(FileExistsError, match="content"):
            write(tmp_path, splits={"train": 1})


def test_filling_equals_testing_every_pixel_centre():
    generator = np.random.default_rng(2)
    for _ in range(20):
        ring = generator.uniform(-3, 23, (generator.integers(3, 9), 2))
        mask = fill_ring(ring, 18, 21)
        crossings = np.zeros((18, 21), int)
        y, x = np.mgrid[0:18, 0:21] + 0.5
        for (x1, y1), (x2, y2) in zip(ring, np.roll(ring, -1, 0), strict=True):
            spans = (y1 <= y) != (y2 <= y)
            with np.errstate(divide="ignore", invalid="ignore"):
                crossings += spans & (x1 + (y - y1) * (x2 - x1) / (y2 - y1) <= x)
        assert np.array_equal(mask, crossings % 2 == 1)


def test_filling_agrees_with_an_exact_polygon_off_the_border():
    ring = np.array([[2.3, 1.1], [17.2, 4.4], [11.0, 15.9], [4.2, 9.3]])
    mask = fill_ring(ring, 18, 20)
    polygon = Polygon(ring)
    expected = [[polygon.contains(Point(j + 0.5, i + 0.5)) for j in range(20)] for i in range(18)]
    assert mask.tolist() == expected


def test_borders_are_half_open_and_no_ring_is_empty():
    assert fill_ring([[1, 1], [4, 1], [4, 4], [1, 4]], 6, 6).sum() == 9
    assert fill_ring([[0.5, 0.5], [2.5, 0.5], [2.5, 2.5], [0.5, 2.5]], 4, 4).sum() == 4
    assert not fill_rings([], 3, 3).any()
