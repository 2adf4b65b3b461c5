"""The detector by way of recordings of its parts."""

from collections.abc import Mapping, Sequence
from typing import cast

from torch import Tensor

from lucid_capture import GuardedRegion, ModuleCertificate, Reason, RecorderBackend
from lucid_models import Detector, HeadOutput

_HOOKS = ("_forward_hooks", "_forward_pre_hooks", "_backward_hooks", "_backward_pre_hooks")


class NetworkRoute:
    """Calls a detector with some of its parts replayed.

    Parts are ``network`` (all of it), or ``features`` (backbone and neck) and ``heads``. Heads of pose and segment are
    apart because a batch without objects gives the outputs that only objects supervise no gradient at all: such a batch
    runs the heads natively, rather than with zeros in place of gradients that do not exist. ``heads`` records all
    consumers of the features together, so that their gradients are summed in the native order.
    """

    def __init__(self, detector: Detector, parts: Sequence[str], backend: RecorderBackend) -> None:
        self._detector = detector
        made = {
            "network": (lambda images: detector(images), (detector,)),
            "features": (
                lambda images: detector.neck(detector.backbone(images)),
                (detector.backbone, detector.neck),
            ),
            "heads": (lambda levels: _apart(detector.head(levels)), (detector.head,)),
        }
        self.regions: Mapping[str, GuardedRegion] = {
            part: GuardedRegion(
                part,
                made[part][0],
                backend=backend,
                certificate=ModuleCertificate(*made[part][1]),
                differentiable=True,
            )
            for part in parts
        }

    def __call__(self, images: Tensor, rows: int) -> HeadOutput:
        """Return the output for images (B, 3, H, W) of a batch whose targets have ``rows`` rows."""
        detector, regions = self._detector, self.regions
        if any(getattr(detector, table) for table in _HOOKS):
            for region in regions.values():
                region.counts[Reason.HOOKS] += 1
            return cast(HeadOutput, detector(images))
        if "network" in regions:
            return cast(HeadOutput, regions["network"](images))
        levels = (
            regions["features"](images) if "features" in regions else detector.neck(detector.backbone(images))
        )
        heads = regions.get("heads")
        if heads is None:
            return cast(HeadOutput, detector.head(levels))
        if rows:
            return _together(heads(levels))
        with heads.paused():
            return _together(heads(levels))


def _apart(output: HeadOutput) -> HeadOutput:
    """Return the output with the tensor that both branches share in one of them only."""
    return output._replace(o2o=output.o2o._replace(prototypes=None))


def _together(output: HeadOutput) -> HeadOutput:
    return output._replace(o2o=output.o2o._replace(prototypes=output.o2m.prototypes))
