"""The pieces together: a few steps on one picture teach the network where the objects are."""

import torch

from lucid_geometry import box_iou
from lucid_models import DetectionLoss, build_detector, end_to_end, make_points


def test_a_few_steps_place_both_objects_without_suppression() -> None:
    images = torch.zeros(2, 3, 96, 96)
    boxes = torch.tensor([[[8.0, 8, 40, 40], [48, 40, 88, 88]]]).repeat(2, 1, 1)
    boxes[1] = torch.tensor([[50.0, 10, 90, 50], [4, 50, 44, 90]])
    labels, valid = torch.tensor([[0, 1], [0, 1]]), torch.ones(2, 2) > 0
    for b in range(2):
        for n, (x1, y1, x2, y2) in enumerate(boxes[b].int().tolist()):
            images[b, n, y1:y2, x1:x2] = 1.0
    detector, loss = build_detector("detect", "n", num_classes=2), DetectionLoss(2)
    points, strides = make_points(96, 96)
    optimizer = torch.optim.AdamW(detector.parameters(), lr=2e-3)
    for _ in range(80):
        optimizer.zero_grad()
        loss(detector(images), points, strides, boxes, labels, valid, alpha=0.5).total.backward()
        optimizer.step()
    with torch.no_grad():
        detections, _ = end_to_end(detector(images).o2o, points, strides, 2)
    for b in range(2):
        order = detections[b, :, 5].argsort()
        assert detections[b, order, 5].tolist() == [0, 1]
        assert box_iou(detections[b, order, :4], boxes[b]).diagonal().min() > 0.6
