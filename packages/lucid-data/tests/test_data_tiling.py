import json

import numpy as np
import pytest
import shapely
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from lucid_data import (
    TileOptions,
    merge_tiles,
    open_catalog,
    read_tile_manifest,
    synthetic,
    tile,
    tile_cores,
    tile_windows,
)
from lucid_data.tiling.windows import window_labels
from lucid_geometry import rboxes_to_boxes, rboxes_to_polygons


@pytest.mark.parametrize(
    ("length", "overlap", "starts"),
    [
        (2500, 200, [0, 824, 1476]), (1500, 200, [0, 476]), (1024, 200, [0]), (700, 200, [0]), (1025, 200, [0, 1]),
        (4000, 512, [0, 512, 1024, 1536, 2048, 2560, 2976]),
    ],
)  # fmt: skip
def test_windows_step_and_end_at_the_border(length, overlap, starts):
    windows = tile_windows(300, length, 1024, overlap)
    assert windows[:, 0].tolist() == starts
    assert windows[:, 2].tolist() == [min(s + 1024, length) for s in starts]
    assert (windows[:, [1, 3]] == [0, 300]).all()
    assert tile_windows(length, 300, 1024, overlap)[:, 1].tolist() == starts


@given(st.integers(1, 90), st.integers(1, 90), st.integers(1, 40), st.data())
@settings(deadline=None, max_examples=60)
def test_every_pixel_is_covered_and_owned_once(height, width, patch, data):
    overlap = data.draw(st.integers(0, patch - 1))
    windows = tile_windows(height, width, patch, overlap)
    if len(windows) > 400:
        return
    covered, owned = np.zeros((height, width), int), np.zeros((height, width), int)
    y, x = np.mgrid[:height, :width] + 0.5
    for (x1, y1, x2, y2), (a, b, c, d) in zip(windows, tile_cores(windows), strict=True):
        covered[y1:y2, x1:x2] += 1
        owned += (x >= a) & (x < c) & (y >= b) & (y < d)
    assert covered.min() >= 1
    assert (owned == 1).all()


def test_bad_windows_are_refused():
    with pytest.raises(ValueError, match=r"overlap must be in 0\.\.99"):
        tile_windows(10, 10, 100, 100)
    with pytest.raises(ValueError, match="positive"):
        tile_windows(0, 10)
    with pytest.raises(ValueError, match="suffix"):
        TileOptions(suffix=".bmp")
    with pytest.raises(ValueError, match="keep_empty"):
        TileOptions(keep_empty=2)


def test_a_label_is_kept_from_seven_tenths_and_refitted_below():
    # 100 px wide bar, cut by a window of 100 px at x = 70 or 69.9
    bar = torch.tensor([[80.0, 50.0, 100.0, 10.0, 0.0]])
    kept = window_labels(bar, rboxes_to_boxes(bar), np.array([[0, 0, 100, 100]]))
    assert kept.visible.tolist() == [pytest.approx(0.7)]
    assert kept.rboxes.tolist() == bar.tolist()
    assert not kept.cut.any()
    lower = bar + torch.tensor([0.1, 0, 0, 0, 0])
    cut = window_labels(lower, rboxes_to_boxes(lower), np.array([[0, 0, 100, 100]]))
    assert cut.cut.all()
    assert cut.boxes[0].tolist() == pytest.approx([30.1, 45, 100, 55], abs=1e-4)
    assert cut.rboxes[0, :4].tolist() == pytest.approx([65.05, 50, 69.9, 10], abs=1e-4)


@given(st.integers(0, 10_000))
@settings(deadline=None, max_examples=30)
def test_visible_fractions_equal_exact_polygons(seed):
    g = torch.Generator().manual_seed(seed)
    rboxes = torch.rand(8, 5, generator=g, dtype=torch.float64) * torch.tensor([200, 150, 60, 20, 3.0])
    windows = tile_windows(150, 200, 64, 20)
    left = window_labels(rboxes, rboxes_to_boxes(rboxes), windows)
    pairs = {}
    for t, (x1, y1, x2, y2) in enumerate(windows.tolist()):
        for m, quad in enumerate(rboxes_to_polygons(rboxes).numpy()):
            share = shapely.Polygon(quad).intersection(shapely.box(x1, y1, x2, y2)).area / (
                rboxes[m, 2] * rboxes[m, 3]
            )
            if share > 1e-9:
                pairs[t, m] = float(share)
    got = {
        (t, m): v
        for t, m, v in zip(left.window.tolist(), left.instance.tolist(), left.visible.tolist(), strict=True)
        if v > 1e-9
    }
    assert got == pytest.approx(pairs, abs=1e-9)


@pytest.fixture(scope="module")
def aerial(tmp_path_factory):
    root = tmp_path_factory.mktemp("aerial")
    return synthetic.write_dota(root, splits={"train": 3, "val": 2}, size=160, shapes=6)


CUT = TileOptions(patch=96, overlap=32)


def test_tiles_are_a_coco_set_whose_labels_lead_back(aerial, tmp_path):
    reports = tile(aerial, tmp_path / "t", options=CUT)
    assert [(r.split, r.source_images, r.tiles) for r in reports] == [("train", 3, 12), ("val", 2, 8)]
    source, tiles = open_catalog(aerial, "train", "obb"), open_catalog(tmp_path / "t", "train", "obb")
    manifest = read_tile_manifest(tmp_path / "t" / "annotations" / "instances_train.json")
    assert manifest.file_names[:2] == ("00001__0_0.png", "00001__64_0.png")
    names = source.file_names
    whole = 0
    for i in range(len(tiles)):
        x1, y1, x2, y2 = manifest.windows[i].tolist()
        at = names.index(manifest.sources[i])
        assert torch.equal(tiles.image(i), source.image(at)[:, y1:y2, x1:x2])
        wanted = source.targets(at).rboxes
        for rbox, difficult in zip(tiles.targets(i).rboxes, tiles.targets(i).difficult, strict=True):
            back = rbox + torch.tensor([x1, y1, 0, 0, 0])
            if not difficult:
                assert (wanted - back).abs().amax(1).min() < 1e-3
                whole += 1
    assert whole == reports[0].instances - reports[0].difficult > 0


def test_merged_tiles_are_the_whole_images_objects(aerial, tmp_path):
    tile(aerial, tmp_path / "t", options=CUT)
    source, tiles = open_catalog(aerial, "val", "obb"), open_catalog(tmp_path / "t", "val", "obb")
    manifest = read_tile_manifest(tmp_path / "t" / "annotations" / "instances_val.json")
    found = []
    for i in range(len(tiles)):
        t = tiles.targets(i)
        keep = ~t.difficult
        found.append((t.rboxes.view(-1, 5)[keep], torch.ones(int(keep.sum())), t.labels[keep]))
    for merged in merge_tiles(found, manifest.windows, manifest.sources, "nms"):
        wanted = source.targets(source.file_names.index(merged.source)).rboxes
        distance = (merged.boxes[:, None, :4] - wanted[None, :, :4]).abs().amax(2)
        assert distance.amin(1).max() < 1e-2
        assert len(set(distance.argmin(1).tolist())) == len(merged.boxes)


def test_the_manifest_is_the_same_for_any_number_of_workers(aerial, tmp_path):
    for workers in (0, 2):
        tile(aerial, tmp_path / str(workers), splits=["train"], options=CUT, workers=workers)
    first, second = (tmp_path / n / "annotations" / "instances_train.json" for n in "02")
    assert first.read_bytes() == second.read_bytes()
    names = sorted(p.name for p in (tmp_path / "0" / "train").iterdir())
    assert names == sorted(p.name for p in (tmp_path / "2" / "train").iterdir())


def test_flags_are_never_taken_away_and_fractions_can_be_asked_for(aerial, tmp_path):
    hard = synthetic.write_dota(tmp_path / "in", splits={"train": 1}, size=160, shapes=6)
    path = hard / "train" / "labelTxt" / "00001.txt"
    path.write_text(path.read_text().replace(" 0\n", " 1\n"))
    (report,) = tile(hard, tmp_path / "t", options=CUT)
    assert report.difficult == report.instances > 0
    document = json.loads((tmp_path / "t" / "annotations" / "instances_train.json").read_text())
    fractions = [a["visible_fraction"] for a in document["annotations"]]
    assert 0 < min(fractions) < 0.7
    assert max(fractions) == 1
    fewer = open_catalog(tmp_path / "t", "train", "obb", min_visible=0.7)
    kept = sum(len(fewer.targets(i)) for i in range(len(fewer)))
    assert kept == sum(f >= 0.7 for f in fractions)
    assert fewer.dropped["object hardly visible on its tile"] == len(fractions) - kept


def test_scales_resize_first_and_small_pictures_may_be_padded(aerial, tmp_path):
    options = TileOptions(patch=128, overlap=0, scales=(0.5, 1.0), pad=True, suffix=".jpg")
    tile(aerial, tmp_path / "t", splits=["val"], options=options)
    tiles = open_catalog(tmp_path / "t", "val", "obb")
    manifest = read_tile_manifest(tmp_path / "t" / "annotations" / "instances_val.json")
    assert (tiles.sizes == 128).all()
    half = manifest.scales == 0.5
    assert manifest.windows[half].tolist() == [[0, 0, 80, 80]] * 2
    source = open_catalog(aerial, "val", "obb")
    at = int(np.flatnonzero(half)[0])
    assert torch.allclose(tiles.targets(at).rboxes[:, :4] * 2, source.targets(0).rboxes[:, :4], atol=1e-2)
    assert manifest.file_names[at] == "00001__0.5__0_0.jpg"
    assert (tiles.image(at)[:, 90:, 90:].int() - 114).abs().max() < 6


# half of an odd side is rounded, so the windows alone would tell 92 x 132
@pytest.mark.parametrize(("stated", "sides"), [(True, (91, 131)), (False, (90, 130))])
def test_the_manifest_knows_the_pictures_and_how_large_they_are(picture, tmp_path, stated, sides):
    picture(tmp_path / "in" / "val" / "images" / "flat.png", *sides)
    picture(tmp_path / "in" / "val" / "images" / "small.png", 40, 50)
    (tmp_path / "in" / "val" / "labelTxt").mkdir()
    (tmp_path / "in" / "val" / "labelTxt" / "flat.txt").write_text("1 1 9 1 9 5 1 5 ship 0\n")
    tile(tmp_path / "in", tmp_path / "t", options=TileOptions(patch=64, overlap=16, scales=(0.5,)))
    file = tmp_path / "t" / "annotations" / "instances_val.json"
    if not stated:
        document = json.loads(file.read_text())
        for image in document["images"]:
            del image["source_size"]
        file.write_text(json.dumps(document | {"info": {}}))
    manifest = read_tile_manifest(file)
    sizes = dict(zip(manifest.sources, map(tuple, manifest.sizes.tolist()), strict=True))
    assert sizes == {"flat.png": sides, "small.png": (40, 50)}
    assert manifest.folder == ((tmp_path / "in" / "val" / "images").resolve() if stated else None)
    assert (manifest.exif, manifest.keep_empty) == (False, 1.0)


def test_tiles_of_several_scales_are_merged_in_the_pixels_of_the_picture():
    # one bar of the picture at (100, 40), 30 x 8 px, seen whole at scale 1 from x = 64 on and at a half from x = 32 on
    whole = torch.tensor([[36.0, 40.0, 30.0, 8.0, 0.3]])
    half = torch.tensor([[18.0, 20.0, 15.0, 4.0, 0.3]])
    found = [(whole, torch.tensor([0.8]), torch.tensor([2])), (half, torch.tensor([0.9]), torch.tensor([2]))]
    windows, scales = [[64, 0, 128, 64], [32, 0, 96, 64]], [1.0, 0.5]
    (merged,) = merge_tiles(found, windows, ["a", "a"], "nms", scales=scales)
    assert merged.boxes.tolist() == [pytest.approx([100, 40, 30, 8, 0.3])]
    assert merged.scores.tolist() == [pytest.approx(0.9)]
    # of one scale the cores are those of the resized picture
    upright = (torch.tensor([[4.0, 4.0, 8.0, 6.0]]), torch.tensor([0.8]), torch.tensor([2]))
    (alone,) = merge_tiles([upright], windows[1:], ["a"], scales=[0.5])
    assert alone.boxes.tolist() == [[72.0, 8.0, 80.0, 12.0]]
    with pytest.raises(ValueError, match="a was cut at several scales"):
        merge_tiles(found, windows, ["a", "a"], "cores", scales=scales)
    with pytest.raises(ValueError, match="1 scales"):
        merge_tiles(found, windows, ["a", "a"], scales=[1.0])


def test_empty_tiles_are_dropped_by_share_and_seed(tmp_path):
    root = synthetic.write_dota(tmp_path / "in", splits={"train": 2}, size=160, shapes=0)
    counts = {}
    for share in (0.0, 0.5, 1.0):
        options = TileOptions(patch=40, overlap=0, keep_empty=share)
        (report,) = tile(root, tmp_path / str(share), options=options)
        counts[share] = report.tiles
        assert report.empty_tiles == report.tiles
    assert counts[0.0] == 0
    assert 6 < counts[0.5] < 26
    assert counts[1.0] == 32


def test_upright_boxes_are_tiled_too(tmp_path):
    root = synthetic.write_yolo(tmp_path / "in", splits={"train": 2}, size=160)
    tile(root, tmp_path / "t", "detect", options=CUT)
    tiles = open_catalog(tmp_path / "t", "train")
    assert sum(len(tiles.targets(i)) for i in range(len(tiles))) > 0
    with pytest.raises(ValueError, match="obb and detect"):
        tile(root, tmp_path / "u", "pose")
    with pytest.raises(FileExistsError):
        tile(root, tmp_path / "t", "detect")


def test_a_real_aerial_picture_is_tiled(shared_data, tmp_path):
    (report,) = tile(
        shared_data / "dota_sample" / "full", tmp_path / "t", options=TileOptions(patch=512, overlap=100)
    )
    tiles = open_catalog(tmp_path / "t", "train", "obb")
    assert len(tiles) == report.tiles > 1
    assert report.instances >= 536


@pytest.mark.parametrize(
    ("options", "words"),
    [
        ({"patch": 0}, "patch must be in 1"),
        ({"patch": 10**30}, "patch must be in 1"),
        ({"scales": (1.0, 1.0)}, "scales must differ"),
        ({"scales": (float("nan"),)}, "scales must be positive"),
        ({"scales": (float("inf"),)}, "scales must be positive"),
        ({"quality": 0}, "quality must be in 1"),
        ({"quality": 1000}, "quality must be in 1"),
    ],
)
def test_options_that_cannot_be_are_refused(options, words):
    with pytest.raises(ValueError, match=words):
        TileOptions(**options)
