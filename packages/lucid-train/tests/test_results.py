"""Results reach the scorer in original pixels, under the source's own ids."""

import json

import pytest
import torch
from PIL import Image

from lucid_data import open_catalog
from lucid_geometry import Letterbox
from lucid_train.results import ResultCollector

CANVAS = (64, 64)


@pytest.fixture(scope="module")
def catalog(tmp_path_factory):
    """Two images that are not square, and category ids that are neither dense nor sorted."""
    root = tmp_path_factory.mktemp("odd")
    (root / "val").mkdir()
    (root / "annotations").mkdir()
    images = [
        {"id": 11, "file_name": "wide.png", "width": 100, "height": 40},
        {"id": 5, "file_name": "tall.png", "width": 50, "height": 90},
    ]
    for image in images:
        Image.new("RGB", (image["width"], image["height"])).save(root / "val" / image["file_name"])
    boxes = [(11, 9, [10, 5, 30, 20]), (11, 3, [60, 10, 25, 25]), (5, 3, [5, 40, 30, 45])]
    annotations = [
        {
            "id": n + 1,
            "image_id": image,
            "category_id": category,
            "bbox": box,
            "area": box[2] * box[3],
            "iscrowd": 0,
        }
        for n, (image, category, box) in enumerate(boxes)
    ]
    categories = [{"id": 9, "name": "nine"}, {"id": 3, "name": "three"}]
    document = {"images": images, "annotations": annotations, "categories": categories}
    (root / "annotations" / "instances_val.json").write_text(json.dumps(document))
    return open_catalog(root, "val")


def perfect(catalog, extra=()):
    """Detections on the canvas that are the labels themselves, with padding rows of score 0."""
    rows = torch.zeros(len(catalog), 6, 6)
    sizes = torch.tensor(catalog.sizes.tolist())
    for index in range(len(catalog)):
        targets = catalog.targets(index)
        box = Letterbox(*sizes[index].tolist(), *CANVAS).forward_boxes(targets.boxes)
        rows[index, : len(box)] = torch.cat(
            [box, torch.full((len(box), 1), 0.9), targets.labels[:, None]], dim=1
        )
    for index, row in extra:
        rows[index, 5] = torch.tensor(row)
    return rows, torch.arange(len(catalog)), sizes, CANVAS


def test_labels_sent_through_the_canvas_and_back_score_one(catalog):
    collector = ResultCollector(catalog)
    collector.add(*perfect(catalog))
    assert collector.score()["map"] == pytest.approx(1)
    assert {row["category_id"] for row in collector.results} == {3, 9}
    assert {row["image_id"] for row in collector.results} == {5, 11}


def test_padding_rows_are_left_out(catalog):
    collector = ResultCollector(catalog)
    collector.add(*perfect(catalog))
    assert len(collector.results) == 3


def test_boxes_are_clipped_to_the_original_image(catalog):
    collector = ResultCollector(catalog)
    collector.add(*perfect(catalog, [(0, (-50.0, -50.0, 200.0, 200.0, 0.5, 0.0))]))
    height, width = catalog.sizes[0].tolist()
    whole = next(row for row in collector.results if row["score"] == 0.5)
    assert whole["bbox"] == pytest.approx([0, 0, width, height])


def test_an_image_that_comes_twice_counts_once(catalog):
    collector = ResultCollector(catalog)
    collector.add(*perfect(catalog))
    collector.add(*perfect(catalog))
    assert len(collector.results) == 3
