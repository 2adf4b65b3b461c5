import math
from collections.abc import Callable

import pytest
import torch
from torch import Tensor

from lucid_geometry import (
    canonicalize_rboxes,
    dota_to_rboxes,
    opencv_to_rboxes,
    rboxes_to_dota,
    rboxes_to_opencv,
    rboxes_to_polygons,
    rboxes_to_torchvision,
    torchvision_to_rboxes,
)

BOTH_WAYS = [
    (rboxes_to_torchvision, torchvision_to_rboxes),
    (rboxes_to_opencv, opencv_to_rboxes),
    (rboxes_to_dota, dota_to_rboxes),
]


@pytest.mark.parametrize(("there", "back"), BOTH_WAYS)
def test_there_and_back_is_the_same_box(
    random_rboxes: Callable[..., Tensor], there: Callable[[Tensor], Tensor], back: Callable[[Tensor], Tensor]
) -> None:
    boxes = canonicalize_rboxes(random_rboxes(100))
    torch.testing.assert_close(back(there(boxes)), boxes)


def test_torchvision_turns_the_other_way_in_degrees() -> None:
    out = rboxes_to_torchvision(torch.tensor([1.0, 2.0, 4.0, 2.0, math.pi / 6]))
    torch.testing.assert_close(out, torch.tensor([1.0, 2.0, 4.0, 2.0, -30.0]))


def test_opencv_angles_lie_in_its_range(random_rboxes: Callable[..., Tensor]) -> None:
    quarters = torch.tensor([[0.0, 0.0, 4.0, 2.0, k * math.pi / 2] for k in range(4)], dtype=torch.float64)
    out = rboxes_to_opencv(torch.cat((random_rboxes(100), quarters)))
    assert (out[:, 4] > 0).all()
    assert (out[:, 4] <= 90).all()


def box_points(box: Tensor) -> Tensor:
    """OpenCV's documented corner formula of a RotatedRect."""
    cx, cy, w, h, degrees = box.unbind(-1)
    b, a = torch.cos(degrees * math.pi / 180) / 2, torch.sin(degrees * math.pi / 180) / 2
    p0 = torch.stack((cx - a * h - b * w, cy + b * h - a * w), -1)
    p1 = torch.stack((cx + a * h - b * w, cy - b * h - a * w), -1)
    centre = torch.stack((cx, cy), -1)
    return torch.stack((p0, p1, 2 * centre - p0, 2 * centre - p1), -2)


def test_opencv_draws_the_same_corners(random_rboxes: Callable[..., Tensor]) -> None:
    boxes = random_rboxes(50)
    ours, theirs = rboxes_to_polygons(boxes), box_points(rboxes_to_opencv(boxes))
    assert torch.cdist(ours, theirs).min(-1).values.max() < 1e-9


def test_dota_lists_corners_clockwise_on_screen() -> None:
    assert rboxes_to_dota(torch.tensor([5.0, 2.5, 6.0, 3.0, 0.0])).tolist() == [2, 1, 8, 1, 8, 4, 2, 4]


def test_a_wrong_number_of_columns_is_refused() -> None:
    with pytest.raises(ValueError, match=r"corners must have shape \(..., 8\)"):
        dota_to_rboxes(torch.zeros(1, 6))


@pytest.mark.parametrize(("width", "height"), [(40.0, 10.0), (40.0, 39.0), (10.0, 40.0), (20.0, 20.0)])
def test_eight_points_come_back_as_the_same_box_at_every_degree(width: float, height: float) -> None:
    degrees = torch.arange(-360, 360, dtype=torch.float64)
    sides = torch.tensor([50.0, 60.0, width, height], dtype=torch.float64).expand(len(degrees), 4)
    boxes = torch.cat((sides, torch.deg2rad(degrees).unsqueeze(1)), 1)
    back = dota_to_rboxes(rboxes_to_dota(boxes))
    torch.testing.assert_close(rboxes_to_polygons(back).mean(1), boxes[:, :2])
    torch.testing.assert_close(back[:, 2:4], canonicalize_rboxes(boxes)[:, 2:4])
    # the same four corners; a square has no longer side to start from
    gaps = torch.cdist(rboxes_to_polygons(back), rboxes_to_polygons(boxes)).min(-1).values
    assert gaps.max() < 1e-9


def test_156_degrees_stay_156_degrees() -> None:
    box = torch.tensor([10.0, 10.0, 8.0, 4.0, math.radians(156)], dtype=torch.float64)
    turned = dota_to_rboxes(rboxes_to_dota(box))
    assert math.degrees(turned[4].item()) % 180 == pytest.approx(156)
