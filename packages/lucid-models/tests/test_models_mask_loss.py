"""Mask and semantic losses against scalar forms, pixel by pixel."""

import math

import pytest
import torch
from torch import Tensor
from torch.nn.functional import adaptive_max_pool2d, binary_cross_entropy_with_logits

from lucid_models import (
    Positives,
    assemble_masks,
    dice_loss,
    mask_loss,
    mask_values,
    semantic_loss,
    semantic_targets,
)
from lucid_models.losses import cropped


def scalar_value(logits: Tensor, target: Tensor, box: list[float]) -> Tensor:
    x1, y1, x2, y2 = box
    total = logits.sum() * 0
    for i in range(logits.shape[0]):
        for j in range(logits.shape[1]):
            if x1 <= j + 0.5 < x2 and y1 <= i + 0.5 < y2:
                total = total + binary_cross_entropy_with_logits(logits[i, j], target[i, j].float())
    return total / max(1, max(0, x2 - x1) * max(0, y2 - y1))


def test_masks_are_weighted_sums_of_prototypes() -> None:
    coeff, prototypes = torch.randn(2, 3, 4), torch.randn(2, 4, 5, 6)
    expected = torch.einsum("bpk,bkhw->bphw", coeff, prototypes)
    assert torch.allclose(assemble_masks(coeff, prototypes), expected, atol=1e-5)


def test_published_value_of_zero_logits() -> None:
    value = mask_values(torch.zeros(8, 8), torch.rand(8, 8) > 0.5, torch.tensor([1.0, 2, 4.5, 5.2]))
    assert value.item() == pytest.approx(math.log(2) * 9 / 11.2, abs=1e-6)


@pytest.mark.parametrize(
    "box",
    [[1.0, 2, 4.5, 5.2], [0, 0, 8, 8], [3, 3, 3, 3], [5, 5, 2, 2], [2.4, 2.4, 2.6, 2.6], [-4, -4, 3.5, 1]],
)
def test_cropped_value_equals_the_sum_over_pixels(box: list[float]) -> None:
    logits, target = (torch.randn(8, 8) * 3).double().requires_grad_(), torch.rand(8, 8) > 0.5
    got, expected = mask_values(logits, target, torch.tensor(box).double()), scalar_value(logits, target, box)
    assert got.item() == pytest.approx(expected.item(), abs=1e-6)
    (gradient,) = torch.autograd.grad(got, logits)
    assert torch.allclose(gradient, torch.autograd.grad(expected, logits)[0], atol=1e-6)


def scene() -> tuple[Tensor, Tensor, Positives, Tensor, Tensor, Tensor]:
    coeff, prototypes = torch.randn(2, 9, 4), torch.randn(2, 4, 6, 6)
    chosen = Positives(
        torch.tensor([[1, 3, 4, 8], [0, 2, 0, 0]]),
        torch.tensor([[0, 0, 0, 2], [1, 1, 0, 0]]),
        torch.tensor([[True] * 4, [True, True, False, False]]),
    )
    boxes = torch.tensor(
        [[[0.0, 0, 3, 4], [1, 1, 4, 4], [2, 2, 6, 6]], [[0, 0, 1, 1], [1, 0, 5, 5], [0] * 4]]
    )
    return coeff, prototypes, chosen, torch.rand(2, 3, 6, 6) > 0.5, boxes, torch.ones(2, 3) > 0


def per_instance_oracle(
    coeff: Tensor, prototypes: Tensor, chosen: Positives, masks: Tensor, boxes: Tensor, learnable: Tensor
) -> Tensor:
    instances: dict[tuple[int, int], list[Tensor]] = {}
    for b in range(2):
        for anchor, row, valid in zip(*(field[b].tolist() for field in chosen), strict=True):
            if valid and learnable[b, row]:
                logits = (coeff[b, anchor][:, None, None] * prototypes[b]).sum(0)
                value = scalar_value(logits, masks[b, row], boxes[b, row].tolist())
                instances.setdefault((b, row), []).append(value)
    means = [torch.stack(values).mean() for values in instances.values()]
    return torch.stack(means).mean() if means else coeff.sum() * 0


@pytest.mark.parametrize("known", ["all", "some", "none"])
def test_loss_is_the_mean_over_instances_of_their_positives_mean(known: str) -> None:
    coeff, prototypes, chosen, masks, boxes, learnable = scene()
    if known != "all":
        learnable = torch.tensor([[True, True, False], [known == "some"] * 3]) & (known == "some")
    coeff, prototypes = coeff.double().requires_grad_(), prototypes.double().requires_grad_()
    arguments = (coeff, prototypes, chosen, masks, boxes.double(), learnable)
    got, expected = mask_loss(*arguments), per_instance_oracle(*arguments)
    assert got.item() == pytest.approx(expected.item(), abs=1e-6)
    gradients = torch.autograd.grad(got, (coeff, prototypes))
    oracles = torch.autograd.grad(expected, (coeff, prototypes), allow_unused=True)
    for gradient, oracle in zip(gradients, oracles, strict=True):
        assert torch.allclose(gradient, torch.zeros_like(gradient) if oracle is None else oracle, atol=1e-6)


def test_coefficients_of_filler_rows_change_nothing() -> None:
    coeff, prototypes, chosen, masks, boxes, learnable = scene()
    spoiled = coeff.clone()
    unused = torch.ones(2, 9) > 0
    for b, anchors in enumerate(([1, 3, 4, 8], [0, 2])):
        unused[b, anchors] = False
    spoiled[unused] = float("nan")
    expected = mask_loss(coeff, prototypes, chosen, masks, boxes, learnable)
    assert mask_loss(spoiled, prototypes, chosen, masks, boxes, learnable) == expected


@pytest.mark.parametrize("cells", [1, 1 << 26])
def test_an_accelerators_pieces_give_the_same_value_and_gradients(
    cells: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    coeff, prototypes, chosen, masks, boxes, learnable = scene()
    results = []
    for pieces in ("_sparse_pieces", "_dense_pieces"):
        monkeypatch.setattr(cropped, "_CELLS", cells)
        monkeypatch.setattr(cropped, "_sparse_pieces", getattr(cropped, pieces))
        inputs = coeff.double().requires_grad_(), prototypes.double().requires_grad_()
        value = mask_loss(*inputs, chosen, masks, boxes.double(), learnable)
        results.append((value, *torch.autograd.grad(value, inputs)))
    for sparse, dense in zip(*results, strict=True):
        assert torch.allclose(sparse, dense, rtol=1e-12, atol=1e-14)


def test_boxes_beyond_the_grid_and_rows_in_any_order_keep_the_definition() -> None:
    g = torch.Generator().manual_seed(3)
    coeff, prototypes = torch.randn(2, 40, 4, generator=g), torch.randn(2, 4, 7, 9, generator=g)
    corner = torch.rand(2, 40, 2, generator=g) * 16 - 4
    boxes = torch.cat((corner, corner + torch.rand(2, 40, 2, generator=g) * 8 - 1), -1)
    boxes[0, :3] = torch.tensor([[-9.0, -9, -5, -5], [20, 20, 30, 30], [0, 30, 9, 40]])
    masks = torch.rand(2, 40, 7, 9, generator=g) > 0.5
    row = torch.stack([torch.randperm(40, generator=g) for _ in range(2)])
    weight = torch.rand(2, 40, generator=g) * (torch.rand(2, 40, generator=g) < 0.8)
    inputs = [t.double().requires_grad_() for t in (coeff, prototypes)]
    got = cropped.cropped_cross_entropy(*inputs, masks, boxes.double(), row, weight.double())
    images = torch.arange(2)[:, None]
    target, box = masks[images, row], boxes.double()[images, row]
    value = mask_values(assemble_masks(*inputs), target, box)
    area = (box[..., 2:] - box[..., :2]).clamp(min=0).prod(-1).clamp(min=1)
    expected = (value * area * weight).sum()
    assert got.item() == pytest.approx(expected.item(), rel=1e-12)
    pairs = zip(torch.autograd.grad(got, inputs), torch.autograd.grad(expected, inputs), strict=True)
    assert all(torch.allclose(one, other, rtol=1e-10, atol=1e-12) for one, other in pairs)


def test_the_operator_is_one_that_tracing_and_recording_may_rely_on() -> None:
    coeff, prototypes, chosen, masks, boxes, _ = scene()
    own = coeff[:, :4].clone().requires_grad_()
    arguments = (own, prototypes.requires_grad_(), masks, boxes, chosen.row, torch.rand(2, 4))
    operator = torch.ops.lucid_models.cropped_cross_entropy.default
    checks = ("test_schema", "test_autograd_registration", "test_faketensor")
    torch.library.opcheck(operator, arguments, test_utils=checks)


def test_another_grid_is_refused() -> None:
    coeff, prototypes, chosen, masks, boxes, learnable = scene()
    with pytest.raises(ValueError, match=r"masks have grid \(6, 5\), prototypes \(6, 6\)"):
        mask_loss(coeff, prototypes, chosen, masks[..., :5], boxes, learnable)


def test_semantic_targets_are_class_unions_max_pooled() -> None:
    masks, labels = torch.rand(2, 5, 8, 12) < 0.1, torch.randint(0, 3, (2, 5))
    valid = torch.tensor([[True] * 5, [True, True, False, False, False]])
    expected = torch.zeros(2, 3, 8, 12)
    for b in range(2):
        for n in range(5):
            if valid[b, n]:
                expected[b, labels[b, n]] = torch.maximum(expected[b, labels[b, n]], masks[b, n].float())
    assert torch.equal(semantic_targets(masks, labels, valid, 3), adaptive_max_pool2d(expected, (4, 6)))


def test_semantic_targets_without_instances_are_zeros() -> None:
    got = semantic_targets(torch.zeros(2, 0, 8, 8) > 0, torch.zeros(2, 0).long(), torch.zeros(2, 0) > 0, 3)
    assert got.shape == (2, 3, 4, 4)
    assert not got.any()


def test_semantic_loss_is_mean_cross_entropy_plus_dice() -> None:
    logits, target = torch.randn(2, 3, 4, 4), (torch.rand(2, 3, 4, 4) > 0.5).float()
    p = logits.sigmoid()
    dice = 0.0
    for b in range(2):
        for c in range(3):
            both, sizes = (p[b, c] * target[b, c]).sum(), p[b, c].sum() + target[b, c].sum()
            dice += (1 - (2 * both + 1) / (sizes + 1)).item() / 6
    expected = binary_cross_entropy_with_logits(logits, target).item() + dice
    assert semantic_loss(logits, target).item() == pytest.approx(expected, abs=1e-6)


def test_ignored_cells_count_in_neither_part() -> None:
    logits, target = torch.randn(1, 1, 4, 6), (torch.rand(1, 1, 4, 6) > 0.5).float()
    ignored = torch.zeros(1, 1, 4, 6) > 0
    ignored[..., 4:] = True
    expected = semantic_loss(logits[..., :4], target[..., :4])
    assert semantic_loss(logits, target, ignored).item() == pytest.approx(expected.item(), abs=1e-6)
    nothing = semantic_loss(logits, target, torch.zeros_like(ignored))
    assert nothing.item() == pytest.approx(semantic_loss(logits, target).item(), abs=1e-6)
    assert semantic_loss(logits, target, torch.ones_like(ignored)) == 0


def test_dice_of_published_pair_and_of_nothing() -> None:
    p, t = torch.tensor([0.9, 0.2, 0.1, 0.8]), torch.tensor([1.0, 0, 0, 1])
    assert dice_loss(p.view(1, 1, 2, 2), t.view(1, 1, 2, 2)).item() == pytest.approx(0.12, abs=1e-6)
    assert dice_loss(torch.zeros(1, 1, 2, 2), torch.zeros(1, 1, 2, 2)) == 0
