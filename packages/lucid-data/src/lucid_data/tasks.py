"""The four tasks and what each one needs of a data set."""

from dataclasses import dataclass
from typing import Literal, get_args

Task = Literal["detect", "segment", "pose", "obb"]


@dataclass(frozen=True)
class TaskNeeds:
    """What the labels of one task must carry besides upright boxes and classes.

    ``outlines`` are read; ``masks`` are learnt, so an instance whose outline is unusable is left out.
    """

    outlines: bool = False
    masks: bool = False
    keypoints: bool = False
    rboxes: bool = False


TASK_NEEDS: dict[Task, TaskNeeds] = {
    "detect": TaskNeeds(),
    "segment": TaskNeeds(outlines=True, masks=True),
    "pose": TaskNeeds(keypoints=True),
    "obb": TaskNeeds(rboxes=True),
}


def as_task(task: str) -> Task:
    """Return ``task`` checked; ValueError names the known tasks.

    >>> as_task("pose")
    'pose'
    """
    for known in get_args(Task):
        if task == known:
            return known  # type: ignore[no-any-return]
    raise ValueError(f"unknown task {task!r}; choose one of {', '.join(TASK_NEEDS)}")
