"""The network: output contract, refusals, initialisation, deployed and folded views."""

import math

import pytest
import torch

from lucid_models import Detector, build_detector, deployed, fuse
from lucid_models.blocks import Attention, AttentionBlock


def test_outputs_are_dense_over_all_anchor_points(detector: Detector) -> None:
    output = detector(torch.rand(2, 3, 64, 96))
    anchors = 8 * 12 + 4 * 6 + 2 * 3
    for branch in (output.o2m, output.o2o):
        assert branch.cls.shape == (2, anchors, 3)
        assert branch.box.shape == (2, anchors, 4)
        assert branch.coeff is branch.angle is branch.keypoints is branch.keypoint_sigma is None


def test_dense_order_is_level_by_level_and_row_major(detector: Detector) -> None:
    images = torch.rand(1, 3, 64, 96)
    detector.eval()
    levels = detector.neck(detector.backbone(images))
    maps = [stem(level) for stem, level in zip(detector.head.o2o.box, levels, strict=True)]
    box = detector.head.o2o(levels).box
    assert torch.allclose(box[0, 12 * 3 + 5], maps[0][0, :, 3, 5], atol=1e-5)
    assert torch.allclose(box[0, 96 + 6 * 2 + 1], maps[1][0, :, 2, 1], atol=1e-5)
    assert torch.allclose(box[0, 96 + 24 + 3 * 1 + 2], maps[2][0, :, 1, 2], atol=1e-5)


def test_branches_share_no_parameters_and_both_reach_the_backbone(detector: Detector) -> None:
    o2o = {id(p) for p in detector.head.o2o.parameters()}
    assert o2o.isdisjoint({id(p) for p in detector.head.o2m.parameters()})
    for name in ("o2o", "o2m"):
        detector.zero_grad()
        getattr(detector(torch.rand(2, 3, 32, 32)), name).cls.sum().backward()
        assert detector.backbone.stem.conv.weight.grad.abs().sum() > 0


@pytest.mark.parametrize(
    ("images", "error", "message"),
    [
        (torch.zeros(1, 3, 64, 65), ValueError, "64 x 65"),
        (torch.zeros(1, 3, 0, 32), ValueError, "positive multiples of 32"),
        (torch.zeros(1, 4, 64, 64), ValueError, r"\(1, 4, 64, 64\)"),
        (torch.zeros(3, 64, 64), ValueError, r"\(B, 3, H, W\)"),
        (torch.zeros(1, 3, 64, 64, dtype=torch.uint8), TypeError, "divide by 255"),
    ],
)
def test_wrong_images_are_refused_before_any_compute(
    detector: Detector, images: torch.Tensor, error: type[Exception], message: str
) -> None:
    detector.backbone.stem.register_forward_pre_hook(lambda *_: pytest.fail("computed"))
    with pytest.raises(error, match=message):
        detector(images)
    with pytest.raises(error, match=message):
        deployed(detector)(images)


def test_class_biases_start_at_the_prior_and_boxes_at_two_strides() -> None:
    detector = build_detector("detect", "n", num_classes=5)
    for branch in (detector.head.o2o, detector.head.o2m):
        for stem in branch.cls:
            assert torch.allclose(stem[-1].bias, torch.tensor(-math.log(99.0)))
        for stem in branch.box:
            assert torch.all(stem[-1].bias == 2.0)


def test_no_fresh_box_is_inverted() -> None:
    detector = build_detector("detect", "s", num_classes=5).train()
    box = detector(torch.rand(4, 3, 96, 96)).o2o.box
    assert torch.all(box[..., :2] + box[..., 2:] > 0)


def test_one_seed_gives_one_network() -> None:
    states = []
    for _ in range(2):
        torch.manual_seed(7)
        states.append(build_detector("detect", "n", num_classes=4).state_dict())
    assert all(torch.equal(states[0][key], states[1][key]) for key in states[0])


def test_attention_equals_its_formula() -> None:
    block = Attention(128).eval()
    x = torch.randn(2, 128, 3, 5)
    qkv = block.qkv(x).reshape(2, 2, 128, 15)
    q, k, v = qkv[:, :, :32], qkv[:, :, 32:64], qkv[:, :, 64:]
    weights = torch.softmax(torch.einsum("bhdi,bhdj->bhij", q, k) / 32**0.5, -1)
    mixed = torch.einsum("bhdj,bhij->bhdi", v, weights).reshape(2, 128, 3, 5)
    expected = block.project(mixed + block.local(v.reshape(2, 128, 3, 5)))
    assert torch.allclose(block(x), expected, atol=1e-5)


def test_attention_block_with_zero_closing_affines_is_the_identity() -> None:
    block = AttentionBlock(64)
    for unit in (block.attention.project, block.perceptron[1]):
        torch.nn.init.zeros_(unit.norm.weight)
        torch.nn.init.zeros_(unit.norm.bias)
    x = torch.randn(2, 64, 4, 4)
    assert torch.equal(block(x), x)


def test_attention_refuses_a_width_its_heads_do_not_divide() -> None:
    with pytest.raises(ValueError, match="width 193"):
        Attention(193)


def test_deployed_view_equals_the_branch_and_shares_storage(lively: Detector) -> None:
    lively.eval()
    images = torch.rand(2, 3, 64, 64)
    for name in ("o2o", "o2m"):
        view = deployed(lively, name)
        assert torch.equal(view(images).box, getattr(lively(images), name).box)
    assert deployed(lively).backbone.stem.conv.weight is lively.backbone.stem.conv.weight


@pytest.mark.parametrize("name", ["o2o", "o2m"])
def test_folded_copy_agrees_with_evaluation(lively: Detector, name: str) -> None:
    lively.eval()
    images = torch.rand(2, 3, 64, 64)
    expected, folded = getattr(lively(images), name), fuse(lively, name)(images)
    assert torch.allclose(folded.cls, expected.cls, atol=1e-4)
    assert torch.allclose(folded.box, expected.box, atol=1e-4)


def test_folding_leaves_the_detector_alone(lively: Detector) -> None:
    lively.train()
    before = {key: value.clone() for key, value in lively.state_dict().items()}
    folded = fuse(lively)
    assert lively.training
    assert not folded.training
    assert not any(p.requires_grad for p in folded.parameters())
    assert all(p.requires_grad for p in lively.parameters())
    assert all(torch.equal(before[key], value) for key, value in lively.state_dict().items())


def test_memory_format_does_not_change_the_result(lively: Detector) -> None:
    lively.eval()
    images = torch.rand(2, 3, 64, 64)
    expected = lively(images).o2o
    lively.to(memory_format=torch.channels_last)
    got = lively(images.to(memory_format=torch.channels_last)).o2o
    assert torch.allclose(got.cls, expected.cls, atol=1e-4)
    assert torch.allclose(got.box, expected.box, atol=1e-4)


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ({"task": "depth"}, "unknown task 'depth'; choose one of detect, segment, pose, obb"),
        ({"size": "q"}, "unknown size 'q'; choose one of n, s, m, l, x"),
        ({"num_classes": 0}, "at least 1, got 0"),
        ({"num_classes": 3, "names": ["a", "b"]}, "2 names for num_classes=3"),
        ({"names": ["a", "b", "a"]}, "repeated: a"),
        ({"num_keypoints": 17}, "no keypoints"),
        ({"image_size": 100}, "multiple of 32, got 100"),
    ],
)
def test_builder_refuses(arguments: dict[str, object], message: str) -> None:
    with pytest.raises(ValueError, match=message):
        build_detector(**arguments)  # type: ignore[arg-type]


def test_names_set_the_class_count_and_default_to_numbers() -> None:
    detector = build_detector(names=["a", "b"])
    assert (detector.num_classes, detector.names, detector.image_size) == (2, ("a", "b"), 640)
    assert build_detector(num_classes=2).names == ("class_0", "class_1")
    assert build_detector().num_classes == 80
