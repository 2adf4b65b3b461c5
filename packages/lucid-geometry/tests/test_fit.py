"""The least rectangle around any polygon."""

import math
from collections.abc import Callable

import pytest
import shapely
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import Tensor

from lucid_geometry import (
    canonicalize_rboxes,
    points_in_rboxes,
    polygons_to_rboxes,
    rboxes_to_polygons,
)

place = st.tuples(st.integers(0, 40), st.integers(0, 40))


@given(st.lists(place, min_size=1, max_size=14))
@settings(max_examples=200)
def test_the_least_rectangle_has_shapelys_area_and_holds_every_point(points: list[tuple[int, int]]) -> None:
    cloud = torch.tensor(points, dtype=torch.float64)
    fitted = polygons_to_rboxes(cloud, fit="minarea")
    expected = shapely.MultiPoint(points).minimum_rotated_rectangle.area
    assert (fitted[2] * fitted[3]).item() == pytest.approx(expected, abs=1e-6)
    slack = torch.tensor([0, 0, 1e-6, 1e-6, 0], dtype=torch.float64)
    assert points_in_rboxes(cloud, (fitted + slack)[None]).all()


def test_a_concave_outline_of_many_vertices_has_shapelys_rectangle() -> None:
    g = torch.Generator().manual_seed(1)
    angles = torch.rand(300, generator=g, dtype=torch.float64).mul(2 * math.pi).sort().values
    radius = torch.rand(300, 1, generator=g, dtype=torch.float64) * 50 + 1
    ring = torch.stack((angles.cos() * 3, angles.sin()), 1) * radius + 1000
    fitted = polygons_to_rboxes(ring, fit="minarea")
    expected = shapely.Polygon(ring.numpy()).minimum_rotated_rectangle.area
    assert (fitted[2] * fitted[3]).item() == pytest.approx(expected, rel=1e-9)


def test_points_within_a_rectangle_do_not_change_it(random_rboxes: Callable[..., Tensor]) -> None:
    boxes = canonicalize_rboxes(random_rboxes(60))
    corners = rboxes_to_polygons(boxes)
    weights = torch.rand(60, 9, 4, generator=torch.Generator().manual_seed(2), dtype=torch.float64)
    inside = (weights / weights.sum(-1, keepdim=True)) @ corners
    fitted = polygons_to_rboxes(torch.cat((corners, inside), 1), fit="minarea")
    torch.testing.assert_close(fitted, boxes)


def test_repeated_vertices_change_nothing_so_polygons_of_a_batch_may_be_filled_up() -> None:
    triangle = torch.tensor([[0.0, 0.0], [6.0, 1.0], [3.0, 5.0]], dtype=torch.float64)
    filled = torch.cat((triangle, triangle[:1].expand(4, 2)))
    alone, padded = (polygons_to_rboxes(p, fit="minarea") for p in (triangle, filled))
    torch.testing.assert_close(padded[2] * padded[3], alone[2] * alone[3])


@pytest.mark.parametrize(
    ("points", "expected"),
    [
        ([[3.0, 4.0]], (3, 4, 0, 0)),
        ([[3.0, 4.0], [3.0, 4.0], [3.0, 4.0]], (3, 4, 0, 0)),
        ([[0.0, 0.0], [3.0, 4.0]], (1.5, 2, 5, 0)),
        ([[0.0, 0.0], [3.0, 4.0], [0.0, 0.0], [1.5, 2.0]], (1.5, 2, 5, 0)),
    ],
)
def test_points_and_segments_have_a_rectangle_without_width(
    points: list[list[float]], expected: tuple[float, ...]
) -> None:
    fitted = polygons_to_rboxes(torch.tensor(points), fit="minarea")
    torch.testing.assert_close(fitted[:4], torch.tensor(expected).float(), rtol=0, atol=1e-6)
    if expected[2]:
        assert fitted[4].item() == pytest.approx(math.atan2(4, 3), abs=1e-6)


@pytest.mark.parametrize("fit", ["mean", "minarea"])
def test_the_gradient_is_that_of_finite_differences(fit: str) -> None:
    quads = torch.tensor(
        [[[0, 0], [10, 1], [9, 5.5], [-1, 4]], [[1, 1], [2, 7], [-3, 8], [-4, 2.5]]], dtype=torch.float64
    ).requires_grad_()
    assert torch.autograd.gradcheck(lambda q: polygons_to_rboxes(q, fit), quads)  # type: ignore[arg-type]


def test_degenerate_polygons_have_a_finite_gradient() -> None:
    quads = torch.zeros(2, 4, 2, dtype=torch.float64)
    quads[1, 2:, 0] = 5
    quads.requires_grad_()
    polygons_to_rboxes(quads, fit="minarea").sum().backward()
    assert torch.isfinite(quads.grad).all()


def test_a_mean_needs_four_corners_and_a_rectangle_one() -> None:
    with pytest.raises(ValueError, match=r"\(\.\.\., 4, 2\) to fit 'mean', got \(5, 2\)"):
        polygons_to_rboxes(torch.zeros(5, 2))
    with pytest.raises(ValueError, match=r"P > 0"):
        polygons_to_rboxes(torch.zeros(0, 2), fit="minarea")
