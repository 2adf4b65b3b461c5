import math
from collections.abc import Callable

import pytest
import shapely
import torch
from hypothesis import given
from hypothesis import strategies as st
from torch import Tensor

from lucid_geometry import Affine, canonicalize_rboxes, rboxes_to_polygons

number = st.floats(-3, 3)


@given(number, number, number, number)
def test_maps_compose_right_to_left_and_invert(angle: float, dx: float, dy: float, shear: float) -> None:
    a, b = (
        Affine.rotation(angle) @ Affine.shear(shear / 6, 0),
        Affine.translation(dx, dy) @ Affine.scaling(2, 0.5),
    )
    p = torch.rand(5, 2, dtype=torch.float64)
    torch.testing.assert_close((a @ b).points(p), a.points(b.points(p)))
    torch.testing.assert_close((a @ b).inverse().points((a @ b).points(p)), p)


def test_each_constructor_does_what_it_says() -> None:
    p = torch.tensor([[2.0, 1.0]], dtype=torch.float64)
    assert Affine.identity().points(p).tolist() == [[2, 1]]
    assert Affine.translation(3, -1).points(p).tolist() == [[5, 0]]
    assert Affine.scaling(3, 2).points(p).tolist() == [[6, 2]]
    torch.testing.assert_close(Affine.rotation(math.pi / 2).points(p).tolist(), [[-1.0, 2.0]])
    torch.testing.assert_close(Affine.shear(math.pi / 4, 0).points(p).tolist(), [[3.0, 1.0]])
    torch.testing.assert_close(Affine.shear(0, math.pi / 4).points(p).tolist(), [[2.0, 3.0]])
    assert Affine.scaling(2, 2).about(2, 1).points(p).tolist() == [[2, 1]]


@given(number, st.floats(0.2, 3), number)
def test_boxes_are_the_envelopes_shapely_finds(angle: float, scale: float, shear: float) -> None:
    m = Affine.rotation(angle) @ Affine.scaling(scale, 1.5) @ Affine.shear(shear / 6, 0)
    (a, b, tx), (c, d, ty) = m.matrix[:2].tolist()
    box = torch.tensor([[1.0, 2.0, 7.0, 4.0]], dtype=torch.float64)
    expected = shapely.affinity.affine_transform(shapely.box(1, 2, 7, 4), [a, b, c, d, tx, ty]).bounds
    torch.testing.assert_close(m.boxes(box)[0].tolist(), list(expected))


def test_rotated_boxes_follow_a_similarity_exactly(random_rboxes: Callable[..., Tensor]) -> None:
    boxes = canonicalize_rboxes(random_rboxes(50))
    m = Affine.translation(5, 6) @ Affine.rotation(0.7) @ Affine.scaling(1.5, 1.5)
    turned = m.rboxes(boxes)
    torch.testing.assert_close(turned[:, 2:4], boxes[:, 2:4] * 1.5)
    # the same four points, wherever they start
    a, b = m.polygons(rboxes_to_polygons(boxes)), rboxes_to_polygons(turned)
    assert torch.cdist(a, b).min(-1).values.max() < 1e-9


def test_a_mirror_keeps_rectangles(random_rboxes: Callable[..., Tensor]) -> None:
    boxes = random_rboxes(20)
    m = Affine.scaling(-1, 1)
    a, b = m.polygons(rboxes_to_polygons(boxes)), rboxes_to_polygons(m.rboxes(boxes))
    assert torch.cdist(a, b).min(-1).values.max() < 1e-9


def test_under_shear_corners_move_by_a_bounded_amount(random_rboxes: Callable[..., Tensor]) -> None:
    boxes = canonicalize_rboxes(random_rboxes(100))
    m = Affine.shear(0.1, 0)
    a, b = m.polygons(rboxes_to_polygons(boxes)), rboxes_to_polygons(m.rboxes(boxes))
    e = a[:, 1:3] - a[:, 0:2]
    lengths = e.norm(dim=-1)
    loss = (math.pi / 2 - torch.acos((e[:, 0] * e[:, 1]).sum(-1) / lengths.prod(-1))).abs()
    bound = lengths.amin(-1) * torch.sin(loss / 2)
    assert (torch.cdist(a, b).min(-1).values.amax(-1) <= bound + 1e-9).all()


def test_dtypes_come_back() -> None:
    m = Affine.translation(1, 1)
    assert m.points(torch.zeros(1, 2)).dtype == torch.float32
    assert m.boxes(torch.zeros(0, 4)).shape == (0, 4)
    assert m.rboxes(torch.zeros(0, 5, dtype=torch.float64)).dtype == torch.float64


def test_matrices_that_are_no_affine_map_are_refused() -> None:
    with pytest.raises(TypeError, match="float64"):
        Affine(torch.eye(3))
    with pytest.raises(ValueError, match=r"\(3, 3\)"):
        Affine(torch.eye(2, dtype=torch.float64))
    with pytest.raises(ValueError, match="last row"):
        Affine(torch.ones(3, 3, dtype=torch.float64))
    with pytest.raises(ValueError, match="singular"):
        Affine.scaling(0, 1).inverse()
