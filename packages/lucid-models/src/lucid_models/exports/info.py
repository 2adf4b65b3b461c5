"""What an exported file says of itself: one JSON text that every format carries under the key "lucid"."""

import json
from dataclasses import asdict, dataclass, fields
from typing import Any

from lucid_models.detector import Detector
from lucid_models.registry import TASKS

KEY = "lucid"
SCHEMA = 1
PREPROCESSING = (
    "RGB; resize bilinearly with antialiasing in uint8 by r = min(image_size / width, image_size / height) to "
    "round(width * r) x round(height * r), halves to even; centre on an image_size x image_size canvas of grey "
    "114, an odd pixel of padding going right and bottom; divide by 255; planes first (3, height, width)"
)
"""The rule that turns a picture into one row of the graph's input."""


@dataclass(frozen=True)
class ExportInfo:
    """The facts a runtime needs beside the file: what goes in, what comes out, and what the classes are called.

    ``batch`` is None where any number of images may be given. ``outputs`` names the graph's outputs in order;
    rows are in canvas pixels, best score first, zeros where nothing was found.
    """

    task: str
    size: str
    names: tuple[str, ...]
    num_keypoints: int | None
    image_size: int
    max_detections: int
    batch: int | None
    outputs: tuple[str, ...]
    preprocessing: str = PREPROCESSING
    schema: int = SCHEMA

    def to_json(self) -> str:
        """Return the JSON text."""
        return json.dumps(asdict(self))

    @classmethod
    def from_json(cls, text: str | None, place: str) -> "ExportInfo":
        """Return what ``text`` says; ValueError naming ``place`` when it is no such text."""
        try:
            values: dict[str, Any] = json.loads(text or "")
            known = {field.name for field in fields(cls)} & values.keys()
            found = cls(**{key: _frozen(values[key]) for key in known})
        except (AttributeError, TypeError, ValueError):
            raise ValueError(f"{place} carries no entry {KEY!r} of an export of this project") from None
        if found.schema != SCHEMA:
            raise ValueError(f"{place} has schema {found.schema!r}, this version reads {SCHEMA}")
        return found


def _frozen(value: Any) -> Any:
    return tuple(value) if isinstance(value, list) else value


def export_info(detector: Detector, image_size: int, max_detections: int, batch: int | None) -> ExportInfo:
    """Return the `ExportInfo` of a detector's graph."""
    task = TASKS[detector.task]
    extra = (("masks", task.masks), ("keypoints", task.num_keypoints is not None))
    return ExportInfo(
        task=detector.task,
        size=detector.size,
        names=detector.names,
        num_keypoints=detector.num_keypoints,
        image_size=image_size,
        max_detections=max_detections,
        batch=batch,
        outputs=("detections", *(name for name, there in extra if there)),
    )
