"""The objective of every task: what it sums, what it asks for, empty batches, one graph."""

from collections.abc import Callable
from typing import Any

import pytest
import torch
import torch._dynamo.testing
from torch import Tensor
from torch.nn.functional import avg_pool2d

from lucid_geometry import rboxes_to_boxes
from lucid_models import (
    TASKS,
    BranchOutput,
    DetectionLoss,
    Detector,
    HeadOutput,
    KeypointResiduals,
    LossSettings,
    PaddedTargets,
    ResidualFlow,
    TaskLoss,
    TaskLossResult,
    build_loss,
    keypoint_likelihood_loss,
    make_points,
)
from lucid_models.losses.keypoints import densities

OfTask = Callable[[str], Detector]
GRID = make_points(64, 64)
EXTRA = {
    "detect": [],
    "segment": ["mask", "semantic"],
    "pose": ["rle", "oks", "visibility"],
    "obb": ["angle"],
}


def loss_of(task: str, **settings: object) -> TaskLoss:
    points = None if TASKS[task].num_keypoints is None else 5
    return build_loss(task, 3, num_keypoints=points, settings=LossSettings(**settings))  # type: ignore[arg-type]


def batch(rows: int = 3) -> PaddedTargets:
    """Two images: three objects, one object and two rows of padding."""
    rboxes = torch.tensor([[[22.0, 20, 30, 14, 0.4], [40, 40, 28, 20, 1.2], [52, 5, 5, 4, 0]]]).repeat(
        2, 1, 1
    )
    rboxes[1, 0, :2] += 6
    valid = torch.tensor([[True, True, True], [True, False, False]])
    boxes = rboxes_to_boxes(rboxes)
    unit = torch.rand(2, 3, 5, 2)
    points = boxes[..., None, :2] + unit * (boxes[..., 2:] - boxes[..., :2])[..., None, :]
    seen = torch.randint(0, 3, (2, 3, 5, 1)).float()
    centres = (torch.arange(16) + 0.5) * 4
    inside = (centres > boxes[..., :1]) & (centres < boxes[..., 2:3])
    down = (centres > boxes[..., 1:2]) & (centres < boxes[..., 3:])
    everything = PaddedTargets(
        boxes,
        torch.tensor([[0, 2, 1], [1, 0, 0]]),
        valid,
        rboxes,
        torch.cat((points, seen), -1),
        down[..., :, None] & inside[..., None, :],
        torch.tensor([[True, True, False], [True, True, True]]),
    )
    padded = [field * valid.view(2, 3, *(1 for _ in field.shape[2:])) for field in everything]
    return PaddedTargets(*(field[:, :rows] for field in padded))


def finite_gradients(detector: Detector) -> bool:
    return all(torch.isfinite(p.grad).all() for p in detector.parameters() if p.grad is not None)


def run(detector: Detector, loss: TaskLoss, rows: int = 3, alpha: float | Tensor = 0.7) -> TaskLossResult:
    result: TaskLossResult = loss(detector(torch.rand(2, 3, 64, 64)), *GRID, batch(rows), alpha)
    return result


@pytest.mark.parametrize("task", TASKS)
def test_the_total_is_the_branches_plus_gains_times_extra_terms(task: str, of_task: OfTask) -> None:
    gains = {"mask": 3.0, "semantic": 2.0, "angle": 5.0, "rle": 7.0, "oks": 11.0, "visibility": 13.0}
    result = run(of_task(task), loss_of(task, **gains))
    assert list(result.extra) == EXTRA[task]
    assert all(value > 0 or name == "rle" for name, value in result.extra.items())
    expected = result.detection.total + sum(gains[name] * value for name, value in result.extra.items())
    assert result.total.item() == pytest.approx(expected.item(), rel=1e-6)
    branches = [f"{branch}_{part}" for branch in ("o2m", "o2o") for part in ("box", "cls", "l1")]
    assert list(result.terms()) == ["loss", *branches, *EXTRA[task]]
    assert result.terms()["o2o_l1"] is result.detection.o2o.l1


def test_the_detect_objective_is_the_detection_loss_to_the_byte(of_task: OfTask) -> None:
    output, targets = of_task("detect")(torch.rand(2, 3, 64, 64)), batch()
    total = loss_of("detect")(output, *GRID, targets, 0.7).total
    assert torch.equal(total, DetectionLoss(3)(output, *GRID, *targets[:3], 0.7).total)


def test_published_split_of_oks_and_likelihood_is_the_default() -> None:
    assert (LossSettings().oks, LossSettings().rle) == (24.0, 1.0)
    assert loss_of("pose").gains == {"rle": 1.0, "oks": 24.0, "visibility": 1.0}


@pytest.mark.parametrize("task", [task for task in TASKS if task != "detect"])
@pytest.mark.parametrize("alpha", [0.0, 1.0])
def test_extra_terms_are_mixed_by_the_branches_alpha(task: str, alpha: float, of_task: OfTask) -> None:
    output = of_task(task)(torch.rand(2, 3, 64, 64))
    loss, targets = loss_of(task), batch()
    ignored, used = (output.o2o, output.o2m) if alpha == 1 else (output.o2m, output.o2o)
    spoilt = BranchOutput(
        *(value if value is None or value is used.prototypes else value * 0.5 for value in ignored)
    )
    other = HeadOutput(*((used, spoilt) if alpha == 1 else (spoilt, used)), output.semantic)
    first, second = (loss(each, *GRID, targets, alpha) for each in (output, other))
    for name, value in first.extra.items():
        assert torch.equal(value, second.extra[name])


@pytest.mark.parametrize("task", TASKS)
def test_every_parameter_learns_from_a_batch_with_objects(task: str, of_task: OfTask) -> None:
    detector, loss = of_task(task), loss_of(task)
    run(detector, loss).total.backward()
    assert all(p.grad is not None for p in (*detector.parameters(), *loss.parameters()))
    assert finite_gradients(detector)


ABSENT = {
    "detect": (),
    "segment": (".coeff.", "masks.prototypes."),
    "pose": (".extra.",),
    "obb": (),
}


@pytest.mark.parametrize("task", TASKS)
def test_an_empty_batch_leaves_absent_gradients_absent_and_the_rest_finite(
    task: str, of_task: OfTask
) -> None:
    detector, loss = of_task(task), loss_of(task)
    result = run(detector, loss, rows=0)
    result.total.backward()
    assert result.detection.o2m.box == result.detection.o2o.l1 == 0
    missing = {name for name, p in detector.named_parameters() if p.grad is None}
    expected = {name for name, _ in detector.named_parameters() if any(part in name for part in ABSENT[task])}
    assert missing == expected
    assert all(p.grad is None for p in loss.parameters())
    assert finite_gradients(detector)
    if task == "obb":
        angles = [p.grad for name, p in detector.named_parameters() if ".angle." in name]
        assert len(angles) == 2 * 3 * 8
        assert not any(gradient.any() for gradient in angles)


@pytest.mark.parametrize("task", TASKS)
def test_a_batch_of_padding_alone_is_finite(task: str, of_task: OfTask) -> None:
    detector, loss = of_task(task), loss_of(task)
    targets = batch()._replace(valid=torch.zeros(2, 3) > 0)
    result = loss(detector(torch.rand(2, 3, 64, 64)), *GRID, targets, 0.5)
    result.total.backward()
    assert torch.isfinite(result.total)
    assert finite_gradients(detector)
    assert all(value == 0 for name, value in result.extra.items() if name != "semantic")


@pytest.mark.parametrize("task", TASKS)
@pytest.mark.parametrize("distance", [0.0, -3.0])
def test_degenerate_predictions_give_finite_losses_and_gradients(
    task: str, distance: float, of_task: OfTask
) -> None:
    output = of_task(task)(torch.rand(2, 3, 64, 64))
    leaves: list[Tensor] = []

    def degenerate(branch: BranchOutput) -> BranchOutput:
        fields = [None if value is None else value.detach() for value in branch]
        fields[1] = torch.full_like(branch.box, distance)
        fields = [value if value is None else value.requires_grad_() for value in fields]
        leaves.extend(value for value in fields if value is not None)
        return BranchOutput(*fields)

    result = loss_of(task)(HeadOutput(degenerate(output.o2m), degenerate(output.o2o)), *GRID, batch(), 0.5)
    result.total.backward()
    assert torch.isfinite(result.total)
    assert all(torch.isfinite(leaf.grad).all() for leaf in leaves if leaf.grad is not None)


@pytest.mark.parametrize("task", TASKS)
def test_losses_are_float32_under_autocast(task: str, of_task: OfTask) -> None:
    with torch.autocast("cpu", torch.bfloat16):
        result = run(of_task(task), loss_of(task))
    assert {value.dtype for value in (result.total, *result.extra.values())} == {torch.float32}


@pytest.mark.parametrize("task", [task for task in TASKS if task != "detect"])
def test_losses_read_nothing_back_and_copy_nothing_from_the_host(
    task: str, of_task: OfTask, host_reads: Callable[[], Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    output, loss, targets = of_task(task)(torch.rand(2, 3, 64, 64)), loss_of(task), batch()
    monkeypatch.setattr("lucid_models.losses.dual.check_labels", lambda *_: None)  # a CPU's labels alone
    with host_reads() as reads:
        loss(output, *GRID, targets, 0.5).total.backward()
    assert reads.seen == []


def test_masks_that_are_not_known_weigh_nothing(of_task: OfTask) -> None:
    output, targets, loss = of_task("segment")(torch.rand(2, 3, 64, 64)), batch(), loss_of("segment")
    assert targets.masks is not None
    assert output.semantic is not None
    spoilt = targets.masks.clone()
    spoilt[0, 2] = ~spoilt[0, 2]
    # where that instance is, its class may be anything: label 1 in the box (49.5, 3, 54.5, 7)
    semantic = output.semantic.clone()
    semantic[0, 1, 0, 6] = 40.0
    other = output._replace(semantic=semantic)
    first = loss(output, *GRID, targets, 0.5).total
    second = loss(other, *GRID, targets._replace(masks=spoilt), 0.5).total
    assert torch.equal(first, second)
    known = targets._replace(mask_ok=None)
    assert loss(other, *GRID, known, 0.5).total != loss(output, *GRID, known, 0.5).total


def test_what_stands_in_unlabelled_points_changes_nothing(of_task: OfTask) -> None:
    output, targets, loss = of_task("pose")(torch.rand(2, 3, 64, 64)), batch(), loss_of("pose")
    assert targets.keypoints is not None
    spoilt = targets.keypoints.clone()
    spoilt[..., :2][spoilt[..., 2] == 0] = float("inf")
    first, second = (
        loss(output, *GRID, targets._replace(keypoints=k), 0.5).total for k in (targets.keypoints, spoilt)
    )
    assert torch.equal(first, second)


@pytest.mark.parametrize(("paired", "calls"), [(False, 36), (True, 18)])
def test_paired_density_halves_the_linear_calls(paired: bool, calls: int, of_task: OfTask) -> None:
    loss, seen = loss_of("pose", paired_density=paired), []
    for module in loss.modules():
        if isinstance(module, torch.nn.Linear):
            module.register_forward_hook(lambda *_: seen.append(1))
    run(of_task("pose"), loss)
    assert len(seen) == calls


def test_paired_density_agrees_in_double_precision_in_value_and_gradient() -> None:
    flow, shapes = ResidualFlow().double(), ((2, 30, 5), (2, 3, 5))
    x = [torch.randn(*shape, 2, dtype=torch.float64, requires_grad=True) for shape in shapes]
    counted = [torch.rand(shape) < 0.7 for shape in shapes]
    inputs = (*x, *flow.parameters())
    values, gradients = [], []
    for paired in (False, True):
        parts = [KeypointResiduals(at, at[..., 0], seen) for at, seen in zip(x, counted, strict=True)]
        many, one = (
            keypoint_likelihood_loss(part, density)
            for part, density in zip(parts, densities(flow, parts, paired), strict=True)
        )
        values.append(0.6 * many + 0.4 * one)
        gradients.append(torch.autograd.grad(values[-1], inputs))
    assert values[0].item() == pytest.approx(values[1].item(), rel=1e-13)
    for separate, together in zip(*gradients, strict=True):
        assert (separate - together).norm() <= 1e-13 * separate.norm() + 1e-15


def test_both_branches_are_separate_calls_unless_asked() -> None:
    assert not LossSettings().paired_density


def test_likelihood_without_the_density_has_no_parameters(of_task: OfTask) -> None:
    loss = loss_of("pose", likelihood="laplace")
    assert not list(loss.parameters())
    assert torch.isfinite(run(of_task("pose"), loss).total)


@pytest.mark.parametrize("task", TASKS)
def test_constants_of_the_loss_stay_out_of_its_state(task: str) -> None:
    state = loss_of(task).state_dict()
    assert all(".flow." in key for key in state)
    assert bool(state) == (task == "pose")


class Pyramid(torch.nn.Module):
    """Three maps of an image, in place of a backbone and a neck: theirs are the same for every task."""

    def forward(self, images: Tensor) -> tuple[Tensor, ...]:
        widths = ((64, 8), (128, 16), (256, 32))
        return tuple(avg_pool2d(images[:, :1], stride).expand(-1, c, -1, -1) for c, stride in widths)


@pytest.mark.parametrize("task", [task for task in TASKS if task != "detect"])
def test_detector_decoding_assignment_and_loss_are_one_graph_for_every_alpha(
    task: str, of_task: OfTask
) -> None:
    detector, loss, targets, images = of_task(task), loss_of(task), batch(), torch.rand(2, 3, 64, 64)
    detector.backbone, detector.neck = Pyramid(), torch.nn.Identity()  # type: ignore[assignment]
    for module in detector.modules():  # training mode with fixed statistics: both calls see the same
        if isinstance(module, torch.nn.BatchNorm2d):
            module.eval()

    def step(images: Tensor, targets: PaddedTargets, alpha: Tensor) -> Tensor:
        total: Tensor = loss(detector(images), *GRID, targets, alpha).total
        return total

    counter = torch._dynamo.testing.CompileCounter()
    compiled = torch.compile(step, fullgraph=True, backend=counter)
    for alpha in (0.7, 0.1):
        tensor = torch.tensor(alpha, dtype=torch.float64)
        expected = step(images, targets, tensor)
        assert torch.allclose(compiled(images, targets, tensor), expected, rtol=1e-6)
        assert torch.equal(loss(detector(images), *GRID, targets, alpha).total, expected)
    assert counter.frame_count == 1


@pytest.mark.parametrize("task", [task for task in TASKS if task != "detect"])
def test_the_loss_of_a_batch_without_objects_is_one_graph(task: str, of_task: OfTask) -> None:
    with torch.no_grad():
        output = of_task(task)(torch.rand(2, 3, 64, 64))
    loss, targets = loss_of(task), batch(0)

    def step(output: HeadOutput, targets: PaddedTargets) -> Tensor:
        total: Tensor = loss(output, *GRID, targets, 0.5).total
        return total

    compiled = torch.compile(step, fullgraph=True, backend="eager")
    assert torch.allclose(compiled(output, targets), step(output, targets), rtol=1e-6)


@pytest.mark.parametrize(
    ("task", "changes", "message"),
    [
        ("obb", {"rboxes": None}, r"rboxes must be \(2, 3, 5\) for this task, got None"),
        ("pose", {"keypoints": torch.zeros(2, 3, 4, 3)}, r"keypoints must be \(2, 3, 5, 3\)"),
        ("segment", {"masks": torch.zeros(2, 3, 8, 8) > 0}, r"masks must be \(2, 3, 16, 16\)"),
        ("obb", {"rboxes": torch.zeros(2, 2, 5)}, r"rboxes must be \(2, 3, 5\)"),
    ],
)
def test_targets_that_lack_what_the_task_needs_are_refused(
    task: str, changes: dict[str, Tensor], message: str, of_task: OfTask
) -> None:
    output = of_task(task)(torch.rand(2, 3, 64, 64))
    with pytest.raises(ValueError, match=message):
        loss_of(task)(output, *GRID, batch()._replace(**changes), 0.5)


def test_the_output_of_another_task_is_refused(of_task: OfTask) -> None:
    output = of_task("detect")(torch.rand(2, 3, 64, 64))
    for task, field in (("segment", "prototypes"), ("pose", "keypoints")):
        with pytest.raises(ValueError, match=f"no {field}"):
            loss_of(task)(output, *GRID, batch(), 0.5)


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ({"task": "depth"}, "unknown task 'depth'"),
        ({"task": "pose"}, "num_keypoints of at least 1, got None"),
        ({"task": "obb", "num_keypoints": 3}, "'obb' predicts no keypoints"),
        ({"task": "pose", "num_keypoints": 3, "sigmas": [0.1]}, "1 sigmas for 3"),
    ],
)
def test_objectives_that_make_no_sense_are_refused(arguments: dict[str, object], message: str) -> None:
    with pytest.raises(ValueError, match=message):
        build_loss(num_classes=2, **arguments)  # type: ignore[arg-type]


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ({"oks": -1.0}, "oks must be finite and not negative"),
        ({"mask": float("nan")}, "mask must be finite"),
        ({"likelihood": "gauss"}, "likelihood must be one of"),
        ({"rotated_form": "kl"}, "rotated_form must be one of"),
        ({"log_sigma_count": 3}, "log_sigma_count must be one of"),
    ],
)
def test_settings_that_make_no_sense_are_refused(settings: dict[str, object], message: str) -> None:
    with pytest.raises(ValueError, match=message):
        LossSettings(**settings)  # type: ignore[arg-type]
