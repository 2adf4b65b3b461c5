"""Points are joined as the data set says, and as COCO's person where that is what they are."""

import json

import pytest
import torch
from matplotlib.figure import Figure

from lucid_data import Targets, open_catalog, synthetic
from lucid_models import Predictions
from lucid_viz import (
    COCO_PERSON,
    RenderOptions,
    batch_sheet,
    burn_predictions,
    draw_ground_truth,
    draw_predictions,
    skeleton_of,
)
from lucid_viz.skeletons import COCO_POINTS

# the category as COCO's annotation file states it, points counted from 1
PUBLISHED = [
    [16, 14],
    [14, 12],
    [17, 15],
    [15, 13],
    [12, 13],
    [6, 12],
    [7, 13],
    [6, 7],
    [6, 8],
    [7, 9],
    [8, 10],
    [9, 11],
    [2, 3],
    [1, 2],
    [1, 3],
    [2, 4],
    [3, 5],
    [4, 6],
    [5, 7],
]
QUIET = RenderOptions(show_labels=False)


def person(points, names=("person",)) -> Predictions:
    return Predictions(
        torch.tensor([[5.0, 5.0, 75.0, 55.0]]),
        torch.tensor([0.9]),
        torch.tensor([0]),
        names,
        (60, 80),
        keypoints=points,
    )


def row(seen=(0, 1, 2)):
    """17 points along a line, those of ``seen`` visible."""
    points = torch.zeros(1, 17, 3)
    points[0, :, 0], points[0, :, 1] = 10 + 4 * torch.arange(17), 30.0
    points[0, list(seen), 2] = 0.9
    return points


def bones(ax):
    lines = [line for line in ax.lines if line.get_label() == "skeleton"]
    ends = [
        [tuple(round(v) for v in end) for end in line.get_xydata()[:, :] if end[0] == end[0]]
        for line in lines
    ]
    return [sorted(pair) for one in ends for pair in zip(one[::2], one[1::2], strict=True)]


@pytest.fixture
def axes():
    return Figure().subplots()


def test_the_person_of_coco_is_the_published_one():
    assert [[first + 1, second + 1] for first, second in COCO_PERSON] == PUBLISHED


def test_predicted_bones_join_what_is_thought_visible(axes):
    draw_predictions(axes, person(row()), QUIET)
    # nose and both eyes make a triangle; no other edge has two visible ends
    assert sorted(bones(axes)) == [[(10, 30), (14, 30)], [(10, 30), (18, 30)], [(14, 30), (18, 30)]]
    assert {line.get_linestyle() for line in axes.lines if line.get_label() == "skeleton"} == {"-"}


def test_bones_of_labels_are_dashed_and_join_hidden_points_too(axes):
    points = row()
    points[0, :3, 2] = torch.tensor([2.0, 1.0, 0.0])
    targets = Targets.of(torch.tensor([[5.0, 5, 75, 55]]), torch.tensor([0]), keypoints=points)
    draw_ground_truth(axes, targets, "pose", ("person",))
    assert bones(axes) == [[(10, 30), (14, 30)]]
    assert {line.get_linestyle() for line in axes.lines if line.get_label() == "skeleton"} == {"--"}


def test_other_points_are_not_joined_unless_asked(axes):
    draw_predictions(axes, person(row(), names=("cat",)), QUIET)
    assert bones(axes) == []
    draw_predictions(axes, person(row()), RenderOptions(show_labels=False, skeleton=()))
    assert bones(axes) == []
    draw_predictions(
        axes, person(row(), names=("cat",)), RenderOptions(show_labels=False, skeleton=((0, 2),))
    )
    assert bones(axes) == [[(10, 30), (18, 30)]]


def test_burned_bones_lie_between_their_points():
    image = torch.full((3, 60, 80), 40, dtype=torch.uint8)
    two = person(torch.tensor([[[20.0, 30.0, 0.9], [60.0, 30.0, 0.9]]]), ("pair",))
    drawn = burn_predictions(image, two, RenderOptions(show_labels=False, skeleton=((0, 1),)))
    without = burn_predictions(image, two, RenderOptions(show_labels=False))
    changed = (drawn != without).any(0).nonzero()
    assert set(changed[:, 1].tolist()) >= set(range(24, 57))
    assert (changed[:, 0] - 29.5).abs().max() <= 3


def test_a_point_that_is_not_there_is_named(axes):
    for draw in (
        lambda options: draw_predictions(axes, person(row()), options),
        lambda options: burn_predictions(torch.zeros(3, 60, 80, dtype=torch.uint8), person(row()), options),
    ):
        with pytest.raises(ValueError, match=r"skeleton edge \(0, 17\): points are numbered from 0 to 16"):
            draw(RenderOptions(skeleton=((0, 17),)))


def test_samples_of_an_only_class_keep_their_bones():
    targets = Targets.of(
        torch.tensor([[5.0, 5, 75, 55]]), torch.tensor([0]), keypoints=row() * torch.tensor([1, 1, 3])
    )
    figure = batch_sheet([torch.zeros(3, 60, 80, dtype=torch.uint8)], [targets], ("person",), task="pose")
    assert len(bones(figure.axes[0])) == 3
    assert not figure.axes[0].texts


def stated(folder, **category):
    synthetic.write_coco(folder, splits={"val": 1}, size=64, task="pose")
    (file,) = folder.glob("**/*val*.json")
    document = json.loads(file.read_text())
    for one in document["categories"]:
        one.update(category)
    file.write_text(json.dumps(document))
    return open_catalog(folder, "val", "pose")


def test_a_data_set_says_what_it_joins(tmp_path):
    assert skeleton_of(stated(tmp_path / "a", skeleton=[[1, 2], [2, 3]])) == ((0, 1), (1, 2))
    assert skeleton_of(stated(tmp_path / "b", skeleton=[])) == ()
    with pytest.raises(ValueError, match="skeleton edge"):
        skeleton_of(stated(tmp_path / "c", skeleton=[[0, 1]]))


def test_other_tasks_have_none_and_persons_are_known_by_their_points(tmp_path):
    root = synthetic.write_coco(tmp_path, splits={"val": 1}, size=64)
    assert skeleton_of(open_catalog(root, "val")) is None
    assert len(COCO_POINTS) == 17
