"""Results reach the scorer in original pixels, under the source's own ids."""

import json
from dataclasses import replace

import pytest
import torch
from PIL import Image
from pycocotools import mask as coco_mask

from lucid_data import open_catalog, score_coco, score_rotated, synthetic
from lucid_geometry import Letterbox
from lucid_models import Predictions, to_predictions
from lucid_train import ConfigError, task_row
from lucid_train.results import ResultCollector, scoring_backend

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
    """Predictions decoded from canvas detections that are the labels themselves, with padding rows of score 0."""
    rows = torch.zeros(len(catalog), 6, 6)
    frames = [Letterbox(*size, *CANVAS) for size in catalog.sizes.tolist()]
    for index, frame in enumerate(frames):
        targets = catalog.targets(index)
        box = frame.forward_boxes(targets.boxes)
        rows[index, : len(box)] = torch.cat(
            [box, torch.full((len(box), 1), 0.9), targets.labels[:, None]], dim=1
        )
    for index, row in extra:
        rows[index, 5] = torch.tensor(row)
    return to_predictions(rows, frames, catalog.class_names), range(len(catalog))


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


def told_truth(catalog, task):
    """Predictions that state the labels of every image again."""
    for index in range(len(catalog)):
        targets, (height, width) = catalog.targets(index), catalog.sizes[index].tolist()
        n = len(targets)
        masks = points = None
        if task == "segment":
            outlines = [[ring.flatten().tolist() for ring in rings] for rings in targets.polygons]
            filled = [coco_mask.merge(coco_mask.frPyObjects(rings, height, width)) for rings in outlines]
            masks = torch.from_numpy(coco_mask.decode(filled)).permute(2, 0, 1).bool()
        if task == "pose":
            points = targets.keypoints.clone()
        yield Predictions(
            targets.boxes,
            torch.full((n,), 0.9),
            targets.labels,
            catalog.class_names,
            (height, width),
            masks=masks,
            keypoints=points,
            rboxes=targets.rboxes if task == "obb" else None,
        )


@pytest.mark.parametrize(
    ("task", "least"),
    [("segment", {"map": 1, "segm_map": 0.95}), ("pose", {"map": 1, "oks_map": 0.99}), ("obb", {"map": 1})],
)
def test_labels_told_again_score_one_by_every_protocol_of_the_task(tmp_path, task, least):
    synthetic.write_coco(tmp_path, splits={"val": 3}, size=96, seed=4, task=task)
    catalog = open_catalog(tmp_path, "val", task)
    collector = ResultCollector(catalog)
    collector.add(told_truth(catalog, task), range(3))
    report = collector.score()
    for name, value in least.items():
        assert report[name] >= value - 1e-6, name
    assert set(task_row(task).logged.values()) <= set(report)


def test_rotated_results_are_those_of_the_scorer_itself(tmp_path):
    synthetic.write_coco(tmp_path, splits={"val": 4}, size=96, seed=4, task="obb")
    catalog = open_catalog(tmp_path, "val", "obb")
    g = torch.Generator().manual_seed(0)
    found = []
    for told in told_truth(catalog, "obb"):
        moved = told.rboxes + 2 * torch.randn(told.rboxes.shape, generator=g) * torch.tensor(
            [1, 1, 1, 1, 0.1]
        )
        found.append(replace(told, rboxes=moved, scores=torch.rand(len(told), generator=g)))
    collector = ResultCollector(catalog)
    collector.add(reversed(found), reversed(range(4)))
    direct = score_rotated(
        [(f.rboxes, f.scores, f.labels) for f in found],
        [catalog.targets(i) for i in range(4)],
        catalog.class_names,
    )
    assert collector.score() == direct.to_dict()
    assert 0 < direct["map"] < 1


@pytest.mark.parametrize("engine", ["pycocotools", "faster"])
def test_the_engine_that_is_asked_for_scores(catalog, monkeypatch, engine):
    if engine == "faster":
        pytest.importorskip("faster_coco_eval")
    asked = []
    native = score_coco
    monkeypatch.setattr(
        "lucid_train.results.score_coco",
        lambda *words, **more: asked.append(more["engine"]) or native(*words, **more),
    )
    collector = ResultCollector(catalog, engine=engine)
    collector.add(*perfect(catalog))
    assert collector.score()["map"] == pytest.approx(1)
    assert asked == [engine]


def test_a_backend_is_named_for_what_scores_and_refused_where_it_does_not():
    assert [scoring_backend(task) for task in ("detect", "segment", "pose", "obb")] == [
        "pycocotools",
        "pycocotools",
        "pycocotools",
        "rotated",
    ]
    with pytest.raises(ConfigError, match=r"engine faster: .*obb has a scorer of its own"):
        scoring_backend("obb", "faster")
    with pytest.raises(ValueError, match="unknown engine 'slow'"):
        scoring_backend("detect", "slow")
