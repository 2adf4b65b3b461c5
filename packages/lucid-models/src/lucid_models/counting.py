"""Parameters and floating-point operations of a detector, counted on a twin that holds no storage."""

import copy
from dataclasses import dataclass
from typing import Any, overload

import torch
from torch import Tensor, nn

from lucid_models.deploy import fuse
from lucid_models.detector import Detector, build_detector
from lucid_models.registry import TASKS, look_up


@dataclass(frozen=True)
class Count:
    """Sizes of one detector.

    ``params_deployed``: one-to-one branch only, BatchNorm folded. ``params_training``: the whole network,
    both branches, as a checkpoint holds it. ``gflops``: of the deployed network for one image, twice the
    multiply-accumulates of its convolutions plus twice the elements its upsampling writes, in units of 1e9.
    """

    params_deployed: int
    params_training: int
    gflops: float


@overload
def count(model: Detector, *, image_size: int | None = None) -> Count: ...
@overload
def count(
    model: str = "detect",
    size: str = "n",
    *,
    num_classes: int | None = None,
    num_keypoints: int | None = None,
    image_size: int | None = None,
) -> Count: ...


def count(
    model: Detector | str = "detect",
    size: str = "n",
    *,
    num_classes: int | None = None,
    num_keypoints: int | None = None,
    image_size: int | None = None,
) -> Count:
    """Return the `Count` of a detector, or of a task and size by name, at a square canvas side in pixels.

    ``image_size`` defaults to the detector's or the task's own, ``num_keypoints`` to the task's. The
    detector is left as it was, its train/eval flags included. Attention products count nothing, by the
    convention of published tables.

    >>> count("detect", "n")
    Count(params_deployed=2408932, params_training=2572280, gflops=5.3598848)
    """
    if isinstance(model, Detector):
        twin = _weightless(model)
    else:
        points = look_up(TASKS, "task", model).num_keypoints if num_keypoints is None else num_keypoints
        with torch.device("meta"):
            twin = build_detector(model, size, num_classes=num_classes, num_keypoints=points)
    folded = fuse(twin)
    side = twin.image_size if image_size is None else image_size
    return Count(
        params_deployed=sum(p.numel() for p in folded.parameters()),
        params_training=sum(p.numel() for p in twin.parameters()),
        gflops=2 * _operations(folded, side) / 1e9,
    )


def _weightless(detector: Detector) -> Detector:
    """Return a copy of the detector whose tensors live on the meta device."""
    memo: dict[int, Any] = {
        id(p): nn.Parameter(torch.empty_like(p, device="meta")) for p in detector.parameters()
    }
    memo |= {id(b): torch.empty_like(b, device="meta") for b in detector.buffers()}
    return copy.deepcopy(detector, memo)


def _operations(module: nn.Module, image_size: int) -> int:
    """Return multiply-accumulates of the convolutions plus elements written by upsampling, one image."""
    total = 0

    def observe(layer: nn.Module, _: object, output: Tensor) -> None:
        nonlocal total
        per_element = 1
        if isinstance(layer, nn.Conv2d):
            per_element = layer.weight[0].numel()
        elif isinstance(layer, nn.ConvTranspose2d):  # each input element meets the whole kernel
            per_element = layer.weight[:, 0].numel() // (layer.stride[0] * layer.stride[1])
        total += output.numel() * per_element

    for layer in module.modules():
        if isinstance(layer, nn.Conv2d | nn.ConvTranspose2d | nn.Upsample):
            layer.register_forward_hook(observe)
    module(torch.empty(1, 3, image_size, image_size, device="meta"))
    return total
