"""Gradients are those of finite differences wherever a function has one."""

import math
from collections.abc import Callable

import pytest
import torch
from torch import Tensor

import lucid_geometry as geometry
from lucid_geometry import Affine, Letterbox, aligned_box_iou, aligned_rotated_box_iou, rotated_box_iou

AFFINE = Affine.rotation(0.3) @ Affine.shear(0.1, 0.0)
LETTERBOX = Letterbox(30, 50, 64, 64)
CANVAS = torch.tensor([[0.0, 0.0], [9.0, 0.0], [9.0, 8.0], [0.0, 8.0]], dtype=torch.float64)

BOXES: dict[str, Callable[[Tensor], Tensor]] = {
    "xyxy_to_cxcywh": geometry.xyxy_to_cxcywh,
    "cxcywh_to_xyxy": geometry.cxcywh_to_xyxy,
    "xyxy_to_xywh": geometry.xyxy_to_xywh,
    "xywh_to_xyxy": geometry.xywh_to_xyxy,
    "box_area": geometry.box_area,
    "clip_boxes": lambda b: geometry.clip_boxes(b, 5.5, 6.5),
    "Affine.boxes": AFFINE.boxes,
    "Letterbox.forward_boxes": LETTERBOX.forward_boxes,
    "Letterbox.inverse_boxes": LETTERBOX.inverse_boxes,
}
RBOXES: dict[str, Callable[[Tensor], Tensor]] = {
    "canonicalize_rboxes": geometry.canonicalize_rboxes,
    "rboxes_to_polygons": geometry.rboxes_to_polygons,
    "rboxes_to_boxes": geometry.rboxes_to_boxes,
    "flip_rboxes_horizontal": lambda r: geometry.flip_rboxes_horizontal(r, 30),
    "flip_rboxes_vertical": lambda r: geometry.flip_rboxes_vertical(r, 30),
    "rotate_rboxes_clockwise": lambda r: geometry.rotate_rboxes_clockwise(r, 30),
    "rboxes_to_torchvision": geometry.rboxes_to_torchvision,
    "torchvision_to_rboxes": geometry.torchvision_to_rboxes,
    "rboxes_to_opencv": geometry.rboxes_to_opencv,
    "opencv_to_rboxes": geometry.opencv_to_rboxes,
    "rboxes_to_dota and back": lambda r: geometry.dota_to_rboxes(geometry.rboxes_to_dota(r)),
    "polygon_area": lambda r: geometry.polygon_area(geometry.rboxes_to_polygons(r)),
    "convex_intersection": lambda r: geometry.convex_intersection(geometry.rboxes_to_polygons(r), CANVAS),
    "Affine.rboxes": AFFINE.rboxes,
    "Letterbox.forward_rboxes": LETTERBOX.forward_rboxes,
    "Letterbox.inverse_rboxes": LETTERBOX.inverse_rboxes,
}


@pytest.mark.parametrize("name", BOXES)
def test_of_upright_boxes(name: str) -> None:
    boxes = torch.tensor([[1.0, 2.0, 7.0, 9.0], [-1.0, 0.5, 5.0, 3.0]], dtype=torch.float64)
    assert torch.autograd.gradcheck(BOXES[name], boxes.requires_grad_())


@pytest.mark.parametrize("name", RBOXES)
def test_of_rotated_boxes(name: str) -> None:
    rboxes = torch.tensor([[4.0, 3.0, 7.0, 2.5, 0.4], [6.0, 7.0, 3.0, 8.0, -2.0]], dtype=torch.float64)
    assert torch.autograd.gradcheck(RBOXES[name], rboxes.requires_grad_())


def upright_pairs() -> tuple[Tensor, Tensor]:
    g = torch.Generator().manual_seed(4)
    first, second = (
        torch.cat((torch.rand(20, 2, generator=g) * 6, torch.rand(20, 2, generator=g) * 5 + 4), 1).double()
        for _ in range(2)
    )
    return first, second


@pytest.mark.parametrize("quarters", [0, 1, 2, -1])
def test_of_parallel_boxes_is_that_of_upright_overlap(quarters: int) -> None:
    # their edges have no extent along one axis of the other box
    first, second = upright_pairs()
    expected = first.clone().requires_grad_()
    upright = [geometry.cxcywh_to_xyxy(boxes) for boxes in (expected, second)]
    aligned_box_iou(*upright).sum().backward()
    turn = torch.full((20, 1), quarters * math.pi / 2, dtype=torch.float64)
    actual = first.clone().requires_grad_()
    order = [0, 1, 2, 3] if quarters % 2 == 0 else [0, 1, 3, 2]
    aligned_rotated_box_iou(
        torch.cat((actual[:, order], turn), 1), torch.cat((second, turn * 0), 1)
    ).sum().backward()
    torch.testing.assert_close(actual.grad, expected.grad, rtol=0, atol=1e-12)


def test_of_turning_one_of_two_parallel_boxes_is_that_of_finite_differences() -> None:
    first, second = (torch.cat((b, torch.zeros(20, 1, dtype=torch.float64)), 1) for b in upright_pairs())
    assert torch.autograd.gradcheck(lambda a: rotated_box_iou(a, second), first[:6].requires_grad_())


def test_of_overlap_flows_to_both_boxes(random_rboxes: Callable[..., Tensor]) -> None:
    a, b = (random_rboxes(4, seed=s, spread=8.0).requires_grad_() for s in (1, 2))
    assert torch.autograd.gradcheck(aligned_rotated_box_iou, (a, b))
    assert torch.autograd.gradcheck(rotated_box_iou, (a, b))


@pytest.mark.parametrize("noise", [0.0, 1e-300, 1e-200, 1e-17, 1e-12])
def test_of_equal_and_nearly_equal_boxes_is_finite(
    noise: float, random_rboxes: Callable[..., Tensor]
) -> None:
    a = random_rboxes(50, seed=3)
    b = a + noise
    a[:, 4], b[:, 4] = 0.0, noise
    a.requires_grad_()
    b.requires_grad_()
    aligned_rotated_box_iou(a, b).sum().backward()
    assert torch.isfinite(a.grad).all()
    assert torch.isfinite(b.grad).all()
