"""The CUDA route equals the CPU route and never waits for the device."""

from collections.abc import Callable

import pytest
import torch

from lucid_geometry import Letterbox, rboxes_to_boxes
from lucid_models import (
    TASKS,
    BranchOutput,
    DetectionLoss,
    Detector,
    HeadOutput,
    PaddedTargets,
    build_loss,
    decode_batch,
    end_to_end,
    make_points,
)

pytestmark = [
    pytest.mark.gpu,
    pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a CUDA device"),
]


def test_loss_and_decoding_agree_with_the_cpu_without_synchronising() -> None:
    points, strides = make_points(128, 128)
    output = HeadOutput(
        *(BranchOutput(torch.randn(3, 336, 5) - 2, torch.rand(3, 336, 4) * 3) for _ in range(2))
    )
    corner = torch.rand(3, 12, 2) * 100
    boxes = torch.cat((corner, corner + 4 + torch.rand(3, 12, 2) * 24), -1)
    labels, valid = torch.randint(0, 5, (3, 12)), torch.rand(3, 12) < 0.7
    loss = DetectionLoss(5)
    expected = loss(output, points, strides, boxes, labels, valid, alpha=0.8)
    there = HeadOutput(
        *(BranchOutput(branch.cls.cuda(), branch.box.cuda()) for branch in (output.o2m, output.o2o))
    )
    targets = [t.cuda() for t in (points, strides, boxes, labels, valid)]
    torch.cuda.set_sync_debug_mode("error")
    try:
        result = loss(there, *targets, alpha=0.8)
        detections, anchors = end_to_end(there.o2o, targets[0], targets[1], 50)
    finally:
        torch.cuda.set_sync_debug_mode("default")
    assert torch.equal(result.o2m_assignment.gt_index.cpu(), expected.o2m_assignment.gt_index)
    assert torch.equal(result.o2o_assignment.gt_index.cpu(), expected.o2o_assignment.gt_index)
    assert torch.allclose(result.total.cpu(), expected.total, rtol=1e-4)
    cpu_detections, cpu_anchors = end_to_end(output.o2o, points, strides, 50)
    assert torch.equal(anchors.cpu(), cpu_anchors)
    assert torch.allclose(detections.cpu(), cpu_detections, rtol=1e-4, atol=1e-4)


def to_cuda(output: HeadOutput) -> HeadOutput:
    def moved(value: torch.Tensor | None) -> torch.Tensor | None:
        return None if value is None else value.detach().cuda().requires_grad_()

    branches = (BranchOutput(*(moved(value) for value in branch)) for branch in (output.o2m, output.o2o))
    return HeadOutput(*branches, moved(output.semantic))


@pytest.mark.parametrize("task", TASKS)
def test_every_tasks_loss_agrees_with_the_cpu_without_synchronising(
    task: str, of_task: Callable[[str], Detector]
) -> None:
    rboxes = torch.cat((20 + torch.rand(2, 6, 2) * 80, 6 + torch.rand(2, 6, 2) * 30, torch.rand(2, 6, 1)), -1)
    targets = PaddedTargets(
        rboxes_to_boxes(rboxes),
        torch.randint(0, 3, (2, 6)),
        torch.rand(2, 6) < 0.7,
        rboxes,
        torch.cat((torch.rand(2, 6, 5, 2) * 128, torch.randint(0, 3, (2, 6, 5, 1)).float()), -1),
        torch.rand(2, 6, 32, 32) < 0.5,
        torch.rand(2, 6) < 0.8,
    )
    with torch.no_grad():
        output = of_task(task)(torch.rand(2, 3, 128, 128))
    loss = build_loss(task, 3, num_keypoints=5 if task == "pose" else None)
    expected = loss(output, *make_points(128, 128), targets, 0.7)
    there, grid = to_cuda(output), [t.cuda() for t in make_points(128, 128)]
    loss, moved = loss.cuda(), PaddedTargets(*(t.cuda() for t in targets))
    torch.cuda.synchronize()
    torch.cuda.set_sync_debug_mode("error")
    try:
        result = loss(there, *grid, moved, 0.7)
        result.total.backward()
    finally:
        torch.cuda.set_sync_debug_mode("default")
    for name, value in expected.terms().items():
        assert torch.allclose(result.terms()[name].cpu(), value, rtol=1e-3, atol=1e-4), name


@pytest.mark.parametrize("task", TASKS)
def test_decoding_agrees_with_the_cpu(task: str, of_task: Callable[[str], Detector]) -> None:
    with torch.no_grad():
        output = of_task(task).eval()(torch.rand(2, 3, 128, 128)).o2o
    frames, names = [Letterbox(100, 50, 128, 128), Letterbox(60, 200, 128, 128)], ("a", "b", "c")
    there = BranchOutput(*(None if value is None else value.cuda() for value in output))
    cpu = decode_batch(output, *make_points(128, 128), frames, names, max_detections=20)
    gpu = decode_batch(there, *(t.cuda() for t in make_points(128, 128)), frames, names, max_detections=20)
    for got, want in zip(gpu, cpu, strict=True):
        assert got.boxes.device.type == "cpu"
        assert torch.allclose(got.scores, want.scores, atol=1e-5)
        for field in ("keypoints", "rboxes"):
            value = getattr(want, field)
            assert value is None or torch.allclose(getattr(got, field), value, rtol=1e-3, atol=1e-3)
        if want.masks is not None:
            assert (got.masks != want.masks).float().mean() < 1e-3
