"""A replayed network learns the bytes that a native one learns, and the replays are counted."""

import copy

import torch

from lucid_capture import GuardedRegion, ModuleCertificate, Reason, TapeBackend, same_bytes
from lucid_models import BranchOutput, DetectionLoss, HeadOutput, build_detector, make_points
from lucid_optim import ModelEMA, MuSGD, param_groups

SIDE, STEPS = 64, 4


def batches():
    generator = torch.Generator().manual_seed(0)
    for _ in range(STEPS):
        corner = torch.rand(2, 3, 2, generator=generator) * 40
        boxes = torch.cat([corner, corner + 8 + torch.rand(2, 3, 2, generator=generator) * 14], dim=2)
        labels = torch.randint(0, 2, (2, 3), generator=generator)
        valid = torch.tensor([[True, True, True], [True, False, False]])
        yield (
            torch.rand(2, 3, SIDE, SIDE, generator=generator),
            boxes * valid[..., None],
            labels * valid,
            valid,
        )


def flat(detector):
    """The network as a function to tensors; fields a task lacks are left out."""

    def forward(images):
        output = detector(images)
        return [(output.o2m.cls, output.o2m.box), (output.o2o.cls, output.o2o.box)]

    return forward


def train(detector, forward):
    criterion, (points, strides) = DetectionLoss(2), make_points(SIDE, SIDE)
    optimizer, average = MuSGD(param_groups(detector), lr=0.01), ModelEMA(detector)
    losses = []
    for images, boxes, labels, valid in batches():
        many, one = (BranchOutput(cls=cls, box=box) for cls, box in forward(images))
        result = criterion(HeadOutput(many, one), points, strides, boxes, labels, valid, alpha=0.8)
        optimizer.zero_grad()
        result.total.backward()
        optimizer.step()
        average.update(detector)
        losses.append(result.total.detach())
    return {
        "model": detector.state_dict(),
        "optimizer": optimizer.state_dict()["state"],
        "ema": average.shadow,
        "losses": losses,
    }


def test_a_replayed_network_trains_to_the_native_bytes():
    torch.manual_seed(0)
    native = build_detector("detect", "n", num_classes=2)
    replayed = copy.deepcopy(native)
    region = GuardedRegion(
        "network",
        flat(replayed),
        backend=TapeBackend(),
        certificate=ModuleCertificate(replayed),
        differentiable=True,
        record_after=0,
    )
    comparison = same_bytes(train(native, flat(native)), train(replayed, region))
    assert comparison, str(comparison)
    assert region.counts[Reason.REPLAYED] >= STEPS - 1


def test_the_comparison_notices_a_learning_rate_that_differs_in_one_step():
    torch.manual_seed(0)
    first = build_detector("detect", "n", num_classes=2)
    second = copy.deepcopy(first)
    one = train(first, flat(first))
    with torch.no_grad():
        next(second.parameters()).view(-1)[0].add_(1e-6)
    assert not same_bytes(one, train(second, flat(second)))
