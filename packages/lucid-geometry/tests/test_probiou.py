import math
from collections.abc import Callable

import pytest
import torch
from torch import Tensor

from lucid_geometry import probiou, probiou_loss


def row(*values: float) -> Tensor:
    return torch.tensor([values], dtype=torch.float64)


PAIRS = [
    ((10, 10, 8, 4, 0.3), (11, 9, 6, 5, -0.2), 0.163764, 0.388662),
    ((0, 0, 40, 10, math.pi / 4), (0, 0, 40, 10, 0), 0.507219, 0.630739),
    ((0, 0, 30, 6, 0.5), (12, 0, 30, 6, 0.5), 1.563929, 0.889206),
]


@pytest.mark.parametrize(("a", "b", "distance", "hellinger"), PAIRS)
def test_published_pairs(
    a: tuple[float, ...], b: tuple[float, ...], distance: float, hellinger: float
) -> None:
    assert probiou_loss(row(*a), row(*b), "bhattacharyya").item() == pytest.approx(distance, abs=1e-6)
    assert probiou_loss(row(*a), row(*b)).item() == pytest.approx(hellinger, abs=1e-6)
    assert probiou(row(*a), row(*b)).item() == pytest.approx(1 - hellinger, abs=1e-6)


def covariance(box: Tensor) -> Tensor:
    c, s = torch.cos(box[4]), torch.sin(box[4])
    turn = torch.stack((torch.stack((c, -s)), torch.stack((s, c))))
    return turn @ torch.diag(box[2:4] ** 2 / 12) @ turn.T


def test_the_distance_is_bhattacharyyas_of_the_two_gaussians(random_rboxes: Callable[..., Tensor]) -> None:
    a, b = random_rboxes(50, seed=5), random_rboxes(50, seed=6)
    actual = probiou_loss(a, b, "bhattacharyya")
    for p, q, value in zip(a, b, actual, strict=True):
        sp, sq = covariance(p), covariance(q)
        mean = (sp + sq) / 2
        d = p[:2] - q[:2]
        expected = (
            d @ torch.linalg.solve(mean, d) / 8
            + torch.log(torch.det(mean) / torch.sqrt(torch.det(sp) * torch.det(sq))) / 2
        )
        assert value.item() == pytest.approx(expected.item(), rel=1e-9, abs=1e-12)


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
def test_a_box_against_itself_gives_exactly_one_and_no_gradient(
    random_rboxes: Callable[..., Tensor], dtype: torch.dtype
) -> None:
    boxes = random_rboxes(30, dtype=dtype).requires_grad_()
    target = boxes.detach().clone()
    assert torch.equal(probiou(boxes, target), torch.ones(30, dtype=dtype))
    probiou_loss(boxes, target).sum().backward()
    assert torch.equal(boxes.grad, torch.zeros_like(target))


def test_the_two_descriptions_of_a_square_are_one_box() -> None:
    assert (
        probiou_loss(row(0, 0, 20, 20, 0.1), row(0, 0, 20, 20, 0.1 + math.pi / 2), "bhattacharyya").item()
        == 0
    )


def test_thin_boxes_keep_their_digits_in_float32() -> None:
    a, b = row(0, 0, 1000, 1, 0.3), row(3, 1, 990, 1, 0.301)
    for form in ("hellinger", "bhattacharyya"):
        single = probiou_loss(a.float(), b.float(), form).item()  # type: ignore[arg-type]
        assert single == pytest.approx(probiou_loss(a, b, form).item(), rel=1e-3)  # type: ignore[arg-type]


def test_a_side_below_the_floor_gets_no_gradient_and_the_others_a_finite_one() -> None:
    a = row(0, 0, 5, 0, 0.1).requires_grad_()
    probiou_loss(a, row(1, 1, 4, 2, 0.2)).sum().backward()
    assert a.grad[0, 3] == 0
    assert torch.isfinite(a.grad).all()


@pytest.mark.parametrize("form", ["hellinger", "bhattacharyya"])
def test_the_gradient_is_that_of_finite_differences(form: str, random_rboxes: Callable[..., Tensor]) -> None:
    a, b = random_rboxes(5, seed=7).requires_grad_(), random_rboxes(5, seed=8)
    assert torch.autograd.gradcheck(lambda x: probiou_loss(x, b, form), a)  # type: ignore[arg-type]


@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16])
def test_half_precision_is_computed_wide_and_comes_back_half(dtype: torch.dtype) -> None:
    a, b = row(*PAIRS[0][0]).to(dtype), row(*PAIRS[0][1]).to(dtype)
    result = probiou(a, b)
    assert result.dtype == dtype
    assert torch.equal(result, probiou(a.float(), b.float()).to(dtype))


def test_all_pairs_by_broadcasting(random_rboxes: Callable[..., Tensor]) -> None:
    a, b = random_rboxes(3), random_rboxes(4, seed=1)
    full = probiou(a.unsqueeze(-2), b.unsqueeze(-3))
    assert full.shape == (3, 4)
    torch.testing.assert_close(full[2, 1], probiou(a[2], b[1]))


def test_another_form_is_refused() -> None:
    with pytest.raises(ValueError, match="kld"):
        probiou_loss(row(*PAIRS[0][0]), row(*PAIRS[0][1]), "kld")  # type: ignore[arg-type]
