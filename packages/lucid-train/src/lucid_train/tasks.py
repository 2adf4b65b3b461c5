"""What differs between tasks, in one table."""

from collections.abc import Mapping
from dataclasses import dataclass
from types import MappingProxyType


@dataclass(frozen=True)
class TaskRow:
    """One task's defaults: canvas side in pixels, evaluation batch, the metric that ranks checkpoints."""

    image_size: int
    eval_batch: int
    headline: str


TASK_TABLE: Mapping[str, TaskRow] = MappingProxyType(
    {
        "detect": TaskRow(image_size=640, eval_batch=32, headline="val/mAP"),
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
