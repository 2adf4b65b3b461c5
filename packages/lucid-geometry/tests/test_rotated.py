import math
from collections.abc import Callable

import pytest
import shapely
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import Tensor

from lucid_geometry import (
    Affine,
    canonicalize_rboxes,
    flip_rboxes_horizontal,
    flip_rboxes_vertical,
    points_in_rboxes,
    polygon_area,
    polygons_to_rboxes,
    rboxes_to_boxes,
    rboxes_to_polygons,
    rotate_rboxes_clockwise,
)

extent = st.one_of(st.floats(0, 50, width=32), st.just(5.0))
angle = st.one_of(
    st.floats(-20, 20, width=32),
    st.sampled_from([k * math.pi / 4 for k in range(-8, 9)]),
    st.sampled_from([math.nextafter(k * math.pi / 4, d) for k in range(-4, 5) for d in (-9.0, 9.0)]),
)


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
@given(w=extent, h=extent, theta=angle)
@settings(max_examples=300)
def test_canonical_form_is_in_range_and_exactly_idempotent(
    dtype: torch.dtype, w: float, h: float, theta: float
) -> None:
    once = canonicalize_rboxes(torch.tensor([0.0, 0.0, w, h, theta], dtype=dtype))
    t = once[4]
    low, high = (torch.tensor(k * math.pi / 4, dtype=dtype) for k in (-1, 3))
    assert once[2] >= once[3]
    assert low <= t < high
    if once[2] == once[3]:
        assert t < -low
    assert torch.equal(canonicalize_rboxes(once), once)


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
def test_a_million_canonical_forms_are_idempotent_bit_for_bit(dtype: torch.dtype) -> None:
    g = torch.Generator().manual_seed(0)
    values = torch.rand(1_000_000, 5, generator=g, dtype=torch.float64) * torch.tensor([1.0, 1, 30, 30, 40])
    values[:, 4] -= 20
    values[::7, 2] = values[::7, 3]
    ends = (torch.arange(1000) % 17 - 8) * (math.pi / 4)
    values[:1000, 4] = ends
    boxes = values.to(dtype)
    boxes[1000:2000, 4] = torch.nextafter(ends.to(dtype), torch.tensor(99.0, dtype=dtype))
    boxes[2000:3000, 4] = torch.nextafter(ends.to(dtype), torch.tensor(-99.0, dtype=dtype))
    once = canonicalize_rboxes(boxes)
    assert torch.equal(canonicalize_rboxes(once), once)
    low, high = (torch.tensor(k * math.pi / 4, dtype=dtype) for k in (-1, 3))
    assert ((once[:, 4] >= low) & (once[:, 4] < high)).all()
    assert (once[once[:, 2] == once[:, 3], 4] < -low).all()


@pytest.mark.parametrize(
    ("given", "expected"),
    [
        ((10, 10, 4, 8, 0.2), (10, 10, 8, 4, 1.7708)),
        ((0, 0, 6, 3, 2.5), (0, 0, 6, 3, -0.6416)),
        ((0, 0, 5, 5, 1.0), (0, 0, 5, 5, -0.5708)),
        ((0, 0, 6, 3, -1.0), (0, 0, 6, 3, 2.1416)),
    ],
)
def test_published_canonical_forms(given: tuple[float, ...], expected: tuple[float, ...]) -> None:
    torch.testing.assert_close(
        canonicalize_rboxes(torch.tensor(given)), torch.tensor(expected), rtol=0, atol=1e-4
    )


def test_corners_are_those_of_the_rectangle_and_wind_clockwise_on_screen(
    random_rboxes: Callable[..., Tensor], oracle_rectangle: Callable[[Tensor], shapely.Polygon]
) -> None:
    boxes = random_rboxes(60)
    for box, corners in zip(boxes, rboxes_to_polygons(boxes), strict=True):
        ours = shapely.Polygon(corners.numpy())
        assert ours.symmetric_difference(oracle_rectangle(box)).area < 1e-9 * ours.area
        # shapely calls positive shoelace area counter-clockwise, its y pointing up
        assert ours.exterior.is_ccw


def test_half_a_turn_gives_the_same_corners_in_the_same_slots(random_rboxes: Callable[..., Tensor]) -> None:
    boxes = random_rboxes(30)
    turned = boxes + torch.tensor([0.0, 0.0, 0.0, 0.0, math.pi], dtype=torch.float64)
    torch.testing.assert_close(rboxes_to_polygons(turned), rboxes_to_polygons(boxes))


@pytest.mark.parametrize("fit", ["mean", "minarea"])
def test_fitting_undoes_corners_for_any_start_and_winding(
    random_rboxes: Callable[..., Tensor], fit: str
) -> None:
    boxes = canonicalize_rboxes(random_rboxes(80))
    corners = rboxes_to_polygons(boxes)
    for start in range(4):
        for quad in (corners.roll(start, 1), corners.roll(start, 1).flip(1)):
            torch.testing.assert_close(polygons_to_rboxes(quad, fit=fit), boxes)  # type: ignore[arg-type]


@pytest.mark.parametrize(
    ("quad", "expected"),
    [
        ([[2, 1], [8, 1], [8, 4], [2, 4]], (5, 2.5, 6, 3, 0)),
        ([[0, 0], [10, 1], [9, 5], [-1, 4]], (4.5, 2.5, 10.0499, 4.1231, 0.0997)),
    ],
)
def test_published_fits_do_not_depend_on_the_first_corner(
    quad: list[list[int]], expected: tuple[float, ...]
) -> None:
    for start in range(4):
        fitted = polygons_to_rboxes(torch.tensor(quad).roll(start, 0))
        torch.testing.assert_close(fitted, torch.tensor(expected).float(), rtol=0, atol=1e-4)


@given(st.lists(st.tuples(st.integers(0, 30), st.integers(0, 30)), min_size=4, max_size=4))
def test_the_least_area_fit_is_shapelys_rotated_rectangle(points: list[tuple[int, int]]) -> None:
    fitted = polygons_to_rboxes(torch.tensor(points, dtype=torch.float64), fit="minarea")
    assert (fitted[2] * fitted[3]).item() == pytest.approx(
        shapely.MultiPoint(points).minimum_rotated_rectangle.area, abs=1e-6
    )
    assert points_in_rboxes(
        torch.tensor(points, dtype=torch.float64), (fitted + torch.tensor([0, 0, 1e-6, 1e-6, 0]))[None]
    ).all()


def test_a_segment_keeps_its_direction() -> None:
    fitted = polygons_to_rboxes(torch.tensor([[0.0, 0.0], [0.0, 0.0], [3.0, 4.0], [3.0, 4.0]]))
    torch.testing.assert_close(fitted, torch.tensor([1.5, 2.0, 5.0, 0.0, math.atan2(4, 3)]))


def test_containment_agrees_with_shapely(
    random_rboxes: Callable[..., Tensor], oracle_rectangle: Callable[[Tensor], shapely.Polygon]
) -> None:
    boxes = random_rboxes(25)
    points = torch.rand(200, 2, dtype=torch.float64) * 60 - 10
    expected = [[oracle_rectangle(b).contains(shapely.Point(p.tolist())) for b in boxes] for p in points]
    assert torch.equal(points_in_rboxes(points, boxes), torch.tensor(expected))


def test_borders_are_inside_and_batches_broadcast() -> None:
    box = torch.tensor([[0.0, 0.0, 4.0, 2.0, 0.0]])
    points = torch.tensor([[2.0, 1.0], [2.0, 1.0001]])
    assert points_in_rboxes(points, box)[:, 0].tolist() == [True, False]
    assert points_in_rboxes(points, box.expand(3, 5, 5)).shape == (3, 2, 5)
    assert points_in_rboxes(torch.zeros(0, 2), torch.zeros(4, 5)).shape == (0, 4)


def test_envelopes_are_the_extremes_of_the_corners(random_rboxes: Callable[..., Tensor]) -> None:
    boxes = random_rboxes(100)
    corners = rboxes_to_polygons(boxes)
    torch.testing.assert_close(rboxes_to_boxes(boxes), torch.cat((corners.amin(1), corners.amax(1)), 1))


def test_the_published_mirror() -> None:
    flipped = flip_rboxes_horizontal(torch.tensor([30.0, 40.0, 20.0, 10.0, 1.2]), width=100)
    torch.testing.assert_close(flipped, torch.tensor([70.0, 40.0, 20.0, 10.0, 1.9416]), rtol=0, atol=1e-4)


@pytest.mark.parametrize(
    ("move", "points"),
    [
        (lambda b: flip_rboxes_horizontal(b, 64), Affine.translation(64, 0) @ Affine.scaling(-1, 1)),
        (lambda b: flip_rboxes_vertical(b, 48), Affine.translation(0, 48) @ Affine.scaling(1, -1)),
        (lambda b: rotate_rboxes_clockwise(b, 48), Affine.translation(48, 0) @ Affine.rotation(math.pi / 2)),
    ],
    ids=["horizontal", "vertical", "quarter"],
)
def test_mirrors_and_turns_move_the_corners_as_points(
    random_rboxes: Callable[..., Tensor], move: Callable[[Tensor], Tensor], points: Affine
) -> None:
    boxes = random_rboxes(40)
    a, b = points.polygons(rboxes_to_polygons(boxes)), rboxes_to_polygons(move(boxes))
    assert torch.cdist(a, b).min(-1).values.max() < 1e-9


@pytest.mark.parametrize("side", [63.0, 64.0])
@pytest.mark.parametrize("flip", [flip_rboxes_horizontal, flip_rboxes_vertical])
def test_a_mirror_twice_is_none_and_mirrors_the_envelope(
    flip: Callable[[Tensor, float], Tensor], side: float, random_rboxes: Callable[..., Tensor]
) -> None:
    boxes = canonicalize_rboxes(random_rboxes(60))
    torch.testing.assert_close(flip(flip(boxes, side), side), boxes)
    x1, y1, x2, y2 = rboxes_to_boxes(boxes).unbind(1)
    mirrored = (
        (side - x2, y1, side - x1, y2) if flip is flip_rboxes_horizontal else (x1, side - y2, x2, side - y1)
    )
    torch.testing.assert_close(rboxes_to_boxes(flip(boxes, side)), torch.stack(mirrored, 1))


def test_area_does_not_care_about_winding_or_distance() -> None:
    triangle = torch.tensor([[0.0, 0.0], [4.0, 0.0], [4.0, 3.0]]) + 1e5
    assert polygon_area(triangle).item() == 6
    assert polygon_area(triangle.flip(0)).item() == 6


def test_no_rows_are_fine_and_wrong_shapes_are_not() -> None:
    assert canonicalize_rboxes(torch.zeros(0, 5)).shape == (0, 5)
    assert polygons_to_rboxes(torch.zeros(0, 4, 2)).shape == (0, 5)
    with pytest.raises(ValueError, match=r"\(\.\.\., 4, 2\)"):
        polygons_to_rboxes(torch.zeros(3, 2))
    with pytest.raises(ValueError, match="fit must be one of"):
        polygons_to_rboxes(torch.zeros(4, 2), fit="best")  # type: ignore[arg-type]
    with pytest.raises(ValueError, match="rboxes must have shape"):
        canonicalize_rboxes(torch.zeros(3, 4))
