"""A bare training step: network, objective, clipping and MuSGD on one random batch, without a trainer around it."""

import math
import time
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass

import torch
from torch import Tensor

from lucid_app.bench.turns import wait
from lucid_models import PaddedTargets, build_detector, build_loss, make_points
from lucid_optim import MuSGD, param_groups

PARTS = ("forward", "loss", "backward", "optimizer")
CLASSES = 80
_KEYPOINTS = 17


@dataclass(frozen=True)
class Workload:
    """What a step works on: task and size of the detector, B images of S px with N labelled objects each."""

    task: str = "detect"
    size: str = "n"
    batch: int = 16
    image_size: int = 320
    objects: int = 8


class BareStep:
    """A training step over one random batch; every call is one step. ``parts`` times its parts.

    Args:
        workload: what it works on.
        device: where.
        precision: ``32``, or ``bf16-mixed`` as automatic mixed precision.
        channels_last: the memory format of weights and images.
    """

    def __init__(self, workload: Workload, device: str, precision: str, channels_last: bool) -> None:
        torch.manual_seed(0)
        task, side = workload.task, workload.image_size
        points = _KEYPOINTS if task == "pose" else None
        layout = torch.channels_last if channels_last else torch.contiguous_format
        self.device = device
        self.precision = precision
        self.network = build_detector(
            task, workload.size, num_classes=CLASSES, num_keypoints=points, image_size=side
        )
        self.network.to(device).to(memory_format=layout).train()
        self.criterion = build_loss(task, CLASSES, num_keypoints=points).to(device)
        self.parameters = [*self.network.parameters(), *self.criterion.parameters()]
        groups = [*param_groups(self.network), *param_groups(self.criterion)]
        self.optimizer = MuSGD([group for group in groups if group["params"]], lr=1e-5)
        images = torch.rand(workload.batch, 3, side, side, generator=torch.Generator().manual_seed(0))
        self.images = images.to(device, memory_format=layout)
        self.targets = random_targets(workload, device)
        self.points = make_points(side, side, self.network.strides, device=torch.device(device))

    def __call__(self) -> Tensor:
        """Make one step and return its loss."""
        with self._context():
            output = self.network(self.images)
            loss = self.criterion(output, *self.points, self.targets, 0.5).total
        self.optimizer.zero_grad()
        torch.autograd.backward(loss)
        self._update()
        found: Tensor = loss.detach()
        return found

    def parts(self) -> dict[str, float]:
        """Make one step and return the milliseconds of each part, the device idle between them."""
        marks = [self._mark()]
        with self._context():
            output = self.network(self.images)
            marks.append(self._mark())
            loss = self.criterion(output, *self.points, self.targets, 0.5).total
        marks.append(self._mark())
        self.optimizer.zero_grad()
        torch.autograd.backward(loss)
        marks.append(self._mark())
        self._update()
        marks.append(self._mark())
        return {part: 1e3 * (marks[i + 1] - marks[i]) for i, part in enumerate(PARTS)}

    def _context(self) -> AbstractContextManager[object]:
        if self.precision == "32":
            return nullcontext()
        return torch.autocast(self.device.partition(":")[0], torch.bfloat16)

    def _update(self) -> None:
        torch.nn.utils.clip_grad_norm_(self.parameters, 10.0)
        self.optimizer.step()

    def _mark(self) -> float:
        wait(self.device)
        return time.perf_counter()


def random_targets(workload: Workload, device: str) -> PaddedTargets:
    """Return seeded ground truth of every task: objects of 16 px to half the canvas, anywhere on it."""
    g = torch.Generator().manual_seed(1)
    shape, side = (workload.batch, workload.objects), workload.image_size
    extent = torch.rand(*shape, 2, generator=g) * (side / 2 - 16) + 16
    corner = torch.rand(*shape, 2, generator=g) * (side - extent)
    boxes = torch.cat((corner, corner + extent), -1)
    angle = (torch.rand(*shape, 1, generator=g) - 0.5) * (math.pi / 2)
    long_first = extent.sort(-1, descending=True).values
    places = torch.rand(*shape, _KEYPOINTS, 2, generator=g) * extent[..., None, :] + corner[..., None, :]
    grid = side // 4
    masks = torch.zeros(*shape, grid, grid, dtype=torch.bool)
    if workload.task == "segment":
        at = torch.arange(grid) * 4.0 + 2
        inside = (at >= corner[..., None]) & (at < (corner + extent)[..., None])
        masks = inside[..., 1, :, None] & inside[..., 0, None, :]
    targets = PaddedTargets(
        boxes,
        torch.randint(0, CLASSES, shape, generator=g),
        torch.ones(shape, dtype=torch.bool),
        rboxes=torch.cat((corner + extent / 2, long_first, angle), -1),
        keypoints=torch.cat((places, torch.full((*shape, _KEYPOINTS, 1), 2.0)), -1),
        masks=masks,
    )
    moved = {name: part.to(device) for name, part in targets._asdict().items() if part is not None}
    return PaddedTargets(**moved)
