import math
from dataclasses import replace

import numpy as np
import pytest
import shapely
import torch
from hypothesis import assume, given, settings
from hypothesis import strategies as st

from lucid_data import (
    NO_AUGMENTATION,
    EvalPipeline,
    Targets,
    TrainPipeline,
    collate,
    open_catalog,
    policy_for,
    synthetic,
)
from lucid_data.masks import grid_masks
from lucid_data.randomness import Stream
from lucid_data.raster import fill_outlines, fill_rings
from lucid_data.transforms.copy_paste import copy_paste, paste_candidates, sample_copy_paste
from lucid_data.transforms.quads import clip_rboxes_to
from lucid_data.transforms.rings import clip_outlines, outline_areas, outline_boxes
from lucid_geometry import clip_rboxes, rboxes_to_boxes


def star(seed, points=9, centre=16.0, reach=22.0):
    stream = Stream(seed)
    angles = sorted(stream.uniform(0, 2 * math.pi) for _ in range(points))
    radii = [stream.uniform(2, reach) for _ in range(points)]
    return torch.tensor(
        [[centre + r * math.cos(a), centre + r * math.sin(a)] for r, a in zip(radii, angles, strict=True)],
        dtype=torch.float32,
    )


def square(x, y, side=10.0):
    return torch.tensor([[x, y], [x + side, y], [x + side, y + side], [x, y + side]])


def labelled(*corners, side=10.0):
    boxes = torch.tensor([[x, y, x + side, y + side] for x, y in corners])
    return Targets.of(boxes, torch.arange(len(corners)), polygons=[[square(x, y, side)] for x, y in corners])


def by_brute_force(ring, height, width):
    """Even-odd at pixel centres, one pixel and one edge at a time."""
    mask = np.zeros((height, width), bool)
    points = ring.tolist()
    for r in range(height):
        for c in range(width):
            y, x, odd = r + 0.5, c + 0.5, False
            for (x1, y1), (x2, y2) in zip(points, [*points[1:], points[0]], strict=True):
                if (y1 <= y) != (y2 <= y):
                    if y1 > y2:
                        x1, y1, x2, y2 = x2, y2, x1, y1
                    odd ^= x >= x1 + (y - y1) * ((x2 - x1) / (y2 - y1))
            mask[r, c] = odd
    return mask


@given(st.integers(0, 10_000))
@settings(deadline=None, max_examples=30)
def test_filling_equals_the_brute_force_at_pixel_centres(seed):
    rings = [star(seed, centre=9, reach=12).double(), star(seed + 1, centre=8, reach=12).double()]
    expected = [by_brute_force(ring, 18, 20) for ring in rings]
    got = fill_outlines([[rings[0]], [], rings], 18, 20)
    assert np.array_equal(got[0], expected[0])
    assert not got[1].any()
    assert np.array_equal(got[2], expected[0] | expected[1])


def test_a_square_is_half_open_and_no_outlines_are_no_masks():
    assert fill_rings([square(1, 1, 3)], 6, 6).sum(0).tolist() == [0, 3, 3, 3, 0, 0]
    assert fill_rings([square(0.5, 0.5, 1)], 3, 3).nonzero() == (np.array([0]), np.array([0]))
    assert fill_outlines([], 4, 5).shape == (0, 4, 5)


@given(st.integers(0, 10_000))
@settings(deadline=None, max_examples=60)
def test_a_cut_outline_fills_what_the_whole_one_fills_inside_the_window(seed):
    rings = (star(seed), star(seed + 7, centre=20))
    assume(all(shapely.Polygon(ring.numpy()).is_valid for ring in rings))
    window = torch.tensor([5.0, 9.0, 24.0, 21.0])
    (cut,) = clip_outlines((rings,), window)
    inside = np.zeros((32, 32), bool)
    inside[9:21, 5:24] = True
    for ring in cut:
        assert (ring >= window[:2]).all()
        assert (ring <= window[2:]).all()
    whole = fill_rings([r.numpy() for r in rings], 32, 32) & inside
    left = fill_rings([r.numpy() for r in cut], 32, 32)
    # float32 points may move a crossing by one ulp across a pixel centre
    assert (whole ^ left).sum() <= 1
    expected = sum(
        shapely.Polygon(r.double().numpy()).intersection(shapely.box(5, 9, 24, 21)).area for r in rings
    )
    assert float(outline_areas((cut,))[0]) == pytest.approx(expected, abs=0.02)


def test_each_outline_is_cut_to_its_own_window_and_those_inside_keep_their_tensors():
    rings = (square(0, 0), square(0, 0), square(40, 40))
    windows = torch.tensor([[5.0, 5.0, 30.0, 30.0], [-1.0, -1.0, 30.0, 30.0], [0.0, 0.0, 9.0, 9.0]])
    cut = clip_outlines(tuple((r,) for r in rings), windows)
    assert outline_boxes(cut, torch.zeros(3, 4)).tolist() == [[5, 5, 10, 10], [0, 0, 10, 10], [0, 0, 0, 0]]
    assert cut[1][0] is rings[1]
    assert cut[2] == ()


def test_cutting_does_not_bend_edges_across_a_corner():
    # clamping points would leave the diagonal's corner region filled
    ring = torch.tensor([[-10.0, 5.0], [5.0, -10.0], [20.0, 5.0], [5.0, 20.0]])
    (cut,) = clip_outlines(((ring,),), torch.tensor([0.0, 0.0, 10.0, 10.0]))
    assert float(outline_areas((cut,))[0]) == pytest.approx(100.0)
    moved = ring + torch.tensor([7.0, 7.0])
    (cut,) = clip_outlines(((moved,),), torch.tensor([0.0, 0.0, 10.0, 10.0]))
    expected = shapely.Polygon(moved.numpy()).intersection(shapely.box(0, 0, 10, 10)).area
    assert float(outline_areas((cut,))[0]) == pytest.approx(expected)


def test_rotated_boxes_are_cut_to_their_windows():
    rboxes = torch.tensor([[20.0, 20.0, 16.0, 6.0, 0.7]] * 3 + [[100.0, 100.0, 4.0, 4.0, 0.0]])
    windows = torch.tensor([[0.0, 0, 60, 60], [0, 0, 22, 60], [18, 16, 60, 60], [0, 0, 22, 60]])
    cut, boxes = clip_rboxes_to(rboxes, windows)
    assert torch.equal(cut[0], rboxes[0])
    expected = clip_rboxes(rboxes[1], 60, 22)
    assert torch.allclose(cut[1], expected.rboxes)
    shifted = clip_rboxes(rboxes[2] - torch.tensor([18.0, 16, 0, 0, 0]), 44, 42)
    assert torch.allclose(boxes[2], shifted.boxes + torch.tensor([18.0, 16, 18, 16]))
    assert cut[3].tolist() == [0] * 5


def test_masks_on_the_grid_are_filled_there():
    masks = grid_masks(labelled((8.0, 4.0), side=24.0), 64)
    assert masks.shape == (1, 16, 16)
    assert masks[0].nonzero().amin(0).tolist() == [1, 2]
    assert masks.sum() == 36


def test_small_objects_never_vanish_and_instances_without_outlines_are_empty():
    specks = labelled((5.0, 5.0), (62.9, 62.9), side=0.5)
    masks = grid_masks(specks, 64)
    assert masks.sum((1, 2)).tolist() == [1, 1]
    assert masks[0, 1, 1]
    assert masks[1, 15, 15]
    bare = Targets.of(torch.tensor([[0.0, 0.0, 9.0, 9.0]]), torch.tensor([0]))
    assert not grid_masks(bare, 64).any()


def test_thin_objects_of_under_four_cells_count_by_coverage():
    thin = Targets.of(
        torch.tensor([[8.0, 8.0, 20.0, 10.0]]), torch.tensor([0]),
        polygons=[[torch.tensor([[8.0, 8.0], [20.0, 8.0], [20.0, 10.0], [8.0, 10.0]])]],
    )  # fmt: skip
    # half of every cell is covered, though no cell's centre is
    assert grid_masks(thin, 64)[0, 2, 2:5].all()


def pictures(side=32):
    grey = torch.full((3, side, side), 50, dtype=torch.uint8)
    return grey, torch.arange(3 * side * side, dtype=torch.int64).remainder(251).to(torch.uint8).view(
        3, side, side
    )


def test_pasting_copies_the_outlined_pixels_and_appends_the_labels():
    image, other = pictures()
    before = image.clone(), other.clone()
    target, source = labelled((0.0, 0.0)), labelled((18.0, 18.0), (4.0, 20.0))
    out, labels = copy_paste(image, target, other, source, [1, 0])
    mask = torch.zeros(32, 32, dtype=torch.bool)
    mask[18:28, 18:28] = mask[20:30, 4:14] = True
    assert torch.equal(out, torch.where(mask, other, image))
    assert labels.boxes[:, :2].tolist() == [[0, 0], [4, 20], [18, 18]]
    assert labels.labels.tolist() == [0, 1, 0]
    assert [r[0][0].tolist() for r in labels.polygons] == [[0, 0], [4, 20], [18, 18]]
    assert torch.equal(image, before[0])
    assert torch.equal(other, before[1])


@given(st.integers(0, 1000))
@settings(deadline=None, max_examples=25)
def test_one_copy_of_the_union_equals_pasting_one_by_one(seed):
    image, other = pictures()
    stream = Stream(seed)
    corners = [(stream.uniform(0, 24), stream.uniform(0, 24)) for _ in range(5)]
    source = labelled(*corners, side=7.3)
    out, labels = copy_paste(image, Targets.empty(), other, source, range(5))
    single = image
    for box in labels.boxes.tolist():
        ring = square(box[0], box[1], 7.3)
        single = torch.where(torch.from_numpy(fill_rings([ring.double().numpy()], 32, 32)), other, single)
    assert torch.equal(out, single)


def test_nothing_is_pasted_over_a_third_of_a_box_and_what_is_hidden_goes():
    image, other = pictures()
    there = labelled((0.0, 0.0), (20.0, 20.0))
    # covers 0.35 of the first box, 0.25 of the second
    blocked, free = labelled((6.5, 0.0)), labelled((15.0, 15.0))
    assert copy_paste(image, there, other, blocked, [0])[1] is there
    assert len(copy_paste(image, there, other, free, [0])[1]) == 3
    # two of the pasted would cover each other
    twice = labelled((15.0, 1.0), (16.0, 2.0))
    assert len(copy_paste(image, there, other, twice, [1, 0])[1]) == 3


def test_an_instance_covered_by_more_than_seven_tenths_is_removed():
    image, other = pictures()
    # four pasted corners, each under 0.3 of the box, hide it all
    there = labelled((10.0, 10.0))
    around = labelled((5.0, 5.0), (15.0, 5.0), (5.0, 15.0), (15.0, 15.0))
    assert 0 not in [len(p) for p in copy_paste(image, there, other, around, range(4))[1].polygons]
    assert len(copy_paste(image, there, other, around, range(4))[1]) == 4
    assert len(copy_paste(image, there, other, around, range(2))[1]) == 3


def test_candidates_are_outlined_large_and_at_one_border_at_most():
    source = labelled((0.0, 0.0), (0.0, 10.0), (10.0, 10.0))
    assert paste_candidates(source, 32) == [1, 2]
    assert paste_candidates(labelled((4.0, 4.0), side=7.9), 32) == []
    assert paste_candidates(Targets.of(source.boxes, source.labels), 32) == []


def test_candidates_are_taken_by_halves_up_to_thirty_in_random_order():
    counts = [len(sample_copy_paste(Stream(s), range(10))) for s in range(400)]
    assert abs(np.mean(counts) - 5) < 0.25
    assert len(sample_copy_paste(Stream(1), range(200))) == 30
    orders = {sample_copy_paste(Stream(s), range(2)) for s in range(60)}
    assert {(0, 1), (1, 0)} <= orders


@pytest.fixture(scope="module", params=["detect", "segment", "pose", "obb"])
def drawn(request, tmp_path_factory):
    root = tmp_path_factory.mktemp(request.param)
    synthetic.write_coco(root, splits={"train": 10}, size=96, task=request.param, seed=4)
    return open_catalog(root, "train", request.param)


def busy(task, **more):
    policy = replace(policy_for("m", task), mixup=0.3, **more)
    return replace(policy, copy_paste=0.6) if task == "segment" else policy


@pytest.mark.parametrize("degrees", [0.0, 25.0])
def test_every_task_makes_training_samples_that_hold_together(drawn, degrees):
    pipeline = TrainPipeline(drawn, 96, busy(drawn.task, degrees=degrees), seed=1)
    samples = [pipeline(e, i) for e in range(2) for i in range(10)]
    seen = 0
    for sample in samples:
        t = sample.targets
        seen += len(t)
        assert (t.boxes >= -1e-4).all()
        assert (t.boxes <= 96 + 1e-4).all()
        Targets(**t.__dict__)
        if drawn.task == "segment" and len(t):
            assert torch.allclose(outline_boxes(t.polygons, t.boxes), t.boxes, atol=1e-3)
            assert sample.masks.shape == (len(t), 24, 24)
            assert sample.masks.any(2).any(1).all()
        if drawn.task == "obb" and len(t):
            assert t.rboxes.shape == (len(t), 5)
            envelope = rboxes_to_boxes(t.rboxes)
            assert (envelope[:, :2] <= t.boxes[:, :2] + 1e-2).all()
            assert (envelope[:, 2:] >= t.boxes[:, 2:] - 1e-2).all()
    assert seen > 60
    again = TrainPipeline(drawn, 96, busy(drawn.task, degrees=degrees), seed=1)(1, 3)
    assert torch.equal(again.image, samples[13].image)
    assert torch.equal(again.targets.boxes, samples[13].targets.boxes)
    batch = collate(samples[:4])
    assert (batch.masks is not None) == (drawn.task == "segment")
    assert (batch.rboxes is not None) == (drawn.task == "obb")
    assert (batch.keypoints is not None) == (drawn.task == "pose")
    if batch.masks is not None:
        n = batch.boxes.shape[1]
        assert batch.masks.shape == (4, n, 24, 24)
        assert torch.equal(batch.mask_ok, batch.valid)
        assert batch.to("cpu").masks is not None


def test_copy_paste_adds_instances_and_stops_with_the_mosaic(tmp_path):
    root = synthetic.write_coco(tmp_path, splits={"train": 8}, size=96, task="segment", shapes=2, seed=6)
    catalog = open_catalog(root, "train", "segment")
    for source in ("partner", "self"):
        pasting = replace(NO_AUGMENTATION, copy_paste=1.0, copy_paste_source=source)
        with_it = TrainPipeline(catalog, 96, pasting, seed=2, mosaic_epochs=1)
        plain = TrainPipeline(catalog, 96, NO_AUGMENTATION, seed=2)
        counts = [(len(with_it(0, i).targets), len(plain(0, i).targets)) for i in range(8)]
        assert sum(a for a, _ in counts) > sum(b for _, b in counts)
        assert all(torch.equal(with_it(1, i).image, plain(1, i).image) for i in range(8))


def test_detection_may_paste_too_when_outlines_are_read(tmp_path):
    root = synthetic.write_coco(tmp_path, splits={"train": 4}, size=96, task="segment", shapes=2)
    catalog = open_catalog(root, outlines=True)
    policy = replace(NO_AUGMENTATION, copy_paste=1.0)
    samples = [TrainPipeline(catalog, 96, policy, seed=2)(0, i) for i in range(4)]
    assert sum(len(s.targets) for s in samples) > sum(len(catalog.targets(i)) for i in range(4))
    assert samples[0].masks is None


def test_an_evaluation_sample_of_segment_has_masks(tmp_path):
    root = synthetic.write_coco(tmp_path, splits={"train": 1}, size=96, task="segment")
    sample = EvalPipeline(open_catalog(root, "train", "segment"), 96)(0)
    assert sample.masks.shape == (len(sample.targets), 24, 24)


def test_a_batch_has_masks_for_all_samples_or_none():
    from lucid_data import Sample

    grey = torch.zeros(3, 32, 32, dtype=torch.uint8)
    some = Sample(grey, Targets.empty(), 0, (32, 32), torch.zeros(0, 8, 8, dtype=torch.bool))
    with pytest.raises(ValueError, match="1 of 2 samples have masks"):
        collate([some, Sample(grey, Targets.empty(), 1, (32, 32))])
    assert collate([some, some]).masks.shape == (2, 0, 8, 8)


def test_masks_of_a_rectangular_canvas_are_those_of_the_square_one_cut(tmp_path):
    root = synthetic.write_coco(tmp_path, splits={"train": 2}, size=96, task="segment")
    targets = open_catalog(root, "train", "segment").targets(1)
    assert torch.equal(grid_masks(targets, 96, 128)[:, :, :24], grid_masks(targets, 96))
    assert not grid_masks(targets, 96, 128)[:, :, 24:].any()
