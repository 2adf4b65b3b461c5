"""Keypoint likelihood, density, OKS and visibility against scalar forms and published values."""

import math

import pytest
import torch
from torch import Tensor
from torch.nn.functional import binary_cross_entropy_with_logits

from lucid_models import (
    COCO_SIGMAS,
    KeypointResiduals,
    ResidualFlow,
    keypoint_likelihood_loss,
    keypoint_residuals,
    oks_loss,
    oks_sigmas,
    visibility_loss,
)

UNIT = torch.tensor([0.0, 0, 1, 1])


def identity_flow() -> ResidualFlow:
    flow = ResidualFlow()
    for module in flow.modules():
        if isinstance(module, torch.nn.Linear):
            torch.nn.init.zeros_(module.weight)
            torch.nn.init.zeros_(module.bias)
    return flow


def lively_flow() -> ResidualFlow:
    flow = ResidualFlow().double()
    for p in flow.parameters():
        p.data += torch.randn_like(p) * 0.2
    return flow


def published(raw: tuple[float, float]) -> KeypointResiduals:
    points, target = torch.tensor([[0.5, 0.5]]), torch.tensor([[0.6, 0.3]])
    return keypoint_residuals(points, torch.tensor([raw]), target, UNIT, torch.tensor([True]))


@pytest.mark.parametrize(("raw", "expected"), [((0.0, 0.0), 0.6), ((-2.0, 1.0), 0.058586)])
def test_laplace_likelihood_of_published_values(raw: tuple[float, float], expected: float) -> None:
    assert keypoint_likelihood_loss(published(raw), None).item() == pytest.approx(expected, abs=1e-5)


def test_rle_of_the_published_value_with_the_identity_as_flow() -> None:
    parts = published((0.0, 0.0))
    assert keypoint_likelihood_loss(parts, identity_flow()(parts.x)).item() == pytest.approx(
        2.537877, abs=1e-5
    )


def test_log_sigma_may_count_twice() -> None:
    parts = published((0.0, 0.0))
    once, twice = (keypoint_likelihood_loss(parts, None, count).item() for count in (1, 2))
    assert twice - once == pytest.approx(2 * math.log(0.5), abs=1e-6)


def test_flow_has_three_linear_calls_per_layer_and_the_published_parameters() -> None:
    flow = ResidualFlow()
    assert sum(isinstance(module, torch.nn.Linear) for module in flow.modules()) == 18
    assert sum(p.numel() for p in flow.parameters()) == 6 * (128 + 4160 + 130 + 1)


def test_flow_inverts_exactly() -> None:
    flow, x = lively_flow(), torch.randn(50, 2).double() * 3
    assert torch.allclose(flow.generate(flow.to_noise(x)[0]), x, atol=1e-10)


def test_log_determinant_equals_the_jacobians() -> None:
    flow = lively_flow()
    for x in torch.randn(4, 2).double():
        jacobian = torch.autograd.functional.jacobian(lambda at: flow.to_noise(at)[0], x)
        assert torch.allclose(flow.to_noise(x)[1], jacobian.det().abs().log())


def test_density_integrates_to_one() -> None:
    line = torch.linspace(-8, 8, 161).double()
    grid = torch.cartesian_prod(line, line)
    with torch.no_grad():
        mass = ResidualFlow().double()(grid).exp().sum() * 0.1**2
    assert mass.item() == pytest.approx(1, abs=0.05)


def test_a_far_residual_stays_finite_in_value_and_gradient() -> None:
    flow, x = ResidualFlow(), torch.tensor([[300.0, -300.0]], requires_grad=True)
    for module in flow.modules():
        if isinstance(module, torch.nn.Linear):
            torch.nn.init.normal_(module.weight)
    loss = keypoint_likelihood_loss(KeypointResiduals(x, torch.zeros(1), torch.tensor([True])), flow(x))
    loss.backward()
    assert torch.isfinite(loss)
    assert all(torch.isfinite(p.grad).all() for p in (x, *flow.parameters()) if p.grad is not None)


def test_gradients_reach_points_and_uncertainty_with_the_flow_frozen() -> None:
    flow = ResidualFlow().requires_grad_(False)
    points, raw = torch.rand(3, 4, 2).requires_grad_(), torch.randn(3, 4, 2).requires_grad_()
    parts = keypoint_residuals(points, raw, torch.rand(3, 4, 2), UNIT.expand(3, 4), torch.ones(3, 4) > 0)
    keypoint_likelihood_loss(parts, flow(parts.x)).backward()
    assert points.grad is not None
    assert points.grad.all()
    assert raw.grad is not None
    assert raw.grad.all()


def selected_oracle(
    flow: ResidualFlow, points: Tensor, raw: Tensor, target: Tensor, boxes: Tensor, counted: Tensor
) -> Tensor:
    """RLE point by point over the counted ones alone."""
    values = []
    for i, k in counted.nonzero().tolist():
        x1, y1, x2, y2 = boxes[i].tolist()
        side = torch.tensor([max(1, x2 - x1), max(1, y2 - y1)]).double()
        sigma = raw[i, k].sigmoid().clamp(min=1e-6)
        x = (target[i, k] - points[i, k]) / side / sigma
        values.append((math.log(2) + x.abs() + sigma.log()).sum() - flow(x))
    return torch.stack(values).sum() / len(values)


def test_masked_likelihood_equals_the_selected_one_in_value_and_gradient() -> None:
    flow, counted = lively_flow(), torch.rand(6, 5) < 0.6
    points, raw = (
        (torch.rand(6, 5, 2).double() * 20).requires_grad_(),
        torch.randn(6, 5, 2).double().requires_grad_(),
    )
    corner = torch.rand(6, 2) * 10
    boxes = torch.cat((corner, corner + torch.rand(6, 2) * 20), -1).double()
    target = torch.rand(6, 5, 2).double() * 20
    target[~counted] = float("inf")  # what is not labelled may hold anything
    parts = keypoint_residuals(points, raw, target, boxes, counted)
    got = keypoint_likelihood_loss(parts, flow(parts.x))
    expected = selected_oracle(flow, points, raw, target, boxes, counted)
    assert got.item() == pytest.approx(expected.item(), abs=1e-6)
    inputs = (points, raw, *flow.parameters())
    for one, other in zip(
        torch.autograd.grad(got, inputs), torch.autograd.grad(expected, inputs), strict=True
    ):
        assert torch.allclose(one, other, atol=1e-6)


@pytest.mark.parametrize(("visible", "expected"), [((True, True), 0.465592), ((True, False), 0.324652)])
def test_oks_of_published_values(visible: tuple[bool, bool], expected: float) -> None:
    points = torch.tensor([[3.0, 0], [0, 4]])
    box, sigmas = torch.tensor([0.0, 0, 20, 5]), torch.tensor([0.1, 0.2])
    value = oks_loss(points, torch.zeros(2, 2), box, torch.tensor(visible), sigmas)
    assert 1 - value.item() == pytest.approx(expected, abs=1e-5)


def test_oks_counts_instances_with_a_labelled_point_alone() -> None:
    points, target = torch.rand(4, 3, 2) * 9, torch.rand(4, 3, 2) * 9
    counted = torch.tensor([[True, True, True], [False] * 3, [True, False, False], [False] * 3])
    boxes, sigmas = torch.tensor([0.0, 0, 9, 9]).expand(4, 4), torch.tensor([0.05, 0.1, 0.2])
    losses = []
    for i in (0, 2):
        seen = counted[i].nonzero()[:, 0].tolist()
        total = sum(
            math.exp(
                -((points[i, k] - target[i, k]) ** 2).sum().item() / (2 * 81 * (2 * sigmas[k].item()) ** 2)
            )
            for k in seen
        )
        losses.append(1 - total / len(seen))
    target = torch.where(counted[..., None], target, float("nan"))
    assert oks_loss(points, target, boxes, counted, sigmas).item() == pytest.approx(sum(losses) / 2, abs=1e-6)


def test_nothing_labelled_gives_exact_zeros_with_zero_gradients() -> None:
    none = torch.zeros(2, 3) > 0
    points, raw, logits = (torch.rand(*shape).requires_grad_() for shape in ((2, 3, 2), (2, 3, 2), (2, 3)))
    flow, target = ResidualFlow(), torch.full((2, 3, 2), float("nan"))
    parts = keypoint_residuals(points, raw, target, UNIT.expand(2, 4), none)
    total = keypoint_likelihood_loss(parts, flow(parts.x))
    total = total + oks_loss(points, target, UNIT.expand(2, 4), none, oks_sigmas(3))
    total = total + visibility_loss(logits, none, none.any(-1))
    total.backward()
    assert total == 0
    for tensor in (points, raw, logits, *flow.parameters()):
        assert tensor.grad is not None
        assert not tensor.grad.any()


def test_visibility_is_learned_on_annotated_instances_alone() -> None:
    logits, labelled = torch.randn(3, 4), torch.rand(3, 4) < 0.5
    instances = torch.tensor([True, False, True])
    expected = binary_cross_entropy_with_logits(logits[instances], labelled[instances].float())
    assert visibility_loss(logits, labelled, instances).item() == pytest.approx(expected.item(), abs=1e-6)


def test_constants_are_cocos_for_seventeen_points_and_uniform_otherwise() -> None:
    assert oks_sigmas(17).tolist() == pytest.approx(COCO_SIGMAS)
    assert oks_sigmas(4).tolist() == pytest.approx([0.072] * 4)
    assert oks_sigmas(2, (0.5, 0.25)).tolist() == [0.5, 0.25]


@pytest.mark.parametrize(
    ("count", "sigmas", "message"),
    [(3, (0.1, 0.1), "2 sigmas for 3"), (2, (0.1, 0.0), "positive"), (1, (), "0 sigmas for 1")],
)
def test_constants_that_do_not_fit_are_refused(count: int, sigmas: tuple[float, ...], message: str) -> None:
    with pytest.raises(ValueError, match=message):
        oks_sigmas(count, sigmas)
    with pytest.raises(ValueError, match="2 sigmas for 3"):
        oks_loss(torch.zeros(3, 2), torch.zeros(3, 2), UNIT, torch.ones(3) > 0, torch.ones(2))
