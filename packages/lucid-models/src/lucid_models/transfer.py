"""Starting a detector from another's weights, tensor by tensor, with an account of what happened."""

from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass
from os import PathLike
from typing import Literal

import torch
from torch import Tensor

from lucid_models.checkpoint import read_checkpoint
from lucid_models.detector import Detector

Action = Literal["copied", "shape differs", "missing", "unused"]


@dataclass(frozen=True)
class TransferRow:
    """What happened to one tensor; ``here`` and ``there`` are its shapes in the detector and the weights."""

    key: str
    action: Action
    here: tuple[int, ...] | None
    there: tuple[int, ...] | None


@dataclass(frozen=True)
class Transfer:
    """The account of `load_weights`: one row per tensor, those of the detector first."""

    rows: tuple[TransferRow, ...]

    def count(self, action: Action) -> int:
        """Return the number of tensors that met ``action``."""
        return Counter(row.action for row in self.rows)[action]

    def __str__(self) -> str:
        head = (
            f"{self.count('copied')} tensors copied, {self.count('shape differs')} kept for another shape, "
            f"{self.count('missing')} kept for want of one, {self.count('unused')} unused"
        )
        rest = [
            f"  {row.key}: {row.action}, {row.here} here, {row.there} there"
            for row in self.rows
            if row.action != "copied"
        ]
        return "\n".join([head, *rest])


def load_weights(detector: Detector, weights: Mapping[str, Tensor] | str | PathLike[str]) -> Transfer:
    """Copy into ``detector`` every tensor of equal name and shape, and return the `Transfer` account.

    ``weights`` is a state dictionary or the path of a checkpoint. Everything else keeps its fresh
    initialisation, which is what fine-tuning on another set of classes wants of the class outputs. Raises
    ValueError, with the detector unchanged, when no tensor fits; what `load` raises for a bad file.

    >>> from lucid_models import build_detector
    >>> donor, detector = build_detector(num_classes=80), build_detector(num_classes=90)
    >>> load_weights(detector, donor.state_dict()).count("missing")
    0
    """
    source = weights if isinstance(weights, Mapping) else read_checkpoint(weights)[1]
    state = detector.state_dict()
    rows = []
    for key, value in state.items():
        here, other = tuple(value.shape), source.get(key)
        if other is None:
            rows.append(TransferRow(key, "missing", here, None))
        else:
            there = tuple(other.shape)
            rows.append(TransferRow(key, "copied" if here == there else "shape differs", here, there))
    rows += [
        TransferRow(key, "unused", None, tuple(value.shape))
        for key, value in source.items()
        if key not in state
    ]
    transfer = Transfer(tuple(rows))
    if not transfer.count("copied"):
        raise ValueError(
            f"no tensor of the weights fits detector {detector.task}-{detector.size}; "
            "are they of another size or another network?"
        )
    with torch.no_grad():
        for row in transfer.rows:
            if row.action == "copied":
                state[row.key].copy_(source[row.key])
    return transfer
