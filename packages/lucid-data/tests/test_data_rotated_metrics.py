import json

import numpy as np
import pytest
import shapely
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from lucid_data import (
    Targets,
    error_split,
    merge_tiles,
    read_task1,
    score_coco,
    score_dota,
    score_rotated,
    tile_cores,
    write_task1,
)
from lucid_data.metrics.average_precision import (
    average_precision_11,
    average_precision_101,
    average_precision_area,
)
from lucid_data.metrics.quad_iou import quad_iou
from lucid_geometry import rboxes_to_boxes, rboxes_to_polygons, rotated_box_iou


@pytest.mark.parametrize(
    ("hits", "positives", "values"),
    [
        ([1], 2, (0.50495, 0.545455, 0.5)),
        ([1, 0, 1], 3, (0.554455, 0.545455, 0.555556)),
        ([0, 1, 1, 0, 1], 4, (0.485149, 0.472727, 0.483333)),
        ([], 3, (0, 0, 0)),
        ([0], 0, (-1, -1, -1)),
    ],
)
def test_the_three_areas_under_the_curve(hits, positives, values):
    rules = (average_precision_101, average_precision_11, average_precision_area)
    assert [rule(hits, positives) for rule in rules] == pytest.approx(values, abs=1e-6)


@pytest.mark.parametrize("found", range(101))
def test_a_recall_of_exactly_k_hundredths_counts(found):
    assert average_precision_101([True] * found, 100) == pytest.approx((found + 1) / 101 if found else 0)


KIT = [
    ("ap50_voc07", "voc07_50"), ("ap50_area", "voc12_50"), ("max_recall50", "recall_50"),
    ("ap75_voc07", "voc07_75"), ("ap75_area", "voc12_75"), ("max_recall75", "recall_75"),
]  # fmt: skip


def test_every_number_of_the_development_kit_is_met(shared_data):
    folder = shared_data / "eval_vectors" / "dota_task1_a"
    expected = json.loads((folder / "expected.json").read_text())
    report = score_dota(folder, folder / "results", images=folder / "imageset.txt", version="1.0")
    means = expected["mean_over_classes_with_objects"]
    assert report["voc07_map_50"] == pytest.approx(means["ap50_voc07"], abs=1e-9)
    assert report["voc12_map_50"] == pytest.approx(means["ap50_area"], abs=1e-9)
    assert report["voc07_map_75"] == pytest.approx(means["ap75_voc07"], abs=1e-9)
    assert report["voc12_map_75"] == pytest.approx(means["ap75_area"], abs=1e-9)
    for name, values in expected["per_class"].items():
        score = report.per_class[name.replace("-", " ")]
        assert (score.ground_truths, score.detections) == (values["gt"], values["detections"])
        assert score.ground_truths - score.difficult == values["gt_not_difficult"]
        for key, mine in KIT:
            wanted = values.get(key, -1.0 if not values["gt_not_difficult"] else None)
            assert getattr(score, mine) == pytest.approx(wanted, abs=1e-9), (name, key)


@given(st.integers(0, 10_000))
@settings(deadline=None, max_examples=40)
def test_quadrilateral_overlap_equals_exact_polygons(seed):
    generator = torch.Generator().manual_seed(seed)
    rboxes = torch.rand(2, 4, 5, generator=generator, dtype=torch.float64) * torch.tensor(
        [20, 20, 15, 9, 3.0]
    )
    first, second = (rboxes_to_polygons(r) + 1e4 for r in rboxes)
    # drag one corner outwards: still convex, no longer a rectangle
    first = first + 0.1 * (first - first.mean(1, keepdim=True)) * torch.tensor([1.0, 0, 0, 0])[None, :, None]
    expected = [
        [
            a.intersection(b).area / a.union(b).area
            for b in (shapely.Polygon(q.numpy()).buffer(0) for q in second)
        ]
        for a in (shapely.Polygon(q.numpy()) for q in first)
    ]
    assert torch.allclose(quad_iou(first, second), torch.tensor(expected, dtype=torch.float64), atol=1e-9)
    assert torch.allclose(quad_iou(first.flip(1), second.flip(1)), quad_iou(first, second), atol=1e-12)


def labels(folder, text, name="p"):
    folder.mkdir(exist_ok=True)
    (folder / f"{name}.txt").write_text(text)
    return folder


def detections(folder, text, name="ship"):
    folder.mkdir(exist_ok=True)
    (folder / f"Task1_{name}.txt").write_text(text)
    return folder


def test_a_difficult_object_that_overlaps_most_silences_the_detection(tmp_path):
    # the free object reaches 0.5 as well, but the difficult one overlaps more: neither hit nor false alarm
    truth = labels(tmp_path / "gt", "0 0 10 0 10 10 0 10 ship 0\n2 0 12 0 12 10 2 10 ship 1\n")
    found = detections(tmp_path / "dt", "p 0.9 2 0 12 0 12 10 2 10\n")
    score = score_dota(truth, found).per_class["ship"]
    assert (score.recall_50, score.voc12_50, score.ground_truths, score.difficult) == (0, 0, 2, 1)
    # in the COCO-like protocol it claims the free one
    box = torch.tensor([[5.0, 5, 10, 10, 0], [7.0, 5, 10, 10, 0]])
    target = Targets.of(
        rboxes_to_boxes(box), torch.tensor([0, 0]), rboxes=box, difficult=torch.tensor([False, True])
    )
    report = score_rotated([(box[1:], torch.ones(1), torch.tensor([0]))], [target], ["ship"])
    assert report["map_50"] == pytest.approx(1)


def test_overlap_must_be_above_the_threshold_and_objects_are_found_once(tmp_path):
    truth = labels(tmp_path / "gt", "0 0 10 0 10 10 0 10 ship 0\n")
    half = detections(tmp_path / "half", "p 0.9 0 0 10 0 10 20 0 20\n")
    assert score_dota(truth, half)["voc07_map_50"] == 0
    twice = detections(tmp_path / "twice", "p 0.8 0 0 10 0 10 10 0 10\np 0.9 0 0 10 0 10 10 0 10\n")
    assert score_dota(truth, twice)["voc12_map_50"] == 1
    assert score_dota(truth, twice)["detections"] == 2


def test_results_are_checked_and_foreign_images_are_counted(tmp_path):
    truth = labels(tmp_path / "gt", "0 0 10 0 10 10 0 10 ship 0\n")
    found = detections(tmp_path / "dt", "q 0.9 0 0 10 0 10 10 0 10\np nan 0 0 10 0 10 10 0 10\n")
    assert score_dota(truth, found)["dropped"] == 2
    with pytest.raises(ValueError, match=r"Task1_ship\.txt:1: a Task 1 line is"):
        score_dota(truth, detections(tmp_path / "dt", "p 0.9 1 2 3\n"))
    with pytest.raises(ValueError, match="spaceship"):
        score_dota(truth, detections(tmp_path / "odd", "", "spaceship"))
    with pytest.raises(FileNotFoundError, match="Task1_"):
        score_dota(truth, tmp_path)
    with pytest.raises(FileNotFoundError, match=r"r\.txt"):
        score_dota(truth, found, images=["r"])


def test_task1_files_written_are_read_back(tmp_path):
    quads = torch.rand(3, 4, 2, dtype=torch.float64) * 100
    write_task1(
        tmp_path, {"p": (quads, torch.tensor([0.5, 0.25, 1]), torch.tensor([1, 0, 1]))}, ["a", "storage tank"]
    )
    found = read_task1(tmp_path)
    assert set(found) == {"a", "storage-tank"}
    assert found["storage-tank"].images == ("p", "p")
    assert torch.allclose(found["storage-tank"].quads, quads[[0, 2]], atol=1e-4)
    with pytest.raises(ValueError, match="not finite"):
        write_task1(tmp_path, {"p": (quads * torch.nan, torch.ones(3), torch.zeros(3).long())}, ["a"])


def test_task1_files_are_written_all_or_none_into_an_empty_folder(tmp_path):
    one = (torch.rand(1, 4, 2), torch.ones(1), torch.zeros(1).long())
    for name in ("p 1", "", " p"):
        with pytest.raises(ValueError, match="spaces between its columns only"):
            write_task1(tmp_path / "r", {"p": one, name: one}, ["a"])
    with pytest.raises(FileNotFoundError):  # the second class has no file of that name
        write_task1(tmp_path / "r", {"p": one}, ["a", "b/c"])
    assert not list(tmp_path.iterdir())
    write_task1(tmp_path / "r", {"p": one}, ["a"])
    with pytest.raises(FileExistsError, match="already has content"):
        write_task1(tmp_path / "r", {"q": one}, ["b"])
    assert [path.name for path in (tmp_path / "r").iterdir()] == ["Task1_a.txt"]


def test_a_class_that_these_pictures_lack_counts_in_no_mean(tmp_path):
    quad = torch.tensor([[[1.0, 1], [9, 1], [9, 5], [1, 5]]])
    write_task1(
        tmp_path / "r", {"p": (quad.repeat(2, 1, 1), torch.ones(2), torch.tensor([0, 1]))}, ["car", "big van"]
    )
    (tmp_path / "labelTxt").mkdir()
    (tmp_path / "labelTxt" / "p.txt").write_text("1 1 9 1 9 5 1 5 car 0\n")
    report = score_dota(tmp_path, tmp_path / "r")
    assert report["voc07_map_50"] == 1
    assert {name: row.voc12_50 for name, row in report.per_class.items()} == {"car": 1, "big-van": -1}
    (tmp_path / "labelTxt" / "p.txt").write_text("1 1 9 1 9 5 1 5 ship 0\n")
    with pytest.raises(ValueError, match="results for the class 'big-van', which is none of plane, ship"):
        score_dota(tmp_path, tmp_path / "r")


def noisy(seed, images=6, classes=3):
    g = torch.Generator().manual_seed(seed)
    truths, found = [], []
    for _ in range(images):
        n = int(torch.randint(0, 7, (1,), generator=g))
        rboxes = torch.rand(n, 5, generator=g) * torch.tensor([80, 80, 20, 10, 3.0]) + torch.tensor(
            [10, 10, 10, 6, 0]
        )
        kinds = torch.randint(0, classes, (n,), generator=g)
        truths.append(
            Targets.of(
                rboxes_to_boxes(rboxes), kinds, rboxes=rboxes, difficult=torch.rand(n, generator=g) < 0.25
            )
        )
        copies = torch.cat(
            [rboxes, rboxes, torch.rand(3, 5, generator=g) * torch.tensor([90, 90, 30, 12, 3.0])]
        )
        copies = copies + torch.randn(copies.shape, generator=g) * torch.tensor([1.5, 1.5, 1, 1, 0.05])
        copies[:, 2:4] = copies[:, 2:4].clamp(min=1)
        flips = torch.where(
            torch.rand(len(copies), generator=g) < 0.15,
            torch.randint(0, classes, (len(copies),), generator=g),
            torch.cat([kinds, kinds, torch.randint(0, classes, (3,), generator=g)]),
        )
        found.append((copies, torch.rand(len(copies), generator=g), flips))
    return found, truths


def one_by_one(found, truths, classes, cap):
    """The protocol written out: every class, threshold, detection and object in turn."""
    values, at_50 = [], []
    for c in range(classes):
        positives = sum(int(((t.labels == c) & ~t.difficult).sum()) for t in truths)
        if not positives:
            continue
        per_threshold = []
        for t in [k / 100 for k in range(50, 100, 5)]:
            ranked = []
            for (rboxes, scores, labels), truth in zip(found, truths, strict=True):
                order = sorted(range(len(scores)), key=lambda i: -float(scores[i]))[:cap]
                taken = set()
                for i in order:
                    if int(labels[i]) != c:
                        continue
                    best, claimed, hard = -1.0, None, False
                    for j in range(len(truth)):
                        if int(truth.labels[j]) != c:
                            continue
                        iou = float(
                            rotated_box_iou(rboxes[i : i + 1].double(), truth.rboxes[j : j + 1].double())
                        )
                        if iou < t:
                            continue
                        if truth.difficult[j]:
                            hard = True
                        elif j not in taken and iou > best:
                            best, claimed = iou, j
                    if claimed is not None:
                        taken.add(claimed)
                        ranked.append((float(scores[i]), True))
                    elif not hard:
                        ranked.append((float(scores[i]), False))
            ranked.sort(key=lambda pair: -pair[0])
            hits, precisions, recalls = 0, [], []
            for n, (_, hit) in enumerate(ranked, 1):
                hits += hit
                precisions.append(hits / n)
                recalls.append(hits)
            area = 0.0
            for k in range(101):
                area += max(
                    (p for p, r in zip(precisions, recalls, strict=True) if r * 100 >= k * positives),
                    default=0.0,
                )
            per_threshold.append(area / 101)
        values.append(np.mean(per_threshold))
        at_50.append(per_threshold[0])
    return np.mean(values), np.mean(at_50)


@pytest.mark.parametrize(("seed", "cap"), [(0, 300), (1, 300), (2, 5)])
def test_rotated_precision_equals_the_protocol_written_out(seed, cap):
    found, truths = noisy(seed)
    report = score_rotated(found, truths, ["a", "b", "c"], max_detections=cap)
    mean, at_50 = one_by_one(found, truths, 3, cap)
    assert report["map"] == pytest.approx(mean, abs=1e-12)
    assert report["map_50"] == pytest.approx(at_50, abs=1e-12)
    assert 0 < mean < 1


def test_perfect_rotated_predictions_score_one_and_none_score_zero():
    _, truths = noisy(4)
    perfect = [(t.rboxes.view(-1, 5), torch.ones(len(t)), t.labels) for t in truths]
    nothing = [(torch.zeros(0, 5), torch.zeros(0), torch.zeros(0, dtype=torch.int64)) for _ in truths]
    assert score_rotated(perfect, truths, ["a", "b", "c"])["map"] == pytest.approx(1)
    assert score_rotated(nothing, truths, ["a", "b", "c"])["map"] == 0
    assert score_rotated([], [], ["a"])["map"] == 0
    assert score_rotated([], [], ["a"]).per_class["a"]["map"] == -1
    with pytest.raises(ValueError, match="images"):
        score_rotated(perfect, truths[1:], ["a"])


def test_rotated_predictions_that_are_not_finite_are_counted():
    _, truths = noisy(4)
    bad = [(t.rboxes.view(-1, 5) * torch.nan, torch.ones(len(t)), t.labels) for t in truths]
    assert score_rotated(bad, truths, ["a", "b", "c"])["dropped"] == sum(len(t) for t in truths)


def test_exact_recall_gains_where_a_recall_is_a_hundredth():
    # so many of 100 are found that the default grid's own value lies above the recall
    found = next(k for k, r in enumerate(np.linspace(0, 1, 101)) if r > k / 100)
    boxes = [[20.0 * (i % 10), 20.0 * (i // 10), 10.0, 10.0] for i in range(100)]
    truth = {
        "images": [{"id": i, "width": 300, "height": 300} for i in range(1, 3)],
        "categories": [{"id": 1, "name": "a"}],
        "annotations": [
            {"id": i + 1, "image_id": 1, "category_id": 1, "bbox": b} for i, b in enumerate(boxes)
        ],
    }
    results = [{"image_id": 1, "category_id": 1, "bbox": b, "score": 0.9} for b in boxes[:found]]
    assert score_coco(truth, results, exact_recall=True)["map"] == pytest.approx((found + 1) / 101)
    assert score_coco(truth, results)["map"] == pytest.approx(found / 101)


def test_cores_meet_in_the_middle_of_overlaps():
    windows = [[0, 0, 1024, 700], [824, 0, 1848, 700], [1476, 0, 2500, 700]]
    assert tile_cores(windows)[:, [0, 2]].tolist() == [[-np.inf, 924], [924, 1662], [1662, np.inf]]
    assert (np.abs(tile_cores([[5, 5, 9, 9]])) == np.inf).all()
    with pytest.raises(ValueError, match="start at 0 end at different places"):
        tile_cores([[0, 0, 10, 10], [0, 0, 12, 10]])


@pytest.mark.parametrize("order", [[0, 1], [1, 0]])
@pytest.mark.parametrize("rule", ["cores", "nms"])
def test_an_object_in_an_overlap_is_counted_once(order, rule):
    windows = np.array([[0, 0, 100, 100], [60, 0, 160, 100]])
    one = (torch.tensor([[75.0, 50, 20, 10, 0.3]]), torch.tensor([0.8]), torch.tensor([0]))
    two = (
        torch.tensor([[15.0, 50, 20, 10, 0.3], [80.0, 20, 9, 9, 0]]),
        torch.tensor([0.7, 0.9]),
        torch.tensor([0, 1]),
    )
    tiles = [one, two]
    (merged,) = merge_tiles([tiles[i] for i in order], windows[order], ["a", "a"], rule)
    assert merged.boxes[:, :2].tolist() == [[140, 20], [75, 50]]
    assert merged.labels.tolist() == [1, 0]


def test_one_tile_is_the_identity_and_sources_stay_apart():
    boxes = torch.tensor([[1.0, 2, 3, 4], [5, 6, 7, 8]])
    tile = (boxes, torch.tensor([0.9, 0.5]), torch.tensor([0, 1]))
    merged = merge_tiles([tile, tile], [[0, 0, 9, 9], [0, 0, 9, 9]], ["b", "a"])
    assert [m.source for m in merged] == ["b", "a"]
    assert torch.equal(merged[0].boxes, boxes)
    with pytest.raises(ValueError, match="cores, nms"):
        merge_tiles([tile], [[0, 0, 9, 9]], ["a"], "best")
    with pytest.raises(ValueError, match="2 windows"):
        merge_tiles([tile], [[0, 0, 9, 9]] * 2, ["a"])


BOX = torch.tensor([[0.0, 0, 10, 10], [50, 50, 60, 60]])


@pytest.mark.parametrize(
    ("kind", "boxes", "labels"),
    [
        ("class", [[0, 0, 10, 10]], [1]),
        ("location", [[3, 0, 13, 10], [0, 0, 10, 10]], [0, 0]),
        ("both", [[7, 0, 17, 10]], [1]),
        ("duplicate", [[0, 0, 10, 10], [0, 0, 10, 9]], [0, 0]),
        ("background", [[80, 80, 90, 90]], [0]),
        ("missed", [], []),
    ],
)
def test_each_kind_of_error_is_told_apart(kind, boxes, labels):
    boxes = [[4, 0, 14, 10]] if kind == "location" else boxes
    labels = labels[: len(boxes)]
    found = torch.tensor([*boxes, [50, 50, 60, 60]], dtype=torch.float32).view(-1, 4)
    scores = torch.linspace(0.9, 0.5, len(found))
    split = error_split(
        [(found, scores, torch.tensor([*labels, 0]))], [(BOX, torch.tensor([0, 0]))], ["a", "b"]
    )
    hits_other = {"duplicate": 0, "class": 0, "location": 0}.get(kind, 1)
    assert split.counts[kind] >= 1
    others = {k: n for k, n in split.counts.items() if k not in (kind, "missed")}
    assert not any(others.values())
    assert split.counts["missed"] == (1 if kind == "missed" else hits_other)
    assert split.gains[kind] >= 0


def test_mending_every_error_is_never_a_loss_and_perfection_has_none():
    found, truths = noisy(7)
    upright = [(rboxes_to_boxes(r), s, c) for r, s, c in found]
    wanted = [(t.boxes, t.labels) for t in truths]
    split = error_split(upright, wanted, ["a", "b", "c"])
    assert all(gain >= -1e-12 for gain in split.gains.values())
    perfect = error_split([(b, torch.ones(len(b)), c) for b, c in wanted], wanted, ["a", "b", "c"])
    assert perfect.map_50 == pytest.approx(1)
    assert not any(perfect.counts.values())
    with pytest.raises(ValueError, match="images"):
        error_split(upright, wanted[1:], ["a"])
