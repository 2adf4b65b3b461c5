"""The CUDA route equals the CPU route and never waits for the device."""

import pytest
import torch

from lucid_models import BranchOutput, DetectionLoss, HeadOutput, end_to_end, make_points

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
