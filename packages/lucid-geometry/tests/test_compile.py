"""Everything a loss or an assigner calls traces into one graph and stays the same within rounding."""

from collections.abc import Callable

import pytest
import torch
from torch import Tensor

import lucid_geometry as geometry
from lucid_geometry import (
    Affine,
    Letterbox,
    aligned_box_iou,
    aligned_rotated_box_iou,
    box_iou,
    complete_box_iou,
    probiou_loss,
    rotated_box_iou,
)

UPRIGHT = (torch.rand(2, 6, 4).cumsum(-1), torch.rand(2, 6, 4).cumsum(-1))


@pytest.mark.parametrize("function", [box_iou, aligned_box_iou, complete_box_iou])
def test_upright_functions_are_one_graph_with_gradients(function: Callable[..., Tensor]) -> None:
    compiled = torch.compile(function, fullgraph=True, backend="aot_eager")
    grads = []
    for call in (function, compiled):
        a = UPRIGHT[0].clone().requires_grad_()
        result = call(a, UPRIGHT[1], 1e-7)
        result.sum().backward()
        grads.append((result.detach(), a.grad))
    torch.testing.assert_close(grads[0], grads[1])


@pytest.mark.parametrize("function", [aligned_rotated_box_iou, rotated_box_iou, probiou_loss])
def test_rotated_functions_are_one_graph_with_gradients(
    function: Callable[..., Tensor], random_rboxes: Callable[..., Tensor]
) -> None:
    compiled = torch.compile(function, fullgraph=True, backend="aot_eager")
    b = random_rboxes(8, seed=1, spread=10)
    grads = []
    for call in (function, compiled):
        a = random_rboxes(8, spread=10).requires_grad_()
        result = call(a, b)
        result.sum().backward()
        grads.append((result.detach(), a.grad))
    torch.testing.assert_close(grads[0], grads[1])


AFFINE = Affine.rotation(0.3).about(20.0, 20.0)
LETTERBOX = Letterbox(48, 64, 96, 96)
# results whose number depends on the values cannot have a static shape
DYNAMIC = {"nms", "rotated_nms", "clip_ring", "clip_rings", "refit_rings"}
TRACED: dict[str, Callable[[Tensor, Tensor], object]] = {
    "aligned_box_iou": lambda b, r: aligned_box_iou(b, b + 1),
    "aligned_rotated_box_iou": lambda b, r: aligned_rotated_box_iou(r, r + 0.1),
    "angle_difference": lambda b, r: geometry.angle_difference(r[:, 4], b[:, 0]),
    "box_area": lambda b, r: geometry.box_area(b),
    "box_iou": lambda b, r: box_iou(b, b + 1),
    "canonicalize_rboxes": lambda b, r: geometry.canonicalize_rboxes(r),
    "clip_boxes": lambda b, r: geometry.clip_boxes(b, 3.0, 4.0),
    "clip_half_plane": lambda b, r: geometry.clip_half_plane(
        geometry.rboxes_to_polygons(r), b[:, :2], b[:, 2:]
    ),
    "clip_rboxes": lambda b, r: tuple(geometry.clip_rboxes(r, 20.0, 30.0)),
    "complete_box_iou": lambda b, r: complete_box_iou(b, b + 1),
    "convex_intersection": lambda b, r: geometry.convex_intersection(
        geometry.rboxes_to_polygons(r), geometry.rboxes_to_polygons(r + 0.5)
    ),
    "cxcywh_to_xyxy": lambda b, r: geometry.cxcywh_to_xyxy(b),
    "dota_to_rboxes": lambda b, r: geometry.dota_to_rboxes(geometry.rboxes_to_polygons(r).flatten(1)),
    "flip_rboxes_horizontal": lambda b, r: geometry.flip_rboxes_horizontal(r, 64.0),
    "flip_rboxes_vertical": lambda b, r: geometry.flip_rboxes_vertical(r, 64.0),
    "opencv_to_rboxes": lambda b, r: geometry.opencv_to_rboxes(r),
    "points_in_rboxes": lambda b, r: geometry.points_in_rboxes(b[:, :2], r),
    "polygon_area": lambda b, r: geometry.polygon_area(geometry.rboxes_to_polygons(r)),
    "polygons_to_rboxes": lambda b, r: tuple(
        geometry.polygons_to_rboxes(geometry.rboxes_to_polygons(r), fit) for fit in ("mean", "minarea")
    ),
    "probiou": lambda b, r: geometry.probiou(r, r + 0.1),
    "probiou_loss": lambda b, r: probiou_loss(r, r + 0.1),
    "rboxes_to_boxes": lambda b, r: geometry.rboxes_to_boxes(r),
    "rboxes_to_dota": lambda b, r: geometry.rboxes_to_dota(r),
    "rboxes_to_opencv": lambda b, r: geometry.rboxes_to_opencv(r),
    "rboxes_to_polygons": lambda b, r: geometry.rboxes_to_polygons(r),
    "rboxes_to_torchvision": lambda b, r: geometry.rboxes_to_torchvision(r),
    "refit_ring": lambda b, r: tuple(geometry.refit_ring(b[:, :2], 0.3)),
    "rotate_rboxes_clockwise": lambda b, r: geometry.rotate_rboxes_clockwise(r, 64.0),
    "rotated_box_iou": lambda b, r: rotated_box_iou(r, r + 0.1),
    "torchvision_to_rboxes": lambda b, r: geometry.torchvision_to_rboxes(r),
    "xywh_to_xyxy": lambda b, r: geometry.xywh_to_xyxy(b),
    "xyxy_to_cxcywh": lambda b, r: geometry.xyxy_to_cxcywh(b),
    "xyxy_to_xywh": lambda b, r: geometry.xyxy_to_xywh(b),
    "Affine": lambda b, r: (AFFINE.points(b[:, :2]), AFFINE.boxes(b), AFFINE.rboxes(r)),
    "Letterbox": lambda b, r: (
        LETTERBOX.forward_boxes(b),
        LETTERBOX.inverse_boxes(b),
        LETTERBOX.forward_points(b[:, :2]),
        LETTERBOX.inverse_points(b[:, :2]),
        LETTERBOX.forward_rboxes(r),
        LETTERBOX.inverse_rboxes(r),
    ),
}


def test_every_public_name_is_traced_or_named_as_dynamic() -> None:
    assert set(geometry.__all__) - {"ClippedRBoxes"} == set(TRACED) | DYNAMIC


@pytest.mark.parametrize("name", TRACED)
def test_it_is_one_graph(name: str, random_rboxes: Callable[..., Tensor]) -> None:
    boxes, rboxes = torch.rand(8, 4, dtype=torch.float64).cumsum(-1), random_rboxes(8)
    compiled = torch.compile(TRACED[name], fullgraph=True, backend="eager")
    torch.testing.assert_close(compiled(boxes, rboxes), TRACED[name](boxes, rboxes))


def test_the_dense_form_survives_dynamic_shapes() -> None:
    compiled = torch.compile(box_iou, fullgraph=True, backend="aot_eager", dynamic=True)
    for n in (2, 3, 5):
        a, b = torch.rand(2, n, 4).cumsum(-1), torch.rand(2, n + 4, 4).cumsum(-1)
        torch.testing.assert_close(compiled(a, b), box_iou(a, b))


def test_rotated_overlap_survives_dynamic_shapes(random_rboxes: Callable[..., Tensor]) -> None:
    compiled = torch.compile(rotated_box_iou, fullgraph=True, backend="aot_eager", dynamic=True)
    for n in (2, 3, 5):
        a, b = random_rboxes(n), random_rboxes(n + 4, seed=1)
        torch.testing.assert_close(compiled(a, b), rotated_box_iou(a, b))
