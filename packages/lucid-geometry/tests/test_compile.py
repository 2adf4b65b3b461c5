"""Everything a loss or an assigner calls traces into one graph and stays the same within rounding."""

from collections.abc import Callable

import pytest
import torch
from torch import Tensor

from lucid_geometry import (
    aligned_box_iou,
    aligned_rotated_box_iou,
    box_iou,
    canonicalize_rboxes,
    complete_box_iou,
    points_in_rboxes,
    probiou_loss,
    rboxes_to_polygons,
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


@pytest.mark.parametrize("function", [aligned_rotated_box_iou, probiou_loss])
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


def test_the_rest_is_one_graph(random_rboxes: Callable[..., Tensor]) -> None:
    boxes = random_rboxes(8)
    points = torch.rand(5, 2, dtype=torch.float64) * 40

    def everything(p: Tensor, r: Tensor) -> tuple[Tensor, Tensor, Tensor]:
        return canonicalize_rboxes(r), rboxes_to_polygons(r), points_in_rboxes(p, r)

    compiled = torch.compile(everything, fullgraph=True, backend="aot_eager")
    torch.testing.assert_close(compiled(points, boxes), everything(points, boxes))


def test_the_dense_form_survives_dynamic_shapes() -> None:
    compiled = torch.compile(box_iou, fullgraph=True, backend="aot_eager", dynamic=True)
    for n in (2, 3, 5):
        a, b = torch.rand(2, n, 4).cumsum(-1), torch.rand(2, n + 4, 4).cumsum(-1)
        torch.testing.assert_close(compiled(a, b), box_iou(a, b))
