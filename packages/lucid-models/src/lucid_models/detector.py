"""The detector: backbone, neck and head as one module, and the function that builds it."""

from collections.abc import Sequence
from typing import cast

from torch import Tensor, nn

from lucid_models.backbone import Backbone
from lucid_models.heads import Head, HeadOutput
from lucid_models.neck import Neck
from lucid_models.registry import SIZES, STRIDES, TASKS, SizeSpec, TaskSpec, look_up


class Detector(nn.Module):
    """A network of one task and size. Build it with `build_detector`.

    Attributes: ``task``, ``size`` (their names), ``num_classes``, ``names`` (tuple of class names),
    ``image_size`` (canvas side it is meant for, pixels), ``num_keypoints`` (None without),
    ``strides``; submodules ``backbone``, ``neck``, ``head``.
    """

    def __init__(
        self,
        task: TaskSpec,
        size: SizeSpec,
        names: tuple[str, ...],
        image_size: int,
        num_keypoints: int | None = None,
    ) -> None:
        super().__init__()
        self.task = task.name
        self.size = size.name
        self.names = names
        self.num_classes = len(names)
        self.image_size = image_size
        self.num_keypoints = num_keypoints
        self.strides = STRIDES
        self.backbone = Backbone(size)
        self.neck = Neck(size, self.backbone.widths)
        self.head = Head(task, self.neck.widths, self.num_classes, num_keypoints)

    def forward(self, images: Tensor) -> HeadOutput:
        """Return both branches' dense outputs for images (B, 3, H, W), floating point, RGB in [0, 1].

        Raises TypeError for integer images, ValueError for another shape or for sides that are not positive
        multiples of 32, before any computation.
        """
        check_images(images)
        return cast(HeadOutput, self.head(self.neck(self.backbone(images))))


def check_images(images: Tensor) -> None:
    """Raise unless ``images`` is a floating (B, 3, H, W) batch with sides that are multiples of 32."""
    if images.dim() != 4 or images.shape[1] != 3:
        raise ValueError(f"images must be (B, 3, H, W), got {tuple(images.shape)}")
    if not images.is_floating_point():
        raise TypeError(f"images must be floating point in [0, 1], got {images.dtype}; divide by 255 first")
    height, width = images.shape[2:]
    if height < 1 or width < 1 or height % STRIDES[-1] or width % STRIDES[-1]:
        raise ValueError(
            f"image sides must be positive multiples of {STRIDES[-1]}, got {height} x {width}; "
            "letterbox the images to such a canvas"
        )


def build_detector(
    task: str = "detect",
    size: str = "n",
    *,
    num_classes: int | None = None,
    names: Sequence[str] | None = None,
    num_keypoints: int | None = None,
    image_size: int | None = None,
) -> Detector:
    """Return a freshly initialised `Detector` of a task in `TASKS` and a size in `SIZES`.

    ``num_classes`` defaults to the length of ``names``, or to the task's own; ``names`` default to
    ``class_0`` onwards; ``image_size`` (pixels) to the task's own. ``num_keypoints`` describes the
    annotations, so the pose task wants it said and the others refuse it. Raises ValueError for an unknown
    task or size, listing the known ones, for a class or keypoint count below 1, for names unlike the class
    count or repeated, and for an image size that is not a positive multiple of 32.

    >>> import torch
    >>> detector = build_detector("detect", "n", names=["circle", "square"])
    >>> detector(torch.zeros(1, 3, 64, 64)).o2o.cls.shape
    torch.Size([1, 84, 2])
    """
    task_spec, size_spec = look_up(TASKS, "task", task), look_up(SIZES, "size", size)
    if task_spec.num_keypoints is None and num_keypoints is not None:
        raise ValueError(f"task {task!r} predicts no keypoints; leave num_keypoints out")
    if task_spec.num_keypoints is not None and (num_keypoints is None or num_keypoints < 1):
        raise ValueError(
            f"task {task!r} needs num_keypoints of at least 1, got {num_keypoints}; COCO persons have 17"
        )
    if num_classes is None:
        num_classes = task_spec.num_classes if names is None else len(names)
    if num_classes < 1:
        raise ValueError(f"num_classes must be at least 1, got {num_classes}")
    names = tuple(f"class_{i}" for i in range(num_classes)) if names is None else tuple(names)
    if len(names) != num_classes:
        raise ValueError(f"{len(names)} names for num_classes={num_classes}; give one name per class")
    if len(set(names)) != len(names):
        repeated = sorted({name for name in names if names.count(name) > 1})
        raise ValueError(f"class names must differ, repeated: {', '.join(repeated)}")
    image_size = task_spec.image_size if image_size is None else image_size
    if image_size < 1 or image_size % STRIDES[-1]:
        raise ValueError(f"image_size must be a positive multiple of {STRIDES[-1]}, got {image_size}")
    return Detector(task_spec, size_spec, names, image_size, num_keypoints)
