"""The replay switches, in one table: what each records, where it applies, and where it is slower."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from types import MappingProxyType

_TASKS = ("detect", "segment", "pose", "obb")
_PRECISIONS = ("32", "16-mixed", "bf16-mixed")


@dataclass(frozen=True)
class ReplaySwitch:
    """One switch.

    Attributes:
        help: what is recorded, and where that does not pay.
        tasks: tasks that have the part.
        precisions: those in which replay gives the native bytes.
        parts: by task, the parts of the network that the switch records; empty for what is no part of it.
        bounded: whether what is learned is close to the native bytes, not the same.
        by_name: whether it is on only when asked for by name, whatever the mode.
        excludes: switches that do not go with it.
        every_stage: whether it records the backward pass of every stage, so that none may be frozen.
        one_canvas: whether it is for images of one size.
    """

    help: str
    tasks: tuple[str, ...] = _TASKS
    precisions: tuple[str, ...] = _PRECISIONS
    parts: Mapping[str, tuple[str, ...]] = field(default_factory=lambda: MappingProxyType({}))
    bounded: bool = False
    by_name: bool = False
    excludes: tuple[str, ...] = ()
    every_stage: bool = False
    one_canvas: bool = False


REPLAY_SWITCHES: Mapping[str, ReplaySwitch] = MappingProxyType(
    {
        "capture_network": ReplaySwitch(
            "Replay the network, forward and backward (segment: backbone and neck). Pays at small batches; "
            "measure from batch 16 on.",
            parts=MappingProxyType(
                {
                    "detect": ("network",),
                    "segment": ("features",),
                    "pose": ("features", "heads"),
                    "obb": ("network",),
                }
            ),
            every_stage=True,
            one_canvas=True,
        ),
        "capture_segment_heads": ReplaySwitch(
            "Replay the heads of a segment network, bf16-mixed only. Gains little from batch 16 on.",
            tasks=("segment",),
            precisions=("bf16-mixed",),
            parts=MappingProxyType({"segment": ("heads",)}),
            every_stage=True,
            one_canvas=True,
        ),
        "capture_loss": ReplaySwitch(
            "Replay label assignment and detection loss (detect, pose). Can be slower from batch 16 on.",
            tasks=("detect", "pose"),
            one_canvas=True,
        ),
        "capture_orthogonalization": ReplaySwitch("Replay the optimizer's orthogonalisation."),
        "capture_updates": ReplaySwitch(
            "Replay the whole preparation of the optimizer's updates. No gain at batch 32."
        ),
        "capture_gradient_norm": ReplaySwitch("Replay the total gradient norm that clipping needs."),
        "capture_step": ReplaySwitch(
            "Replay network, assignment and loss as one recording, forward and backward (detect, obb), in place of "
            "--capture-network and --capture-loss. Recorded anew as objects grow in number; measure from batch 16 on.",
            tasks=("detect", "obb"),
            by_name=True,
            excludes=("capture_network", "capture_loss"),
            every_stage=True,
            one_canvas=True,
        ),
        "compile_step": ReplaySwitch(
            "Compile network, assignment and loss (detect). What is learned is close, not the same bytes. Compiling "
            "takes minutes: slower in a short run.",
            tasks=("detect",),
            bounded=True,
            by_name=True,
            excludes=("capture_network", "capture_loss", "capture_step"),
            one_canvas=True,
        ),
    }
)
"""By the name that configuration and command line use; read-only."""
