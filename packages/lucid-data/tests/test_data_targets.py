import pytest
import torch

from lucid_data import Targets


def make(n, **fields):
    boxes = torch.arange(4 * n, dtype=torch.float32).view(n, 4)
    return Targets.of(boxes, torch.arange(n), **fields)


def square(at=0.0):
    return torch.tensor([[at, at], [at + 4, at], [at + 4, at + 4]], dtype=torch.float32)


@pytest.mark.parametrize(
    ("field", "value"),
    [
        ("boxes", torch.zeros(2, 5)),
        ("boxes", torch.zeros(3, 4)),
        ("labels", torch.zeros(2, 1, dtype=torch.int64)),
        ("rboxes", torch.zeros(1, 5)),
        ("difficult", torch.zeros(1, dtype=torch.bool)),
        ("keypoints", torch.zeros(1, 3, 3)),
        ("keypoints", torch.zeros(2, 3, 2)),
        ("crowd", torch.zeros(1, 5)),
        ("mask_ok", torch.zeros(3, dtype=torch.bool)),
        ("area", torch.zeros(2, 1)),
        ("polygons", ((),)),
        ("polygons", ((torch.zeros(2, 2),), ())),
    ],
)
def test_a_shape_that_does_not_fit_is_a_value_error_naming_the_field(field, value):
    with pytest.raises(ValueError, match=f"Targets.{field}"):
        make(2).replace(**{field: value})


@pytest.mark.parametrize(
    ("field", "value"),
    [
        ("boxes", torch.zeros(2, 4, dtype=torch.float64)),
        ("labels", torch.zeros(2, dtype=torch.int32)),
        ("difficult", torch.zeros(2)),
        ("keypoints", torch.zeros(2, 3, 3, dtype=torch.int64)),
        ("area", torch.zeros(2, dtype=torch.int64)),
        ("polygons", ((torch.zeros(3, 2, dtype=torch.int64),), ())),
    ],
)
def test_a_dtype_that_does_not_fit_is_a_type_error_naming_the_field(field, value):
    with pytest.raises(TypeError, match=f"Targets.{field}"):
        make(2).replace(**{field: value})


def test_empty_has_right_shapes_and_dtypes():
    empty = Targets.empty()
    assert len(empty) == 0
    assert empty.boxes.shape == (0, 4)
    assert empty.keypoints.shape == (0, 0, 3)
    assert empty.labels.dtype == torch.int64


def test_filter_moves_every_modality_with_one_mask():
    targets = make(
        3,
        polygons=[[square(0)], [square(1), square(2)], []],
        rboxes=torch.arange(15.0).view(3, 5),
        keypoints=torch.arange(18.0).view(3, 2, 3),
        difficult=torch.tensor([True, False, True]),
        crowd=torch.ones(2, 4),
    )
    kept = targets.filter(torch.tensor([False, True, True]))
    assert kept.labels.tolist() == [1, 2]
    assert torch.equal(kept.boxes, targets.boxes[1:])
    assert torch.equal(kept.rboxes, targets.rboxes[1:])
    assert torch.equal(kept.keypoints, targets.keypoints[1:])
    assert kept.difficult.tolist() == [False, True]
    assert kept.mask_ok.tolist() == [True, False]
    assert [len(rings) for rings in kept.polygons] == [2, 0]
    assert len(kept.crowd) == 2


def test_filtering_everything_away_gives_canonical_empties_and_keeps_crowd():
    kept = make(2, keypoints=torch.ones(2, 3, 3), crowd=torch.ones(1, 4)).filter(
        torch.zeros(2, dtype=torch.bool)
    )
    assert kept.keypoints.shape == (0, 0, 3)
    assert len(kept.crowd) == 1


def test_filter_refuses_a_mask_of_another_kind_or_length():
    with pytest.raises(TypeError, match="bool"):
        make(2).filter(torch.tensor([0, 1]))
    with pytest.raises(ValueError, match="keep"):
        make(2).filter(torch.tensor([True]))


def test_concat_keeps_order_and_treats_background_as_neutral():
    whole = Targets.concat(
        [make(2, keypoints=torch.ones(2, 3, 3)), Targets.empty(), make(1, keypoints=torch.ones(1, 3, 3))]
    )
    assert whole.labels.tolist() == [0, 1, 0]
    assert whole.keypoints.shape == (3, 3, 3)


def test_concat_of_nothing_is_empty():
    assert len(Targets.concat([])) == 0


def test_concat_accepts_outlines_on_some_items_only():
    whole = Targets.concat([make(1, polygons=[[square()]]), make(2)])
    assert [len(rings) for rings in whole.polygons] == [1, 0, 0]
    assert whole.mask_ok.tolist() == [True, False, False]


def test_concat_refuses_items_that_disagree_on_keypoints_or_rotated_boxes():
    with pytest.raises(ValueError, match="keypoints"):
        Targets.concat([make(1, keypoints=torch.ones(1, 3, 3)), make(1, keypoints=torch.ones(1, 4, 3))])
    with pytest.raises(ValueError, match="keypoints"):
        Targets.concat([make(1, keypoints=torch.ones(1, 3, 3)), make(1)])
    with pytest.raises(ValueError, match="rotated"):
        Targets.concat([make(1, rboxes=torch.ones(1, 5)), make(1)])
