"""A training step's network, decoding, assignment and loss as one compiled function."""

import warnings
from collections import Counter
from dataclasses import asdict
from typing import Any

import torch
from torch import Tensor
from torch._functorch import config as functorch_config

from lucid_capture import HostScalars, Reason, RegionReport, ReplayWarning
from lucid_models import Detector, PaddedTargets, TaskLoss, TaskLossResult, check_labels
from lucid_train.processes import world_size
from lucid_train.replay.whole import total_alone


class CompiledStep:
    """Calls a detector and its loss as `torch.compile` makes them.

    Args:
        detector: the network.
        criterion: its loss, of the task ``detect``.
        device: where both are.
        compiler: a back-end of `torch.compile`; ``eager`` follows the trace and compiles nothing, with native bytes.

    One graph serves all batches of two images and two rows of targets or more; 0 and 1 have graphs of their own. The
    branch weight is a tensor, so that its schedule compiles nothing. What cannot be compiled as a whole is native from
    then on, with one warning. Of the results only the total carries a gradient.
    """

    def __init__(
        self, detector: Detector, criterion: TaskLoss, device: torch.device, compiler: str = "inductor"
    ) -> None:
        self._detector, self._criterion, self._compiler = detector, criterion, compiler
        self._scalars = HostScalars({"alpha": 0.0}, device)
        self._compiled = torch.compile(self._step, backend=self._backend, fullgraph=True)
        self.counts: Counter[Reason] = Counter()
        self.graphs, self.launches = 0, 0
        self.retired_by: Reason | None = None
        self.cause: str | None = None

    def __call__(
        self, images: Tensor, points: Tensor, strides: Tensor, targets: PaddedTargets, alpha: float | Tensor
    ) -> TaskLossResult:
        """Return the losses of a batch, compiled where it can be."""
        if targets.labels.device.type == "cpu":
            check_labels(targets.labels, targets.valid, self._criterion.detection.num_classes)
        self._scalars["alpha"] = float(alpha)
        given = (images, targets.boxes, targets.labels, targets.valid)
        args = (*given, points, strides, self._scalars.tensors["alpha"])
        if self.retired_by is None and world_size() > 1:
            self.retired_by = Reason.UNSUPPORTED  # the plan said so when the run began
        if self.retired_by is not None:
            first = self.retired_by is Reason.UNSUPPORTED
            self.counts[Reason.UNSUPPORTED if first else Reason.RETIRED] += 1
            return self._step(*args)
        for tensor, axes in zip(given, ((0,), (0, 1), (0, 1), (0, 1)), strict=True):
            torch._dynamo.mark_dynamic(tensor, axes)
        try:
            # a backward pass that cannot be compiled is told now, not inside backward()
            with functorch_config.patch(force_non_lazy_backward_lowering=True):
                result: TaskLossResult = self._compiled(*args)
        except _refusals() as error:
            self._retire(error)
            return self._step(*args)
        self.counts[Reason.REPLAYED] += 1
        return result

    def report(self) -> dict[str, Any]:
        """Return the counters as those of a region, ``recorded`` being graphs, and ``cause``: what ended it."""
        shared = RegionReport(
            name="step",
            state="retired" if self.retired_by else "active" if self.graphs else "idle",
            recorded=self.graphs,
            replayed=self.counts[Reason.REPLAYED],
            forward_launches=self.launches,
            backward_launches=0,
            owned_bytes=0,
            native={r.name.lower(): n for r, n in self.counts.items() if r is not Reason.REPLAYED},
            retired_by=self.retired_by.name.lower() if self.retired_by else None,
        )
        return asdict(shared) | {"cause": self.cause}

    def close(self) -> None:
        """Free what was compiled; entries left behind would count against the limit of the next fit."""
        if self.graphs:
            torch.compiler.reset()

    def _step(
        self,
        images: Tensor,
        boxes: Tensor,
        labels: Tensor,
        valid: Tensor,
        points: Tensor,
        strides: Tensor,
        alpha: Tensor,
    ) -> TaskLossResult:
        targets = PaddedTargets(boxes, labels, valid)
        return total_alone(self._criterion(self._detector(images), points, strides, targets, alpha))

    def _backend(self, graph: torch.fx.GraphModule, inputs: list[Tensor]) -> Any:
        """Return the compiled form of a graph, which counts its launches: a graph that never ran proves nothing."""
        run = torch._dynamo.lookup_backend(self._compiler)(graph, inputs)
        self.graphs += 1

        def launch(*args: Any) -> Any:
            self.launches += 1
            return run(*args)

        return launch

    def _retire(self, error: Exception) -> None:
        self.retired_by = Reason.RECORDING_FAILED
        self.counts[Reason.RECORDING_FAILED] += 1
        said = next((line.strip() for line in str(error).splitlines() if line.strip()), "")
        self.cause = f"{type(error).__name__}: {said}"
        message = (
            f"compile_step: the step runs natively from here on; it could not be compiled ({self.cause})"
        )
        warnings.warn(message, ReplayWarning, stacklevel=3)


def _refusals() -> tuple[type[Exception], ...]:
    """Return what compiling raises: errors of the step itself are none of these, and are raised as they are."""
    return torch._dynamo.exc.TorchDynamoException, torch._dynamo.exc.FailOnRecompileLimitHit
