"""The four tasks' networks: what each predicts, what is shared, what is deployed."""

from collections.abc import Callable

import pytest
import torch

from lucid_models import (
    TASKS,
    BranchOutput,
    Detector,
    build_detector,
    checkpoint_header,
    deployed,
    fuse,
    load,
)

OfTask = Callable[[str], Detector]
ANCHORS = 8 * 12 + 4 * 6 + 2 * 3
FIELDS = {
    "detect": {},
    "segment": {"coeff": (2, ANCHORS, 32), "prototypes": (2, 32, 16, 24)},
    "obb": {"angle": (2, ANCHORS, 1)},
    "pose": {
        "keypoints": (2, ANCHORS, 5, 2),
        "keypoint_visibility": (2, ANCHORS, 5),
        "keypoint_sigma": (2, ANCHORS, 5, 2),
    },
}


def shapes(branch: BranchOutput) -> dict[str, tuple[int, ...]]:
    return {name: tuple(value.shape) for name, value in branch._asdict().items() if value is not None}


@pytest.mark.parametrize("task", TASKS)
def test_each_branch_predicts_what_its_task_names_and_nothing_else(task: str, of_task: OfTask) -> None:
    output = of_task(task)(torch.rand(2, 3, 64, 96))
    expected = {"cls": (2, ANCHORS, 3), "box": (2, ANCHORS, 4), **FIELDS[task]}
    assert shapes(output.o2m) == shapes(output.o2o) == expected
    assert (output.semantic is None) == (task != "segment")


@pytest.mark.parametrize("task", TASKS)
def test_one_seed_gives_every_task_the_same_trunk_boxes_and_classes(task: str) -> None:
    torch.manual_seed(7)
    plain = build_detector("detect", "n", num_classes=3).state_dict()
    torch.manual_seed(7)
    points = None if TASKS[task].num_keypoints is None else 5
    state = build_detector(task, "n", num_classes=3, num_keypoints=points).state_dict()
    assert all(torch.equal(state[key], value) for key, value in plain.items())
    assert (len(state) > len(plain)) == (task != "detect")


def test_the_semantic_map_exists_in_training_mode_alone(of_task: OfTask) -> None:
    detector, images = of_task("segment"), torch.rand(1, 3, 64, 96)
    with torch.no_grad():
        assert detector(images).semantic.shape == (1, 3, 8, 12)
        assert detector.eval()(images).semantic is None


def test_both_branches_share_one_tensor_of_prototypes(of_task: OfTask) -> None:
    output = of_task("segment")(torch.rand(1, 3, 64, 64))
    assert output.o2m.prototypes is output.o2o.prototypes
    assert output.o2m.coeff is not None
    assert output.o2m.coeff.abs().max() <= 1


def test_keypoint_channels_are_point_major(of_task: OfTask) -> None:
    detector, images = of_task("pose").eval(), torch.rand(1, 3, 64, 64)
    levels = detector.neck(detector.backbone(images))
    stem = detector.head.o2o.extra.stems[0]
    features = stem.trunk(levels[0])
    points, sigma = stem.points(features)[0, :, 3, 5], stem.sigma(features)[0, :, 3, 5]
    output, row = detector(images).o2o, 8 * 3 + 5
    for k in range(5):
        assert torch.allclose(output.keypoints[0, row, k], points[3 * k : 3 * k + 2], atol=1e-5)
        assert torch.allclose(output.keypoint_visibility[0, row, k], points[3 * k + 2], atol=1e-5)
        assert torch.allclose(output.keypoint_sigma[0, row, k], sigma[2 * k : 2 * k + 2], atol=1e-5)


def test_prototype_fusion_adds_enlarged_coarser_levels(of_task: OfTask) -> None:
    fusion = of_task("segment").eval().head.masks.fusion
    levels = (torch.rand(1, 64, 8, 8), torch.rand(1, 128, 4, 4), torch.rand(1, 256, 2, 2))
    fused = fusion(levels)
    for i, j in ((0, 0), (3, 6), (7, 7)):
        expected = levels[0][0, :, i, j]
        expected = expected + fusion.project[0](levels[1])[0, :, i // 2, j // 2]
        expected = expected + fusion.project[1](levels[2])[0, :, i // 4, j // 4]
        assert torch.allclose(fused[0, :, i, j], expected, atol=1e-6)


@pytest.mark.parametrize("task", TASKS)
@pytest.mark.parametrize("branch", ["o2o", "o2m"])
def test_deployed_and_folded_views_agree_with_evaluation(task: str, branch: str, of_task: OfTask) -> None:
    detector, images = of_task(task).eval(), torch.rand(1, 3, 64, 64)
    expected, view, folded = (
        getattr(detector(images), branch),
        deployed(detector, branch),
        fuse(detector, branch),
    )
    got, near = view(images), folded(images)
    assert got.keypoint_sigma is near.keypoint_sigma is None
    for name, value in expected._asdict().items():
        if value is not None and name != "keypoint_sigma":
            assert torch.equal(getattr(got, name), value)
            assert torch.allclose(getattr(near, name), value, atol=1e-4)


@pytest.mark.parametrize("task", TASKS)
def test_deployed_views_share_the_detectors_parameters(task: str, of_task: OfTask) -> None:
    detector = of_task(task)
    own = {id(p) for p in detector.parameters()}
    assert {id(p) for p in deployed(detector).parameters()} < own
    assert len(detector.state_dict()) == len(of_task(task).state_dict())


@pytest.mark.parametrize("task", TASKS)
def test_a_checkpoint_brings_every_task_back(task: str, of_task: OfTask, tmp_path: object) -> None:
    detector, path = of_task(task).eval(), f"{tmp_path}/a.ckpt"
    torch.save({"lucid": checkpoint_header(detector)}, path)
    loaded, images = load(path), torch.rand(1, 3, 64, 64)
    assert (loaded.task, loaded.num_keypoints) == (task, detector.num_keypoints)
    for name, value in detector(images).o2o._asdict().items():
        assert value is None or torch.equal(value, getattr(loaded(images).o2o, name))


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ({"task": "pose"}, "needs num_keypoints of at least 1, got None"),
        ({"task": "pose", "num_keypoints": 0}, "at least 1, got 0"),
        ({"task": "segment", "num_keypoints": 4}, "'segment' predicts no keypoints"),
    ],
)
def test_keypoint_counts_that_make_no_sense_are_refused(arguments: dict[str, object], message: str) -> None:
    with pytest.raises(ValueError, match=message):
        build_detector(**arguments)  # type: ignore[arg-type]
