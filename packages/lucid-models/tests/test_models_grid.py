"""Anchor points and the decoding of upright boxes."""

import pytest
import torch

from lucid_models import decode_boxes, make_points


def test_points_are_cell_centres_level_by_level() -> None:
    points, strides = make_points(64, 96)
    assert len(points) == 96 + 24 + 6
    assert points[12 * 3 + 5].tolist() == [5.5 * 8, 3.5 * 8]
    assert points[96 + 6 * 1 + 4].tolist() == [4.5 * 16, 1.5 * 16]
    assert strides.unique_consecutive().tolist() == [8.0, 16.0, 32.0]
    assert [len(make_points(s, s)[0]) for s in (64, 128, 640, 1024)] == [84, 336, 8400, 21504]


def test_points_of_no_strides_are_empty() -> None:
    points, strides = make_points(64, 64, ())
    assert points.shape == (0, 2)
    assert strides.shape == (0,)


@pytest.mark.parametrize("canvas", [(64, 72), (0, 64), (-32, 64)])
def test_points_refuse_a_canvas_the_strides_do_not_divide(canvas: tuple[int, int]) -> None:
    with pytest.raises(ValueError, match="canvas"):
        make_points(*canvas)


def test_points_are_cached_and_usable_after_inference_mode() -> None:
    with torch.inference_mode():
        points, _ = make_points(96, 160)
    assert not points.is_inference()
    assert make_points(96, 160)[0] is points


def test_decoding_does_not_clamp_and_is_float32_in_mixed_precision() -> None:
    points, strides = torch.tensor([[10.0, 10.0]]), torch.tensor([2.0])
    box = torch.tensor([[1.0, 2.0, -3.0, 4.0]], dtype=torch.bfloat16)
    decoded = decode_boxes(box, points, strides)
    assert decoded.dtype == torch.float32
    assert decoded.tolist() == [[8.0, 6.0, 4.0, 18.0]]
