"""Labels of every task are drawn where they are."""

import math

import pytest
import torch
from matplotlib.figure import Figure

from lucid_data import Targets
from lucid_viz import batch_sheet, draw_ground_truth


@pytest.fixture
def axes():
    return Figure().subplots()


def one_of_everything() -> Targets:
    return Targets.of(
        torch.tensor([[10.0, 10.0, 30.0, 20.0]]),
        torch.tensor([1]),
        polygons=(
            (
                torch.tensor([[10.0, 10.0], [30.0, 10.0], [30.0, 20.0]]),
                torch.tensor([[12.0, 18.0], [14.0, 18.0], [13.0, 20.0]]),
            ),
        ),
        rboxes=torch.tensor([[20.0, 15.0, 20.0, 10.0, math.pi / 2]]),
        keypoints=torch.tensor([[[11.0, 12.0, 2.0], [13.0, 14.0, 1.0], [0.0, 0.0, 0.0]]]),
        crowd=torch.tensor([[0.0, 0.0, 5.0, 6.0]]),
    )


def polygons(axes):
    return [patch for patch in axes.patches if type(patch).__name__ == "Polygon"]


def test_outlines_are_dashed_and_unfilled_ring_by_ring(axes):
    draw_ground_truth(axes, one_of_everything(), "segment")
    assert [patch.get_xy().tolist() for patch in polygons(axes)] == [
        [[10, 10], [30, 10], [30, 20], [10, 10]],
        [[12, 18], [14, 18], [13, 20], [12, 18]],
    ]
    assert all(patch.get_linestyle() == "--" and not patch.get_fill() for patch in polygons(axes))


def test_an_instance_without_an_outline_is_drawn_as_its_box(axes):
    targets = one_of_everything().replace(polygons=((),), crowd=torch.zeros(0, 4))
    draw_ground_truth(axes, targets, "segment")
    (box,) = axes.patches
    assert box.get_bbox().extents.tolist() == [10, 10, 30, 20]


def test_an_oriented_box_has_its_four_corners(axes):
    draw_ground_truth(axes, one_of_everything(), "obb")
    (patch,) = polygons(axes)
    corners = patch.get_xy()
    # 20 x 10 about (20, 15), turned by a quarter: 10 wide and 20 high
    assert sorted((round(x), round(y)) for x, y in corners[:4]) == [(15, 5), (15, 25), (25, 5), (25, 25)]


def test_points_are_hollow_small_when_hidden_and_absent_when_unlabelled(axes):
    draw_ground_truth(axes, one_of_everything(), "pose")
    marks = [(line.get_xydata().tolist(), line.get_markersize()) for line in axes.lines]
    assert marks == [([[11, 12]], 4.0), ([[13, 14]], 2.0)]
    assert {line.get_markerfacecolor() for line in axes.lines} == {"none"}


@pytest.mark.parametrize("task", ["detect", "segment", "pose", "obb"])
def test_ignore_regions_are_hatched(axes, task):
    draw_ground_truth(axes, one_of_everything(), task)
    (region,) = [p for p in axes.patches if p.get_hatch()]
    assert region.get_bbox().extents.tolist() == [0, 0, 5, 6]


def test_difficult_objects_are_dotted(axes):
    targets = one_of_everything().replace(difficult=torch.tensor([True]))
    draw_ground_truth(axes, targets)
    assert axes.patches[-1].get_linestyle() == ":"


def test_the_name_of_an_only_class_is_the_title_and_not_written_beside_objects():
    image = torch.zeros(3, 32, 32, dtype=torch.uint8)
    for names, written, title in ((("a",), 0, "a"), (("a\nb",), 0, "a b"), (("a", "b"), 1, "")):
        figure = batch_sheet([image], [one_of_everything()], names, task="obb")
        assert sum(len(ax.texts) for ax in figure.axes) == written
        assert figure.get_suptitle() == title
