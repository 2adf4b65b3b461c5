"""Rings cut and refitted in groups give the bytes that the one-by-one reference gives."""

import math
import sys
from collections.abc import Callable, Sequence

import pytest
import shapely
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import Tensor

from lucid_geometry import (
    clip_rboxes,
    clip_ring,
    clip_rings,
    polygon_area,
    rboxes_to_polygons,
    refit_ring,
    refit_rings,
)


def stored(tensors: Sequence[Tensor]) -> list[bytes]:
    """The raw bytes of each tensor, so that 0.0 and -0.0 differ and NaNs can agree."""
    return [t.reshape(-1).clone().view(torch.uint8).numpy().tobytes() for t in tensors]


def outlines(count: int, seed: int, most: int = 12, dtype: torch.dtype = torch.float64) -> list[Tensor]:
    """Convex outlines of 3 to ``most`` vertices in and around a canvas of 100 pixels."""
    g = torch.Generator().manual_seed(seed)
    sides = torch.randint(3, most + 1, (count,), generator=g).tolist()
    rings = []
    for n in sides:
        angles = torch.rand(n, generator=g, dtype=torch.float64).mul(2 * math.pi).sort().values
        radius, centre = torch.rand(1, generator=g) * 40 + 1, torch.rand(2, generator=g) * 160 - 30
        rings.append((torch.stack((angles.cos(), angles.sin()), 1) * radius + centre).to(dtype))
    return rings


def one_by_one(rings: Sequence[Tensor], height: Tensor, width: Tensor) -> list[Tensor]:
    return [clip_ring(r, h, w) for r, h, w in zip(rings, height, width, strict=True)]


def refitted(rings: Sequence[Tensor], theta: Tensor) -> list[Tensor]:
    fits = [refit_ring(ring, angle) for ring, angle in zip(rings, theta, strict=True)]
    return [torch.stack(column) for column in zip(*fits, strict=True)]


def canvases(count: int, seed: int) -> tuple[Tensor, Tensor, Tensor]:
    g = torch.Generator().manual_seed(seed)
    height, width, theta = (torch.rand(count, generator=g, dtype=torch.float64) for _ in range(3))
    return height * 100 + 1, width * 100 + 1, (theta - 0.5) * 14


@pytest.fixture
def reference_only(monkeypatch: pytest.MonkeyPatch) -> Callable[[], None]:
    """Send everything through the one-by-one route from the call on."""

    def switch() -> None:
        for module in ("clip", "rings", "refit"):
            monkeypatch.setattr(f"lucid_geometry.{module}.groupable", lambda *tensors: False)

    return switch


def test_ten_thousand_canvases_give_the_bytes_of_the_reference(random_rboxes: Callable[..., Tensor]) -> None:
    boxes = random_rboxes(6000, seed=21, spread=120.0)
    rings = [*rboxes_to_polygons(boxes).unbind(0), *outlines(4000, 22)]
    height, width, theta = canvases(10_000, 23)
    many, expected = clip_rings(rings, height, width), one_by_one(rings, height, width)
    assert [len(ring) for ring in many] == [len(ring) for ring in expected]
    assert {0, *range(3, 13)} <= {len(ring) for ring in many}
    assert stored([torch.cat(many)]) == stored([torch.cat(expected)])
    assert stored(refit_rings(many, theta)) == stored(refitted(expected, theta))


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
def test_clipped_boxes_are_the_bytes_of_the_reference(
    dtype: torch.dtype, random_rboxes: Callable[..., Tensor], reference_only: Callable[[], None]
) -> None:
    boxes = random_rboxes(400, seed=24, spread=60.0, dtype=dtype)
    many = clip_rboxes(boxes, 40.0, 50.5)
    reference_only()
    assert stored(many) == stored(clip_rboxes(boxes, 40.0, 50.5))


def test_one_box_has_the_bytes_it_has_in_a_batch(random_rboxes: Callable[..., Tensor]) -> None:
    boxes = random_rboxes(100, seed=25, spread=60.0)
    many = clip_rboxes(boxes, 40.0, 50.5)
    for i, box in enumerate(boxes):
        assert stored(clip_rboxes(box, 40.0, 50.5)) == stored([column[i] for column in many])


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
@given(seed=st.integers(0, 10**6), count=st.integers(0, 12), most=st.integers(3, 40))
@settings(max_examples=40)
def test_any_mixture_of_vertex_counts_gives_the_bytes_of_the_reference(
    dtype: torch.dtype, seed: int, count: int, most: int
) -> None:
    rings = outlines(count, seed, most, dtype)
    height, width, theta = canvases(count, seed)
    many, expected = clip_rings(rings, height, width), one_by_one(rings, height, width)
    assert stored(many) == stored(expected)
    assert all(ring.dtype == dtype for ring in many)
    if count:
        assert stored(refit_rings(many, theta)) == stored(refitted(expected, theta))


def test_results_stand_in_the_order_of_the_rings() -> None:
    square = torch.tensor([[0.0, 0.0], [2.0, 0.0], [2.0, 2.0], [0.0, 2.0]])
    rings = [square + shift for shift in (9.0, 0.5, -1.0, 5.0, 0.0)] + [square[:3]]
    parts = clip_rings(rings, 3.0, 3.0)
    assert [polygon_area(part).item() for part in parts] == [0, 4, 1, 0, 4, 2]


def test_vertices_keep_the_order_of_their_ring_and_start_where_it_starts() -> None:
    ring = torch.tensor([[1.0, 1.0], [5.0, 1.0], [5.0, 5.0], [1.0, 5.0]])
    assert clip_ring(ring, 4, 4).tolist() == [[1, 1], [4, 1], [4, 4], [1, 4]]
    assert clip_ring(ring.roll(1, 0), 4, 4).tolist() == [[1, 4], [1, 1], [4, 1], [4, 4]]


def test_a_ring_that_only_touches_keeps_what_touches_and_has_no_rectangle() -> None:
    ring = torch.tensor([[4.0, 1.0], [6.0, 1.0], [6.0, 3.0], [4.0, 3.0]])
    rest = clip_ring(ring, 4, 4)
    assert rest.tolist() == [[4, 1], [4, 3]]
    assert not any(tensor.any() for tensor in refit_ring(rest, 0.3))


def test_no_vertex_comes_twice_where_a_corner_lies_on_the_border() -> None:
    ring = torch.tensor([[2.0, 2.0], [4.0, 0.0], [6.0, 2.0], [4.0, 4.0]])
    assert clip_ring(ring, 4, 4).tolist() == [[2, 2], [4, 0], [4, 4]]


def test_there_is_no_cap_on_vertices() -> None:
    rings = outlines(3, 5, most=4000)
    for ring, part in zip(rings, clip_rings(rings, 60.0, 80.0), strict=True):
        expected = shapely.Polygon(ring.numpy()).intersection(shapely.box(0, 0, 80, 60)).area
        assert polygon_area(part).item() == pytest.approx(expected, abs=1e-9)


def test_areas_envelopes_and_rectangles_agree_with_shapely() -> None:
    rings = outlines(300, 6)
    height, width, theta = canvases(300, 7)
    parts = clip_rings(rings, height, width)
    fits = refit_rings(parts, theta)
    for ring, h, w, angle, fit, envelope, area in zip(rings, height, width, theta, *fits, strict=True):
        rest = shapely.Polygon(ring.numpy()).intersection(shapely.box(0, 0, w.item(), h.item()))
        assert area.item() == pytest.approx(rest.area, abs=1e-9)
        if rest.area < 1e-9:
            continue
        assert envelope.tolist() == pytest.approx(list(rest.bounds), abs=1e-9)
        x1, y1, x2, y2 = shapely.affinity.rotate(rest, -angle.item(), (0, 0), use_radians=True).bounds
        assert sorted(fit[2:4].tolist()) == pytest.approx(sorted((x2 - x1, y2 - y1)), abs=1e-9)


def test_a_concave_ring_keeps_its_area() -> None:
    ring = torch.tensor([[0.0, 0.0], [6.0, 0.0], [6.0, 6.0], [3.0, 1.0], [0.0, 6.0]], dtype=torch.float64)
    expected = shapely.Polygon(ring.numpy()).intersection(shapely.box(0, 0, 6, 4)).area
    assert polygon_area(clip_ring(ring, 4, 6)).item() == pytest.approx(expected, abs=1e-12)


def test_strided_rings_give_the_bytes_of_contiguous_ones() -> None:
    rings = outlines(40, 8)
    height, width, theta = canvases(40, 9)
    strided = [torch.stack((ring, -ring), 1)[:, 0].flip(1).flip(1) for ring in rings]
    columns = [torch.stack(ring.unbind(1)).T for ring in rings]
    wide = height.repeat_interleave(2)[::2]
    expected = clip_rings(rings, height, width)
    for other in (strided, columns):
        assert not any(ring.is_contiguous() for ring in columns)
        parts = clip_rings(other, wide, width)
        assert stored(parts) == stored(expected)
        assert stored(refit_rings(parts, theta)) == stored(refit_rings(expected, theta))


def test_strided_boxes_give_the_bytes_of_contiguous_ones(random_rboxes: Callable[..., Tensor]) -> None:
    boxes = random_rboxes(60, seed=26, spread=60.0)
    expected = clip_rboxes(boxes, 40, 50)
    assert stored(clip_rboxes(boxes.T.contiguous().T, 40, 50)) == stored(expected)
    assert stored(clip_rboxes(torch.cat((boxes, boxes), 1)[:, :5], 40, 50)) == stored(expected)


def test_inputs_are_not_written() -> None:
    rings = outlines(20, 10)
    before = stored(rings)
    refit_rings(clip_rings(rings, 50, 60), 0.3)
    assert stored(rings) == before


def test_no_rings_and_empty_rings() -> None:
    assert clip_rings([], 4, 4) == ()
    assert refit_rings([], 0.0).rboxes.shape == (0, 5)
    nothing = torch.zeros(0, 2)
    assert clip_ring(nothing, 4, 4).shape == (0, 2)
    triangle = torch.tensor([[0.0, 0.0], [2.0, 0.0], [0.0, 2.0]])
    parts = clip_rings([nothing, triangle], 4, 4)
    assert [len(part) for part in parts] == [0, 3]
    assert refit_rings(parts, 0.0).areas.tolist() == [0, 2]


@pytest.mark.parametrize("bad", [math.nan, math.inf, -math.inf])
def test_a_ring_that_is_not_finite_has_no_visible_part_and_leaves_the_others_alone(bad: float) -> None:
    rings = outlines(10, 11)
    clean = clip_rings(rings, 50, 60)
    rings[4] = rings[4].clone()
    rings[4][1, 0] = bad
    parts = clip_rings(rings, 50, 60)
    assert parts[4].shape == (0, 2)
    assert stored([*parts[:4], *parts[5:]]) == stored([*clean[:4], *clean[5:]])


@pytest.mark.parametrize("bad", [math.nan, math.inf])
@pytest.mark.parametrize("column", range(5))
def test_a_box_that_is_not_finite_leaves_zeros(
    bad: float, column: int, random_rboxes: Callable[..., Tensor]
) -> None:
    boxes = random_rboxes(12, seed=27, spread=60.0)
    clean = clip_rboxes(boxes, 40, 50)
    boxes[3, column] = bad
    clipped = clip_rboxes(boxes, 40, 50)
    others = torch.arange(12) != 3
    assert not any(tensor[3].any() for tensor in clipped)
    assert stored([t[others] for t in clipped]) == stored([t[others] for t in clean])


@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16, torch.int64])
def test_other_dtypes_are_computed_wide_and_returned_in_float32(dtype: torch.dtype) -> None:
    rings = [(ring * 2).to(dtype) for ring in outlines(10, 12)]
    parts = clip_rings(rings, 50, 60)
    assert stored(parts) == stored(clip_rings([ring.float() for ring in rings], 50, 60))
    boxes = torch.tensor([[4, 1, 4, 2, 0], [9, 9, 4, 2, 1]]).to(dtype)
    assert stored(clip_rboxes(boxes, 4, 5)) == stored(clip_rboxes(boxes.float(), 4, 5))


def test_the_gradient_of_a_clipped_ring_is_that_of_finite_differences() -> None:
    ring = torch.tensor([[-1.0, 1.2], [3.0, -0.5], [5.5, 2.0], [2.0, 4.5]], dtype=torch.float64)
    ring.requires_grad_()
    assert torch.autograd.gradcheck(lambda r: clip_ring(r, 4, 5), ring)
    assert torch.autograd.gradcheck(lambda r: tuple(refit_ring(clip_ring(r, 4, 5), 0.3)), ring)


def test_the_gradient_of_clipped_boxes_is_that_of_finite_differences(
    random_rboxes: Callable[..., Tensor],
) -> None:
    boxes = random_rboxes(8, seed=28, spread=50.0).requires_grad_()
    areas = clip_rboxes(boxes, 40, 50).areas
    assert (areas > 0).any()
    assert torch.autograd.gradcheck(lambda b: tuple(clip_rboxes(b, 40, 50)), boxes)


def test_values_with_gradients_have_the_bytes_of_those_without(random_rboxes: Callable[..., Tensor]) -> None:
    boxes = random_rboxes(50, seed=29, spread=60.0)
    with_gradient = clip_rboxes(boxes.clone().requires_grad_(), 40, 50)
    assert with_gradient.areas.requires_grad
    assert stored([t.detach() for t in with_gradient]) == stored(clip_rboxes(boxes, 40, 50))


def test_a_canvas_per_box_is_that_canvas(random_rboxes: Callable[..., Tensor]) -> None:
    boxes = random_rboxes(12, seed=30, spread=60.0).reshape(3, 4, 5)
    height, width = (
        torch.tensor([20.0, 40.0, 60.0]).unsqueeze(1),
        torch.tensor([50.0, 30.0, 10.0]).unsqueeze(1),
    )
    together = clip_rboxes(boxes, height, width)
    for i in range(3):
        alone = clip_rboxes(boxes[i], height[i].item(), width[i].item())
        assert stored([t[i] for t in together]) == stored(alone)


def lose_order(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(
        "lucid_geometry.rings.torch.argsort", lambda owners, stable: torch.arange(len(owners))
    )


def sum_in_another_order(monkeypatch: pytest.MonkeyPatch) -> None:
    def area(vertices: Tensor) -> Tensor:
        return polygon_area(vertices.flip(-2) if vertices.dim() == 3 else vertices)

    monkeypatch.setattr("lucid_geometry.refit.polygon_area", area)


def cut_in_float32(monkeypatch: pytest.MonkeyPatch) -> None:
    whole = sys.modules["lucid_geometry.rings"]._half_plane  # type: ignore[attr-defined]

    def rough(vertices: Tensor, *rest: object) -> tuple[Tensor, Tensor]:
        slots, keep = whole(vertices, *rest)
        return (slots.float().double() if vertices.dim() == 3 else slots), keep

    monkeypatch.setattr("lucid_geometry.rings._half_plane", rough)


@pytest.mark.parametrize("mutation", [lose_order, sum_in_another_order, cut_in_float32])
def test_the_comparison_of_bytes_sees_a_grouped_route_that_differs(
    mutation: Callable[[pytest.MonkeyPatch], None], monkeypatch: pytest.MonkeyPatch
) -> None:
    rings = outlines(200, 13)
    height, width, theta = canvases(200, 14)
    parts = one_by_one(rings, height, width)
    expected = stored(parts) + stored(refitted(parts, theta))
    mutation(monkeypatch)
    many = clip_rings(rings, height, width)
    assert stored(many) + stored(refit_rings(many, theta)) != expected


def test_shapes_that_are_no_ring_are_refused() -> None:
    with pytest.raises(ValueError, match=r"ring must have shape \(P, 2\), got \(2, 3, 2\)"):
        clip_ring(torch.zeros(2, 3, 2), 4, 4)
    with pytest.raises(ValueError, match=r"\(\.\.\., 2\)"):
        clip_rings([torch.zeros(3, 3)], 4, 4)
    with pytest.raises(ValueError, match="ring must have shape"):
        refit_rings([torch.zeros(2)], 0.0)
