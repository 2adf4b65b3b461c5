"""Every task learns a few drawn scenes by heart, through the one-to-one branch that is deployed.

A bare loop over one batch, so that nothing but network, assignment, loss and decoding is on trial. Twelve runs of a
minute or two each, on request: ``LUCID_SLOW=1 pytest tests/test_overfit_gates.py -s``.
"""

import os

import pytest
import torch
from pycocotools import mask as coco_mask

from lucid_data import EvalPipeline, eval_loader, open_catalog, synthetic
from lucid_geometry import box_iou
from lucid_models import PaddedTargets, Predictor, build_detector, build_loss, checkpoint_header, make_points
from lucid_train import evaluate

pytestmark = [
    pytest.mark.slow,
    pytest.mark.skipif(os.environ.get("LUCID_SLOW") != "1", reason="twelve long runs; set LUCID_SLOW=1"),
]

SCENES, STEPS = 4, 320
SIDES = {"detect": 128, "pose": 128, "obb": 256, "segment": 256}
"""Pixels. At 128 the smallest shapes cover so few cells of the masks' grid that their own targets, enlarged, reach an
IoU of 0.69."""
SEEDS = (0, 1, 2)


def learned(task, seed, folder):
    """Return the data and a checkpoint of a detector that saw the scenes of ``seed`` and nothing else."""
    torch.manual_seed(seed)
    side = SIDES[task]
    data = synthetic.write_coco(
        folder / "data", splits={"train": SCENES}, size=side, seed=seed, shapes=4, task=task
    )
    catalog = open_catalog(data, "train", task)
    (batch,) = eval_loader(EvalPipeline(catalog, side), SCENES, workers=0)
    points = len(catalog.keypoint_names) or None
    detector = build_detector(
        task, "n", names=catalog.class_names, num_keypoints=points, image_size=side
    ).train()
    loss = build_loss(task, catalog.num_classes, num_keypoints=points)
    fields = {name: getattr(batch, name, None) for name in PaddedTargets._fields}
    targets, images, grid = PaddedTargets(**fields), batch.images.float() / 255, make_points(side, side)
    optimizer = torch.optim.AdamW([*detector.parameters(), *loss.parameters()], lr=2e-3, fused=True)
    # down to nothing, so that the averages of BatchNorm catch up
    schedule = torch.optim.lr_scheduler.LinearLR(optimizer, 1.0, 0.01, STEPS)
    for step in range(STEPS):
        optimizer.zero_grad()
        loss(detector(images), *grid, targets, alpha=0.8 - 0.7 * step / STEPS).total.backward()
        torch.nn.utils.clip_grad_norm_(detector.parameters(), 10.0)
        optimizer.step()
        schedule.step()
    checkpoint = folder / "last.ckpt"
    torch.save({"lucid": checkpoint_header(detector)}, checkpoint)
    return data, checkpoint


def partners(data, checkpoint, task):
    """Yield truth, predictions and the (N, M) overlaps of boxes, 0 between classes, image by image."""
    catalog = open_catalog(data, "train", task)
    images = [catalog.image(i) for i in range(len(catalog))]
    for i, found in enumerate(Predictor(checkpoint)(images)):
        truth = catalog.targets(i)
        alike = truth.labels[:, None] == found.labels
        yield truth, found, torch.where(alike, box_iou(truth.boxes, found.boxes), 0.0)


def score(data, checkpoint):
    report = evaluate(checkpoint, data, split="train", path="e2e", device="cpu", workers=0)
    return report["report"]["e2e"]


@pytest.mark.parametrize("seed", SEEDS)
def test_detect_recalls_its_objects(seed, tmp_path):
    data, checkpoint = learned("detect", seed, tmp_path)
    hits = [(ious >= 0.5).any(1) for *_, ious in partners(data, checkpoint, "detect")]
    recall = torch.cat(hits).float().mean().item()
    print(f"detect, seed {seed}: one-to-one recall {recall:.3f}")
    assert recall >= 0.95


def drawn_masks(truth):
    """Return the (N, H, W) bool masks of outlines, as pycocotools rasterises them."""
    masks, side = [], SIDES["segment"]
    for rings in truth.polygons:
        parts = coco_mask.frPyObjects([ring.flatten().tolist() for ring in rings], side, side)
        masks.append(torch.from_numpy(coco_mask.decode([coco_mask.merge(parts)])[..., 0]) > 0)
    return torch.stack(masks)


@pytest.mark.parametrize("seed", SEEDS)
def test_segment_covers_its_masks(seed, tmp_path):
    data, checkpoint = learned("segment", seed, tmp_path)
    overlaps = []
    for truth, found, ious in partners(data, checkpoint, "segment"):
        one, other = drawn_masks(truth)[:, None], found.masks
        iou = (one & other).sum((-2, -1)) / (one | other).sum((-2, -1)).clamp(min=1)
        # the mask of the box that fits best; an object that nothing meets has none
        met = torch.where(ious > 0, ious, -1.0)
        met = torch.cat((torch.full((len(truth), 1), -0.5), met), 1).argmax(1)
        overlaps.append(torch.cat((torch.zeros(len(truth), 1), iou), 1).gather(1, met[:, None]))
    mean = torch.cat(overlaps).mean().item()
    print(f"segment, seed {seed}: mask IoU {mean:.3f}")
    assert mean >= 0.80


@pytest.mark.parametrize("seed", SEEDS)
def test_obb_finds_its_rotated_boxes(seed, tmp_path):
    found = score(*learned("obb", seed, tmp_path))
    print(f"obb, seed {seed}: rotated AP50 {found['map_50']:.3f}")
    assert found["map_50"] >= 0.95


@pytest.mark.parametrize("seed", SEEDS)
def test_pose_places_its_keypoints(seed, tmp_path):
    found = score(*learned("pose", seed, tmp_path))
    print(f"pose, seed {seed}: OKS AP {found['map']:.3f}")
    assert found["map"] >= 0.60
