import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from lucid_geometry import Letterbox


@pytest.mark.parametrize(
    ("height", "width", "ratio", "new", "pads"),
    [
        (427, 640, 1.0, (427, 640), (106, 107, 0, 0)),
        (333, 500, 1.28, (426, 640), (107, 107, 0, 0)),
        (1080, 1920, 1 / 3, (360, 640), (140, 140, 0, 0)),
        (20, 1000, 0.64, (13, 640), (313, 314, 0, 0)),
        (500, 333, 1.28, (640, 426), (0, 0, 107, 107)),
    ],
)
def test_known_images_on_a_640_canvas(
    height: int, width: int, ratio: float, new: tuple[int, int], pads: tuple[int, ...]
) -> None:
    box = Letterbox(height, width, 640, 640)
    assert box.ratio == pytest.approx(ratio)
    assert (box.new_height, box.new_width) == new
    assert (box.pad_top, box.pad_bottom, box.pad_left, box.pad_right) == pads


def test_upscaling_can_be_forbidden() -> None:
    box = Letterbox(100, 50, 640, 640, allow_upscale=False)
    assert (box.ratio, box.new_height, box.pad_left) == (1.0, 100, 295)


def test_a_sliver_keeps_one_row() -> None:
    assert Letterbox(1, 10000, 64, 64).new_height == 1


side = st.integers(1, 4000)


@given(side, side, side, side)
def test_image_and_padding_fill_the_canvas(h: int, w: int, canvas_h: int, canvas_w: int) -> None:
    box = Letterbox(h, w, canvas_h, canvas_w)
    assert box.pad_top + box.new_height + box.pad_bottom == canvas_h
    assert box.pad_left + box.new_width + box.pad_right == canvas_w
    assert min(box.pad_top, box.pad_left, box.pad_bottom, box.pad_right) >= 0


@given(side, side, st.integers(0, 10**6))
def test_the_inverse_undoes_the_forward_map(h: int, w: int, seed: int) -> None:
    box = Letterbox(h, w, 640, 480)
    g = torch.Generator().manual_seed(seed)
    points = torch.rand(4, 2, generator=g, dtype=torch.float64) * 4000
    torch.testing.assert_close(box.inverse_points(box.forward_points(points)), points, rtol=1e-12, atol=1e-8)


def test_points_boxes_rotated_boxes_and_the_matrix_agree() -> None:
    box = Letterbox(333, 500, 640, 640)
    points = torch.tensor([[10.0, 20.0], [300.0, 111.0]])
    mapped = box.forward_points(points)
    homogeneous = torch.cat((points.double(), torch.ones(2, 1, dtype=torch.float64)), 1) @ box.matrix().T
    torch.testing.assert_close(mapped.double(), homogeneous[:, :2], rtol=0, atol=1e-4)
    assert torch.equal(box.forward_boxes(points.reshape(1, 4)), mapped.reshape(1, 4))
    rboxes = torch.cat((points, torch.tensor([[8.0, 4.0, 0.3], [9.0, 5.0, 2.0]])), 1)
    out = box.forward_rboxes(rboxes)
    assert torch.equal(out[:, :2], mapped)
    torch.testing.assert_close(out[:, 2:4], rboxes[:, 2:4] * 1.28)
    assert torch.equal(out[:, 4], rboxes[:, 4])
    torch.testing.assert_close(box.inverse_rboxes(out), rboxes)
    torch.testing.assert_close(
        box.inverse_boxes(box.forward_boxes(points.reshape(1, 4))), points.reshape(1, 4)
    )


def test_the_dtype_comes_back_and_nothing_is_clipped() -> None:
    box = Letterbox(100, 100, 50, 50)
    assert box.forward_points(torch.tensor([[-10, 500]])).tolist() == [[-5.0, 250.0]]
    assert box.forward_points(torch.zeros(0, 2, dtype=torch.float64)).dtype == torch.float64


@pytest.mark.parametrize("bad", [0, -1, 2.5, True])
def test_a_side_that_is_no_positive_whole_number_is_refused_by_name(bad: object) -> None:
    with pytest.raises(ValueError, match="canvas_width"):
        Letterbox(10, 10, 10, bad)  # type: ignore[arg-type]
