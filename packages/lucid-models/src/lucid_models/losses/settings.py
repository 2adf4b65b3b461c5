"""The weights and forms of every task's objective."""

import math
from dataclasses import dataclass, fields
from typing import Literal, get_args

from lucid_models.losses.rotated import RotatedForm

Likelihood = Literal["rle", "laplace"]


@dataclass(frozen=True)
class LossSettings:
    """Gains of the terms, and the choices among their forms; a task reads what concerns it.

    ``box``, ``cls`` and ``l1`` weigh the parts of both branches in every task, ``mask`` and ``semantic``
    those of segment, ``angle`` that of obb, ``rle``, ``oks`` and ``visibility`` those of pose. (24, 1) for OKS
    and RLE is the split that arXiv:2606.03748, Table 9, found best. ``rotated_form`` is the box loss of obb,
    ``likelihood`` RLE or its control without the learned density, ``log_sigma_count`` how often log sigma
    enters it, ``paired_density`` evaluates the density of both branches in one call. Raises ValueError for a
    gain that is not finite and non-negative and for an unknown form.
    """

    box: float = 7.5
    cls: float = 0.5
    l1: float = 6.0
    mask: float = 2.5
    semantic: float = 0.5
    angle: float = 0.25
    rle: float = 1.0
    oks: float = 24.0
    visibility: float = 1.0
    rotated_form: RotatedForm = "hellinger"
    likelihood: Likelihood = "rle"
    log_sigma_count: Literal[1, 2] = 1
    paired_density: bool = False

    def __post_init__(self) -> None:
        for field in fields(self):
            value = getattr(self, field.name)
            if field.type is float and not (math.isfinite(value) and value >= 0):
                raise ValueError(f"LossSettings.{field.name} must be finite and not negative, got {value}")
        for name, known in (
            ("rotated_form", get_args(RotatedForm)),
            ("likelihood", get_args(Likelihood)),
            ("log_sigma_count", (1, 2)),
        ):
            if getattr(self, name) not in known:
                raise ValueError(f"LossSettings.{name} must be one of {known}, got {getattr(self, name)!r}")
