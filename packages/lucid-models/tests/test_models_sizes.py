"""Sizes against the published counts and the parameter formulas of the blocks."""

import pytest
import torch

from lucid_models import SIZES, TASKS, build_detector, count, fuse
from lucid_models.blocks import Attention, AttentionBlock, Bottleneck, ConvUnit, CrossStage

# deployed folded parameters, training checkpoint parameters (None: not stated), GFLOPs, at the task's own canvas
# and class count; each row in the order n, s, m, l, x
TARGETS = {
    "detect": (
        (2_408_932, 9_496_140, 20_411_132, 24_807_420, 55_725_948),
        (2_572_280, 10_009_784, 21_896_248, 26_299_704, 58_993_368),
        (5.3599, 20.6924, 68.1882, 86.4352, 193.8773),
    ),
    "segment": (
        (2_722_980, 10_396_300, 23_569_148, 27_965_436, 62_819_132),
        (None,) * 5,
        (9.1315, 34.2239, 121.5132, 139.7602, 313.5133),
    ),
    "obb": (
        (2_449_332, 9_756_972, 21_209_468, 25_605_756, 57_559_452),
        (2_652_984, 10_531_832, 23_493_688, 27_897_144, 62_661_528),
        (13.9516, 55.1263, 183.2860, 229.9985, 516.4902),
    ),
    "pose": (
        (2_926_494, 10_359_750, 21_538_166, 25_934_454, 57_557_832),
        (3_625_680, 11_755_568, 24_168_880, 28_572_336, 62_678_076),
        (7.4513, 23.8812, 73.0871, 91.3342, 201.7443),
    ),
}
STAGES = """
stem 448 896 1792 1792 2688
down_p2 4640 18496 73856 73856 166080
stage_p2 6520 25840 111232 172928 388416
down_p3 36928 147584 590080 590080 1327488
stage_p3 25840 102880 443648 689920 1550976
down_p4 147584 590080 2359808 2359808 5309184
stage_p4 86528 345088 1378304 2231296 5018112
down_p5 295168 1180160 2359808 2359808 5309184
stage_p5 345088 1378304 1378304 2231296 5018112
sppf 164224 656128 656128 656128 1475712
attn_p5 248320 988160 988160 1451008 3257856
td_p4 119296 476160 1640448 2493440 5607936
td_p3 34048 135680 541696 755200 1698048
down_n3 36928 147584 590080 590080 1327488
bu_p4 94720 377856 1509376 2362368 5313024
down_n4 147584 590080 2359808 2359808 5309184
bu_p5 461504 1840512 1971584 1971584 4431936
branch 153564 494652 1457020 1457020 3214524
"""


def parameters(module: torch.nn.Module) -> int:
    return sum(p.numel() for p in module.parameters())


@pytest.mark.parametrize("column", range(5))
@pytest.mark.parametrize("task", TASKS)
def test_parameters_and_operations_equal_the_published_sizes(task: str, column: int) -> None:
    result = count(task, list(SIZES)[column])
    deployed, training, gflops = (row[column] for row in TARGETS[task])
    assert result.params_deployed == deployed
    assert training is None or result.params_training == training
    assert round(result.gflops, 4) == gflops


@pytest.mark.parametrize("column", range(5))
def test_folded_parameters_per_stage(column: int) -> None:
    size = list(SIZES)[column]
    with torch.device("meta"):
        folded = fuse(build_detector("detect", size))
    modules = {**dict(folded.backbone.named_children()), **dict(folded.neck.named_children())}
    modules["branch"] = folded.branch
    expected = {line.split()[0]: int(line.split()[column + 1]) for line in STAGES.split("\n") if line}
    assert {name: parameters(modules[name]) for name in expected} == expected


@pytest.mark.parametrize("num_classes", [1, 15, 80, 300])
@pytest.mark.parametrize("size", SIZES)
def test_class_count_changes_only_the_class_stems_by_their_formula(size: str, num_classes: int) -> None:
    with torch.device("meta"):
        detector = build_detector("detect", size, num_classes=num_classes)
    widths = detector.neck.widths
    h = max(widths[0], min(num_classes, 100))
    assert {15: (64, 128, 256, 256, 384), 1: (64, 128, 256, 256, 384)}.get(num_classes, (h,) * 5)[
        list(SIZES).index(size)
    ] == h

    def unit(ci: int, co: int, k: int, groups: int = 1) -> int:
        return co * (ci // groups) * k * k + 2 * co

    expected = sum(
        unit(c, c, 3, c) + unit(c, h, 1) + unit(h, h, 3, h) + unit(h, h, 1) + (h + 1) * num_classes
        for c in widths
    )
    assert parameters(detector.head.o2o.cls) == parameters(detector.head.o2m.cls) == expected


def test_block_parameter_formulas() -> None:
    assert parameters(ConvUnit(12, 20, 3, groups=4)) == 20 * 3 * 9 + 2 * 20
    assert parameters(Bottleneck(16, 1.0)) == 18 * 16**2 + 4 * 16
    c, m = 32, 16
    assert parameters(CrossStage(c)) == 2 * (c * m + 2 * m) + 2 * (18 * m**2 + 4 * m) + 2 * m * c + 2 * c
    assert parameters(Attention(128)) == 3 * 128**2 + 17 * 128
    assert parameters(AttentionBlock(128)) == 7 * 128**2 + 23 * 128


def test_counting_a_detector_leaves_flags_and_weights() -> None:
    detector = build_detector("detect", "n", num_classes=2)
    detector.head.o2o.eval()
    flags = [module.training for module in detector.modules()]
    before = {key: value.clone() for key, value in detector.state_dict().items()}
    result = count(detector)
    assert [module.training for module in detector.modules()] == flags
    assert all(torch.equal(before[key], value) for key, value in detector.state_dict().items())
    assert result == count("detect", "n", num_classes=2)


@pytest.mark.parametrize("task", TASKS)
def test_operations_follow_the_canvas_area(task: str) -> None:
    side = TASKS[task].image_size // 2
    assert count(task, "n", image_size=side).gflops * 4 == pytest.approx(count(task, "n").gflops)


@pytest.mark.parametrize("table", [SIZES, TASKS])
def test_registries_are_read_only(table: dict[str, object]) -> None:
    with pytest.raises(TypeError):
        table["q"] = None  # type: ignore[index]
