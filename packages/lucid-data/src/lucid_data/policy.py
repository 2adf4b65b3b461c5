"""How much augmentation: one frozen record, and the table of defaults by model size and task."""

from __future__ import annotations

from dataclasses import dataclass, fields
from typing import Final, Literal

from lucid_data.tasks import TASK_NEEDS, as_task

ModelSize = Literal["n", "s", "m", "l", "x"]


@dataclass(frozen=True)
class AugmentPolicy:
    """Ranges and probabilities of the training transforms.

    Attributes:
        mosaic: probability that a sample is composed of four pictures.
        mosaic_pool: partners are drawn among this many neighbours in the epoch's order. A worker then decodes
            a picture about once per epoch instead of four times; more gives batches more variety at more
            decoding. None chooses: the whole set where all its pictures stay in memory, else 16.
        scale: zoom is uniform in [1 - scale, 1 + scale], on a grid of 1/32.
        translate: shift, as a fraction of the side, uniform in [-translate, translate].
        degrees, shear: rotation and shear angle, degrees, uniform in [-x, x].
        hue, saturation, value: relative gains, uniform in [-x, x].
        flip_horizontal, flip_vertical: probabilities.
        mixup: probability; ``mixup_shape`` is the shape of its Beta distribution.
        copy_paste: probability that outlined objects of another sample are pasted in; needs outlines, so for detect
            and pose a catalogue opened with ``outlines=True``, and never applies to oriented boxes.
        copy_paste_source: ``partner``, a further sample, or ``self``, the same one mirrored, which decodes nothing.
        min_size: instances narrower or lower than this after clipping, in output px, are dropped.
        min_visibility: as are those with less than this fraction of their box left.
        max_aspect: and those more elongated than this.

    Raises ValueError naming the field that is out of range.

    >>> AugmentPolicy(mosaic=0.0).mosaic
    0.0
    """

    mosaic: float = 1.0
    mosaic_pool: int | None = None
    scale: float = 0.5
    translate: float = 0.1
    degrees: float = 0.0
    shear: float = 0.0
    hue: float = 0.015
    saturation: float = 0.7
    value: float = 0.4
    flip_horizontal: float = 0.5
    flip_vertical: float = 0.0
    mixup: float = 0.0
    mixup_shape: float = 32.0
    copy_paste: float = 0.0
    copy_paste_source: Literal["partner", "self"] = "partner"
    min_size: float = 2.0
    min_visibility: float = 0.1
    max_aspect: float = 100.0

    def __post_init__(self) -> None:
        if self.copy_paste_source not in ("partner", "self"):
            raise ValueError(
                f"AugmentPolicy.copy_paste_source must be 'partner' or 'self', got {self.copy_paste_source!r}"
            )
        for field in fields(self):
            if field.name == "copy_paste_source":
                continue
            low, high = _LIMITS[field.name]
            value = getattr(self, field.name)
            if value is None and field.name == "mosaic_pool":
                continue
            if not low <= value <= high:
                raise ValueError(f"AugmentPolicy.{field.name} must be in [{low:g}, {high:g}], got {value!r}")


_LIMITS: Final = {
    "mosaic": (0, 1),
    "mosaic_pool": (1, 1 << 40),
    "scale": (0, 0.99),
    "translate": (0, 1),
    "degrees": (0, 180),
    "shear": (0, 80),
    "hue": (0, 0.5),
    "saturation": (0, 1),
    "value": (0, 1),
    "flip_horizontal": (0, 1),
    "flip_vertical": (0, 1),
    "mixup": (0, 1),
    "mixup_shape": (1, 1e6),
    "copy_paste": (0, 1),
    "min_size": (0, 1e6),
    "min_visibility": (0, 1),
    "max_aspect": (1, 1e9),
}

# model size: (scale half-range, mixup, copy-paste probability); larger models overfit sooner
_BY_SIZE: Final[dict[ModelSize, tuple[float, float, float]]] = {
    "n": (0.5, 0.0, 0.1),
    "s": (0.9, 0.05, 0.15),
    "m": (0.9, 0.1, 0.4),
    "l": (0.9, 0.1, 0.5),
    "x": (0.9, 0.2, 0.6),
}
# aerial pictures have no up direction
_VERTICAL_FLIP: Final = {"detect": 0.0, "segment": 0.0, "pose": 0.0, "obb": 0.5}

NO_AUGMENTATION: Final = AugmentPolicy(
    mosaic=0, scale=0, translate=0, hue=0, saturation=0, value=0, flip_horizontal=0
)


def policy_for(size: str, task: str = "detect") -> AugmentPolicy:
    """Return the default policy of a model size (n, s, m, l, x) and a task.

    Copy-paste is for segment: other tasks do not read outlines by default, and pasted people would hide joints.

    Raises ValueError listing the known sizes or tasks.

    >>> policy_for("m").mixup
    0.1
    """
    kind = as_task(task)
    for known, (scale, mixup, paste) in _BY_SIZE.items():
        if size == known:
            return AugmentPolicy(
                scale=scale,
                mixup=mixup,
                copy_paste=paste if TASK_NEEDS[kind].masks else 0.0,
                flip_vertical=_VERTICAL_FLIP[kind],
            )
    raise ValueError(f"unknown model size {size!r}; choose one of {', '.join(_BY_SIZE)}")
