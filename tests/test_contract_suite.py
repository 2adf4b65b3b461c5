"""One contract, several regions: replay gives the bytes of eager execution, and a broken replay is found."""

import sys
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import pytest
import torch
from torch import Tensor, nn

from lucid_capture import (
    CudaBackend,
    Fault,
    FunctionCertificate,
    GradientNorm,
    GraphedStep,
    GuardedRegion,
    ModuleCertificate,
    TapeBackend,
    doctor,
    verify,
)
from lucid_models import (
    BranchOutput,
    DetectionLoss,
    HeadOutput,
    build_detector,
    check_labels,
    make_points,
)
from lucid_optim import MuSGD, newton_schulz, param_groups

SIDE = 32
BACKENDS = [
    "cpu",
    pytest.param(
        "cuda",
        marks=[
            pytest.mark.gpu,
            pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a CUDA device"),
        ],
    ),
]


@dataclass
class Case:
    """A step around regions, batches for it, and the state it changes."""

    step: Any
    batches: Sequence[tuple[Any, ...]]
    regions: Sequence[GuardedRegion] | None = None
    state: dict[str, Any] | None = None

    def verdict(self) -> Any:
        return verify(self.step, self.batches, regions=self.regions, state=self.state)


def backend(device: str) -> Any:
    return TapeBackend() if device == "cpu" else CudaBackend()


def network(net: nn.Module, native: Callable[..., Any], device: str) -> GuardedRegion:
    return GuardedRegion(
        "network",
        native,
        backend=backend(device),
        certificate=ModuleCertificate(net),
        differentiable=True,
    )


def random(*shape: int, seed: int, device: str) -> Tensor:
    return torch.randn(*shape, generator=torch.Generator().manual_seed(seed)).to(device)


def labelled(seed: int, device: str) -> tuple[Tensor, Tensor, Tensor]:
    generator = torch.Generator().manual_seed(seed)
    corner = torch.rand(2, 3, 2, generator=generator) * 16
    boxes = torch.cat([corner, corner + 6 + torch.rand(2, 3, 2, generator=generator) * 8], dim=2)
    labels = torch.randint(0, 2, (2, 3), generator=generator)
    valid = torch.tensor([[True, True, True], [True, False, False]])
    return (boxes * valid[..., None]).to(device), (labels * valid).to(device), valid.to(device)


def toy_linear(device: str) -> Case:
    net = nn.Linear(4, 3).to(device)
    region = network(net, net, device)
    return Case(region, [(random(2, 4, seed=i, device=device),) for i in range(2)])


def convolution_with_statistics_and_dropout(device: str) -> Case:
    layers = (nn.Conv2d(2, 4, 3), nn.BatchNorm2d(4), nn.SiLU(), nn.Dropout(0.3))
    net = nn.Sequential(*layers).to(device)
    region = network(net, net, device)
    return Case(region, [(random(2, 2, 6, 6, seed=i, device=device),) for i in range(2)])


def nano_network(device: str) -> Case:
    net = build_detector("detect", "n", num_classes=2).to(device)

    def fields(images: Tensor) -> list[Tensor]:
        output = net(images)
        return [output.o2m.cls, output.o2m.box, output.o2o.cls, output.o2o.box]

    images = [(random(2, 3, SIDE, SIDE, seed=i, device=device).sigmoid(),) for i in range(2)]
    return Case(network(net, fields, device), images)


def detection_loss(device: str) -> Case:
    criterion = DetectionLoss(2)
    points, strides = (t.to(device) for t in make_points(SIDE, SIDE))
    alpha = torch.tensor(0.8, dtype=torch.float64, device=device)

    def loss(many: Any, one: Any, boxes: Tensor, labels: Tensor, valid: Tensor) -> list[Tensor]:
        branches = [BranchOutput(cls=cls, box=box) for cls, box in (many, one)]
        result = criterion.compute(HeadOutput(*branches), points, strides, boxes, labels, valid, alpha=alpha)
        return [result.total, result.o2m.box, result.o2o.cls]

    def fields(seed: int) -> tuple[Tensor, Tensor]:
        count = len(points)
        cls = random(2, count, 2, seed=seed, device=device).requires_grad_()
        box = (random(2, count, 4, seed=seed + 1, device=device).abs() + 1).requires_grad_()
        return cls, box

    region = GuardedRegion("loss", loss, backend=backend(device), differentiable=True)
    return Case(region, [(fields(10 * i), fields(10 * i + 5), *labelled(i, device)) for i in range(2)])


def orthogonalization(device: str) -> Case:
    region = GuardedRegion("newton-schulz", lambda x: newton_schulz(x), backend=backend(device))
    return Case(region, [(random(4, 6, seed=i, device=device),) for i in range(2)])


def update_preparation(device: str) -> Case:
    momentum = 0.95

    def prepare(gradients: list[Tensor], buffers: list[Tensor]) -> list[Any]:
        moved = [b * momentum + g for g, b in zip(gradients, buffers, strict=True)]
        ahead = [g + b * momentum for g, b in zip(gradients, moved, strict=True)]
        return [(m, newton_schulz(a)) for m, a in zip(moved, ahead, strict=True)]

    region = GuardedRegion(
        "updates",
        prepare,
        backend=backend(device),
        certificate=FunctionCertificate(momentum=lambda: momentum),
    )

    def tensors(seed: int) -> list[Tensor]:
        return [random(3, 4, seed=seed, device=device), random(4, 2, seed=seed + 1, device=device)]

    return Case(region, [(tensors(10 * i), tensors(10 * i + 5)) for i in range(2)])


def gradient_norm(device: str) -> Case:
    clipper = GradientNorm(backend=backend(device))

    def clip(gradients: list[Tensor]) -> Any:
        parameters = [nn.Parameter(torch.zeros_like(g)) for g in gradients]
        for p, g in zip(parameters, gradients, strict=True):
            p.grad = g.clone()
        return clipper.clip_(parameters, 0.5), [p.grad for p in parameters]

    batches = [([random(3, 4, seed=i, device=device), random(5, seed=9, device=device)],) for i in range(2)]
    return Case(clip, batches, regions=[clipper.region], state={})


def whole_step(device: str) -> Case:
    net = build_detector("detect", "n", num_classes=2).to(device)
    criterion = DetectionLoss(2)
    points, strides = (t.to(device) for t in make_points(SIDE, SIDE))

    def loss(images: Tensor, boxes: Tensor, labels: Tensor, valid: Tensor, alpha: Tensor) -> Tensor:
        # labels are checked outside a recording
        return criterion.compute(net(images), points, strides, boxes, labels, valid, alpha=alpha).total

    step = GraphedStep(
        net,
        loss,
        torch.optim.SGD(net.parameters(), lr=0.01, momentum=0.9, fused=True),
        backend=backend(device),
        scalars={"alpha": 0.8},
        clip_norm=10.0,
        ema_decay=0.99,
    )
    images = [random(2, 3, SIDE, SIDE, seed=i, device=device).sigmoid() for i in range(2)]
    return Case(step, [(image, *labelled(i, device)) for i, image in enumerate(images)])


def whole_step_of_our_own_optimizer(device: str) -> Case:
    net = nn.Sequential(nn.Conv2d(2, 4, 3), nn.BatchNorm2d(4), nn.SiLU(), nn.Conv2d(4, 4, 3)).to(device)
    step = GraphedStep(
        net,
        lambda images: net(images).square().mean(),
        MuSGD(param_groups(net), lr=0.01),
        backend=backend(device),
        clip_norm=1.0,
        ema_decay=0.99,
    )
    return Case(step, [(random(2, 2, 6, 6, seed=i, device=device),) for i in range(2)])


CASES: list[Callable[[str], Case]] = [
    toy_linear,
    convolution_with_statistics_and_dropout,
    nano_network,
    detection_loss,
    orthogonalization,
    update_preparation,
    gradient_norm,
    whole_step,
    whole_step_of_our_own_optimizer,
]
SMALL = [case for case in CASES if case not in (nano_network, whole_step, whole_step_of_our_own_optimizer)]


@pytest.fixture(autouse=True)
def seeded() -> None:
    torch.manual_seed(0)


@pytest.mark.parametrize("device", BACKENDS)
@pytest.mark.parametrize("make", CASES, ids=lambda f: f.__name__)
def test_replay_gives_the_bytes_of_eager_execution(make: Callable[[str], Case], device: str) -> None:
    verdict = make(device).verdict()
    assert verdict, str(verdict)


@pytest.mark.parametrize("make", SMALL, ids=lambda f: f.__name__)
def test_a_replay_of_stale_inputs_is_found(
    make: Callable[[str], Case], monkeypatch: pytest.MonkeyPatch
) -> None:
    def stale(self: Any, inputs: Any) -> list[Tensor]:
        self.recording.launch_forward()
        self.launches.forward += 1
        self.generation += 1
        return [t.detach().clone() for t in self.recording.outputs]

    monkeypatch.setattr(sys.modules["lucid_capture.gradients"].Replayer, "forward", stale)
    verdict = make("cpu").verdict()
    assert not verdict
    assert "differs" in str(verdict)


_compute = DetectionLoss.compute


def _checked(self: DetectionLoss, *inputs: Any, **named: Any) -> Any:
    check_labels(inputs[4], inputs[5], self.num_classes)
    return _compute(self, *inputs, **named)


def test_the_doctor_names_the_label_check_of_a_detection_step_and_nothing_else(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    case = whole_step("cpu")
    case.step(*case.batches[0])
    assert doctor(case.step, *case.batches[1])
    # the checked entry, as a training loop would call it
    monkeypatch.setattr(DetectionLoss, "compute", _checked)
    findings = doctor(case.step, *case.batches[1]).findings
    assert {f.fault for f in findings} == {Fault.HOST_READ}
    assert {f.code for f in findings} == {"if wrong.any():"}
