"""What differs between tasks, in one table."""

from collections.abc import Mapping
from dataclasses import dataclass
from types import MappingProxyType


@dataclass(frozen=True)
class TaskRow:
    """One task.

    Attributes:
        image_size: canvas side in pixels when none is given.
        eval_batch: images per step of an evaluation when none is given.
        scores: what is scored, and how its numbers are prefixed in reports: ``bbox``, ``segm``, ``keypoints`` or
            ``rotated``.
        logged: columns of the metrics table and the report's numbers they show.
        headline: the column that ranks checkpoints.
        least_score: detections that score less are not decoded for scoring; masks and points cost something.
        objects_needed: whether some parameters get a gradient from objects alone, and none from a batch without.
    """

    image_size: int
    eval_batch: int
    scores: Mapping[str, str]
    logged: Mapping[str, str]
    headline: str
    least_score: float = 0.0
    objects_needed: bool = False


_BOXES = {"val/mAP": "map", "val/mAP50": "map_50", "val/mAP75": "map_75"}

TASK_TABLE: Mapping[str, TaskRow] = MappingProxyType(
    {
        "detect": TaskRow(640, 32, {"bbox": ""}, _BOXES, "val/mAP"),
        "segment": TaskRow(
            640,
            32,
            {"bbox": "", "segm": "segm_"},
            _BOXES | {"val/segm_mAP": "segm_map", "val/segm_mAP50": "segm_map_50"},
            "val/segm_mAP",
            least_score=1e-3,
            objects_needed=True,
        ),
        "pose": TaskRow(
            640,
            32,
            {"bbox": "", "keypoints": "oks_"},
            _BOXES | {"val/oks_mAP": "oks_map", "val/oks_mAP50": "oks_map_50"},
            "val/oks_mAP",
            objects_needed=True,
        ),
        "obb": TaskRow(
            1024,
            8,
            {"rotated": ""},
            {"val/rotated_mAP": "map", "val/rotated_mAP50": "map_50", "val/rotated_mAP75": "map_75"},
            "val/rotated_mAP",
        ),
    }
)


def task_row(task: str) -> TaskRow:
    """Return the row of a task.

    Raises:
        ValueError: the task cannot be trained; the message lists those that can.

    Example:
        >>> task_row("detect").image_size
        640
    """
    if task not in TASK_TABLE:
        raise ValueError(f"task {task!r} cannot be trained; choose one of: {', '.join(TASK_TABLE)}")
    return TASK_TABLE[task]
