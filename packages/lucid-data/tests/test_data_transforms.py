import math

import hypothesis.strategies as st
import pytest
import torch
from hypothesis import given, settings

from lucid_data import AugmentPolicy, Targets
from lucid_data.randomness import Stream
from lucid_data.transforms.affine import (
    AffineParams,
    UprightPlace,
    canvas_to_output,
    compose,
    draw_upright,
    sample_affine,
    upright_place,
    warp,
)
from lucid_data.transforms.letterbox import letterbox_image, letterbox_targets, resize
from lucid_data.transforms.mixup import mixup_image, mixup_targets
from lucid_data.transforms.mosaic import MosaicParams, mosaic_places, sample_mosaic, single_place
from lucid_data.transforms.moving import KeepRule, clip_targets, move_targets, move_upright
from lucid_geometry import Affine, Letterbox

EVERYTHING = KeepRule(min_size=0, min_visibility=0, max_aspect=1e9)


def noise(height, width, seed=0):
    generator = torch.Generator().manual_seed(seed)
    return torch.randint(0, 256, (3, height, width), dtype=torch.uint8, generator=generator)


def smooth(height, width):
    """Gentle waves: a resampling error of a tenth of a pixel stays below one code."""
    y, x = torch.arange(height)[:, None] / 20.0, torch.arange(width)[None] / 23.0
    planes = [128 + 60 * torch.sin(x + k) * torch.cos(y - k) for k in range(3)]
    return torch.stack(planes).round().to(torch.uint8)


def one_box(*box, **fields):
    return Targets.of(torch.tensor([box], dtype=torch.float32), torch.tensor([0]), **fields)


# letterbox


@pytest.mark.parametrize(
    ("size", "inside", "top", "left"),
    [
        ((427, 640), (427, 640), 106, 0),
        ((333, 500), (426, 640), 107, 0),
        ((1080, 1920), (360, 640), 140, 0),
        ((20, 1000), (13, 640), 313, 0),
    ],
)
def test_the_letterbox_holds_the_picture_between_grey_bars(size, inside, top, left):
    image = torch.full((3, *size), 200, dtype=torch.uint8)
    canvas = letterbox_image(image, Letterbox(*size, 640, 640))
    expected = torch.full((3, 640, 640), 114, dtype=torch.uint8)
    expected[:, top : top + inside[0], left : left + inside[1]] = 200
    assert torch.equal(canvas, expected)


def test_letterboxed_labels_move_with_every_modality():
    targets = one_box(
        10,
        20,
        30,
        40,
        rboxes=torch.tensor([[20.0, 30, 20, 10, 0.3]]),
        keypoints=torch.tensor([[[10.0, 20, 2], [0, 0, 0]]]),
        crowd=torch.tensor([[0.0, 0, 100, 50]]),
        polygons=[[torch.tensor([[10.0, 20], [30, 20], [30, 40]])]],
    )
    moved = letterbox_targets(targets, Letterbox(50, 100, 200, 200))
    assert moved.boxes.tolist() == [[20, 90, 60, 130]]
    assert moved.rboxes[0].tolist() == pytest.approx([40, 110, 40, 20, 0.3])
    assert moved.keypoints.tolist() == [[[20, 90, 2], [0, 0, 0]]]
    assert moved.crowd.tolist() == [[0, 50, 200, 150]]
    assert moved.polygons[0][0][2].tolist() == [60, 130]
    assert moved.area.tolist() == [4 * 400]


# keep rule


@pytest.mark.parametrize(
    ("rule", "before", "after", "kept"),
    [
        (KeepRule(2, 0.1, 100), (10, 10), (2, 10), True),
        (KeepRule(2, 0.1, 100), (10, 10), (1.9, 10), False),
        (KeepRule(0, 0.1, 100), (10, 10), (1, 10), True),
        (KeepRule(0, 0.1, 100), (10, 10), (0.9, 10), False),
        (KeepRule(0, 0, 100), (400, 4), (400, 4), True),
        (KeepRule(0, 0, 100), (400, 4), (400, 3.9), False),
        (KeepRule(0, 0, 1e9), (0, 10), (0, 10), False),
        (EVERYTHING, (10, 10), (0.01, 10), True),
    ],
)
def test_the_keep_rule_has_one_threshold_per_reason(rule, before, after, kept):
    assert rule.mask(torch.tensor([before]).float(), torch.tensor([after]).float()).tolist() == [kept]


def test_clipping_hides_keypoints_outside_and_keeps_their_place():
    targets = one_box(0, 0, 20, 20, keypoints=torch.tensor([[[5.0, 5, 2], [15, 5, 1]]]))
    clipped = clip_targets(targets, torch.tensor([0.0, 0, 10, 10]), EVERYTHING)
    assert clipped.boxes.tolist() == [[0, 0, 10, 10]]
    assert clipped.keypoints.tolist() == [[[5, 5, 2], [15, 5, 0]]]


# mosaic


def test_the_four_pictures_touch_the_centre_with_their_own_corner():
    sizes = [(30, 64), (64, 40), (64, 64), (20, 64)]
    places = mosaic_places(sizes, 64, MosaicParams(70, 50))
    corners = [(p.left + w, p.top + h) for p, (h, w) in zip(places, sizes, strict=True)]
    assert corners[0] == (70, 50)
    assert (places[1].left, corners[1][1]) == (70, 50)
    assert (corners[2][0], places[2].top) == (70, 50)
    assert (places[3].left, places[3].top) == (70, 50)


def test_every_pixel_of_a_mosaic_source_appears_at_its_offset_and_the_rest_is_grey():
    pictures = [noise(48, 64, i) for i in range(4)]
    places = mosaic_places([(48, 64)] * 4, 64, MosaicParams(64, 64))
    canvas = compose(pictures, places, 128)
    expected = torch.full((3, 128, 128), 114, dtype=torch.uint8)
    for picture, (y, x) in zip(pictures, [(16, 0), (16, 64), (64, 0), (64, 64)], strict=True):
        expected[:, y : y + 48, x : x + 64] = picture
    assert torch.equal(canvas, expected)


def test_mosaic_centres_stay_in_the_middle_half():
    centres = [sample_mosaic(Stream(seed), 64) for seed in range(200)]
    values = [c.centre_x for c in centres] + [c.centre_y for c in centres]
    assert min(values) >= 32
    assert max(values) < 96
    assert max(values) - min(values) > 55


# affine


def test_a_range_of_zero_draws_nothing():
    policy = AugmentPolicy(scale=0, translate=0)
    stream = Stream(1)
    assert sample_affine(stream, policy) == AffineParams()
    assert stream.bits() == Stream(1).bits()


def test_drawn_parameters_stay_in_their_ranges():
    policy = AugmentPolicy(scale=0.5, translate=0.1, degrees=10, shear=3)
    drawn = [sample_affine(Stream(seed), policy) for seed in range(300)]
    assert {d.zoom for d in drawn} <= set(range(16, 49))
    assert max(abs(d.angle) for d in drawn) <= math.radians(10)
    assert max(abs(d.shear_x) for d in drawn) <= math.radians(3)
    assert max(abs(d.translate_y) for d in drawn) <= 0.1


def test_the_canvas_centre_lands_on_the_shifted_output_centre_whatever_the_turn():
    params = AffineParams(0.4, 0.1, -0.2, 40, 0.1, -0.05)
    centre = canvas_to_output(params, 200, 100).points(torch.tensor([[100.0, 100.0]]))
    assert centre[0].tolist() == pytest.approx([60, 45])


def upright(pictures, places, params, canvas, side):
    output = torch.full((3, side, side), 114, dtype=torch.uint8)
    spots = [
        upright_place(p, tuple(i.shape[1:]), params, canvas, side)
        for i, p in zip(pictures, places, strict=True)
    ]
    for picture, spot in zip(pictures, spots, strict=True):
        draw_upright(output, picture, spot)
    return output, spots


def test_without_zoom_or_shift_the_single_picture_is_its_letterbox():
    image = noise(48, 64)
    output, spots = upright([image], [single_place((48, 64), 64)], AffineParams(), 64, 64)
    assert torch.equal(output, letterbox_image(image, Letterbox(48, 64, 64, 64)))
    assert spots[0].window == (0, 8, 64, 56)


@pytest.mark.parametrize("zoom", [32, 36, 40, 48, 60])
def test_both_routes_draw_the_same_within_one_code(zoom):
    # shifts that land on whole pixels, so that the upright route has nothing to round
    side = 64
    pictures = [smooth(48, 64) + i for i in range(4)]
    places = mosaic_places([(48, 64)] * 4, side, MosaicParams(64, 64))
    params = AffineParams(zoom=zoom, translate_x=3 / 64, translate_y=-5 / 64)
    output, spots = upright(pictures, places, params, 128, side)
    warped = warp(compose(pictures, places, 128), canvas_to_output(params, 128, side), side)
    compared = 0
    for spot in spots:
        # bilinear sampling mixes neighbours across a seam; resizing does not
        x1, y1, x2, y2 = spot.window
        inner = (slice(None), slice(y1 + 2, y2 - 2), slice(x1 + 2, x2 - 2))
        part, other = output[inner].int(), warped[inner].int()
        compared += part.numel()
        assert not part.numel() or (part - other).abs().max() <= 1
    assert compared > 3 * side * side // 2


@pytest.mark.parametrize("zoom", [7, 17, 24, 31, 33, 47])
def test_resizing_a_crop_gives_exactly_the_pixels_of_resizing_the_whole(zoom):
    image = noise(120, 160)
    scale = zoom / 32
    whole = torch.nn.functional.interpolate(
        image[None], scale_factor=(scale, scale), mode="bilinear", antialias=True
    )[0]
    params = AffineParams(zoom=zoom, translate_x=0.31, translate_y=-0.22)
    output, (spot,) = upright([image], [single_place((120, 160), 160)], params, 160, 160)
    x1, y1, x2, y2 = spot.window
    assert (x2 - x1) * (y2 - y1) > 0
    expected = whole[:, y1 - spot.top : y2 - spot.top, x1 - spot.left : x2 - spot.left]
    # the kernel rounds its float weights per call; a crop may differ by that and by no more
    assert (output[:, y1:y2, x1:x2].int() - expected.int()).abs().max() <= 1


@pytest.mark.parametrize("zoom", [33, 34, 40, 63])
def test_a_sliver_is_enlarged_like_the_rest_of_its_picture(zoom):
    image = noise(86, 150)
    whole = torch.nn.functional.interpolate(
        image[None], scale_factor=(zoom / 32, zoom / 32), mode="bilinear", antialias=True
    )[0]
    height, width = whole.shape[1:]
    for x1, x2 in ((0, 2), (41, 44), (width - 3, width)):
        for y1, y2 in ((0, height), (0, 1), (50, 53), (height - 2, height)):
            output = torch.zeros(3, max(height, width), max(height, width), dtype=torch.uint8)
            draw_upright(output, image, UprightPlace(zoom, 0, 0, (x1, y1, x2, y2)))
            part, expected = output[:, y1:y2, x1:x2], whole[:, y1:y2, x1:x2]
            assert (part.int() - expected.int()).abs().max() <= 1


def test_a_marked_pixel_lies_inside_its_moved_box_on_the_upright_route():
    image = torch.zeros(3, 96, 128, dtype=torch.uint8)
    image[:, 40:56, 60:76] = 255
    for zoom, shift in ((16, 0.1), (23, -0.07), (48, 0.03)):
        params = AffineParams(zoom=zoom, translate_x=shift, translate_y=shift)
        output, (spot,) = upright([image], [single_place((96, 128), 128)], params, 128, 128)
        box = move_upright([one_box(60, 40, 76, 56)], [spot.map(1.0)]).boxes[0]
        rows, columns = torch.nonzero(output[0] > 180, as_tuple=True)
        drawn = torch.tensor([columns.min(), rows.min(), columns.max() + 1, rows.max() + 1]).float()
        assert (drawn - box).abs().max() <= 1.0


def test_mosaic_neighbours_meet_without_a_seam_at_any_zoom():
    pictures = [torch.full((3, 50, 64), 200, dtype=torch.uint8)] * 4
    for zoom in range(32, 49):
        places = mosaic_places([(50, 64)] * 4, 64, MosaicParams(61, 67))
        output, spots = upright(pictures, places, AffineParams(zoom=zoom), 128, 64)
        x1, y1 = spots[3].window[:2]
        assert (output[:, y1 - 3 : y1 + 3, x1 - 3 : x1 + 3] == 200).all()


def test_a_turned_marked_pixel_lands_where_its_centre_does():
    canvas = torch.full((3, 101, 101), 114, dtype=torch.uint8)
    canvas[:, 30, 70] = 255
    affine = canvas_to_output(AffineParams(0.5, 0.05, -0.04, 48), 101, 101)
    drawn = warp(canvas, affine, 101)[0].double() - 114
    index = torch.arange(101).double() + 0.5
    centre = torch.stack([(drawn.sum(0) * index).sum(), (drawn.sum(1) * index).sum()]) / drawn.sum()
    assert torch.allclose(
        centre, affine.points(torch.tensor([[70.5, 30.5]], dtype=torch.float64))[0], atol=0.05
    )


def test_the_warp_is_grey_outside_and_averages_when_it_shrinks():
    checker = ((torch.arange(64)[:, None] + torch.arange(64)) % 2 * 200).to(torch.uint8).expand(3, 64, 64)
    small = warp(checker, canvas_to_output(AffineParams(0.001, zoom=8), 64, 64), 64)
    assert small[0, 0, 0] == 114
    assert (small[:, 28:36, 28:36].int() - 100).abs().max() <= 2


@settings(max_examples=40, deadline=None)
@given(st.floats(-3, 3), st.floats(-0.3, 0.3), st.integers(16, 60), st.floats(-0.2, 0.2))
def test_a_box_bounds_its_outline_after_any_affine(angle, shear, zoom, shift):
    ring = torch.tensor([[10.0, 10], [40, 12], [30, 50]])
    targets = one_box(10, 10, 40, 50, polygons=[[ring]])
    moved = move_targets(
        targets, canvas_to_output(AffineParams(angle, shear, 0.0, zoom, shift, shift), 64, 64)
    )
    points, box = moved.polygons[0][0], moved.boxes[0]
    assert (points >= box[:2] - 1e-3).all()
    assert (points <= box[2:] + 1e-3).all()


@settings(max_examples=40, deadline=None)
@given(st.floats(-3, 3), st.integers(8, 60))
def test_moving_there_and_back_recovers_points(angle, zoom):
    affine = canvas_to_output(AffineParams(angle, zoom=zoom), 64, 64)
    targets = one_box(1, 2, 3, 4, keypoints=torch.tensor([[[10.0, 20, 2], [30, 5, 1]]]))
    back = move_targets(move_targets(targets, affine), affine.inverse())
    assert torch.allclose(back.keypoints, targets.keypoints, atol=1e-3)


# mixup


def test_mixup_blends_pixels_and_keeps_all_labels():
    first, second = noise(8, 8, 1), noise(8, 8, 2)
    mixed = mixup_image(first, second, 0.25)
    expected = 0.25 * first.double() + 0.75 * second.double()
    assert (mixed.double() - expected).abs().max() <= 0.5 + 1e-5
    assert len(mixup_targets(one_box(0, 0, 1, 1), one_box(1, 1, 2, 2))) == 2
    with pytest.raises(ValueError, match="one shape"):
        mixup_image(first, noise(8, 9), 0.5)


def test_mixup_weights_follow_their_beta_distribution():
    draws = torch.tensor([Stream(seed).beta(32.0) for seed in range(4000)])
    assert abs(float(draws.mean()) - 0.5) < 0.005
    assert abs(float(draws.var()) - 1 / (4 * 65)) < 4e-4


def test_affine_moves_rotated_boxes_with_their_corners():
    targets = one_box(0, 0, 10, 10, rboxes=torch.tensor([[5.0, 5, 8, 4, 0.0]]))
    moved = move_targets(targets, Affine.rotation(0.3))
    assert moved.rboxes[0, 2:].tolist() == pytest.approx([8, 4, 0.3], abs=1e-5)


@pytest.mark.parametrize("size", [(30, 40), (90, 121), (61, 70)])
def test_resizing_does_not_depend_on_the_memory_layout(size):
    image = noise(61, 83)
    plain = torch.nn.functional.interpolate(image[None], size, mode="bilinear", antialias=True)[0]
    assert torch.equal(resize(image, *size), plain)
    assert torch.equal(resize(image.permute(1, 2, 0).contiguous().permute(2, 0, 1), *size), plain)


def test_no_pictures_have_no_labels_to_move():
    assert len(move_upright([], [])) == 0


@pytest.mark.parametrize("also", [(), ("crowd",), ("keypoints", "crowd")])
def test_pictures_moved_together_are_those_moved_one_by_one(also):
    g = torch.Generator().manual_seed(3)
    items, maps = [], []
    for n in (3, 0, 1, 7):
        low = 100 * torch.rand(n, 2, generator=g)
        boxes = torch.cat((low, low + 50 * torch.rand(n, 2, generator=g)), 1)
        # crowd regions in a picture without instances, and none in one with some
        crowd = 80 * torch.rand(n % 3 + (n == 0), 4, generator=g)
        fields = {"keypoints": 90 * torch.rand(n, 2, 3, generator=g), "crowd": crowd}
        items.append(Targets.of(boxes, torch.arange(n), **{name: fields[name] for name in also}))
        maps.append((float(torch.rand((), generator=g)) + 0.5, float(n), -3.0 * n))
    together = move_upright(items, maps)
    affines = [Affine.from_rows([[s, 0.0, x], [0.0, s, y]]) for s, x, y in maps]
    apart = Targets.concat([move_targets(t, a) for t, a in zip(items, affines, strict=True)])
    for name in ("boxes", "labels", "area", "keypoints", "crowd", "difficult", "mask_ok"):
        assert torch.equal(getattr(together, name), getattr(apart, name)), name
