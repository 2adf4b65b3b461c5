"""Labels of every task over an image."""

from collections.abc import Callable, Mapping, Sequence
from types import MappingProxyType

from matplotlib.axes import Axes
from matplotlib.patches import Polygon, Rectangle
from torch import Tensor

from lucid_data import Targets
from lucid_geometry import rboxes_to_polygons
from lucid_viz.marks import box_text, rectangle
from lucid_viz.style import RenderOptions, caption, class_color

Mark = Callable[[Axes, Targets, int, str, RenderOptions], None]


def draw_ground_truth(
    ax: Axes,
    targets: Targets,
    task: str = "detect",
    names: Sequence[str] = (),
    options: RenderOptions | None = None,
) -> None:
    """Draw labels, dashed and unfilled and without scores: boxes, outlines, points, oriented boxes.

    An instance without an outline is drawn as its box. Points are hollow, hidden ones small. Ignore regions are hatched
    in grey, difficult objects dotted.

    Args:
        ax: axes that show the image.
        targets: labels in the image's pixels.
        task: which of the labels are drawn.
        names: class names; without them no text is written.
        options: widths and text size.

    Raises:
        ValueError: an unknown task.
    """
    if task not in _MARKS:
        raise ValueError(f"task {task!r} has no drawing of labels; choose: {', '.join(_MARKS)}")
    options = options or RenderOptions()
    for region in targets.crowd.tolist():
        _ignore_region(ax, region)
    for number, (box, label) in enumerate(zip(targets.boxes.tolist(), targets.labels.tolist(), strict=True)):
        color = class_color(label)
        for mark in _MARKS[task]:
            mark(ax, targets, number, color, options)
        if names and options.show_labels:
            box_text(ax, box, caption(tuple(names), label), color, options.font_size)


def _box(ax: Axes, targets: Targets, number: int, color: str, options: RenderOptions) -> None:
    rectangle(ax, targets.boxes[number].tolist(), color, options.truth_width, _style(targets, number))


def _outline(ax: Axes, targets: Targets, number: int, color: str, options: RenderOptions) -> None:
    rings = targets.polygons[number] if targets.polygons else ()
    if not rings:
        _box(ax, targets, number, color, options)
    for ring in rings:
        _closed(ax, ring, color, options, _style(targets, number))


def _points(ax: Axes, targets: Targets, number: int, color: str, options: RenderOptions) -> None:
    for x, y, visibility in targets.keypoints[number].tolist() if len(targets.keypoints) else ():
        if visibility > 0:
            size = 4.0 if visibility > 1 else 2.0
            ax.plot(
                x, y, "o", markersize=size, markerfacecolor="none", markeredgecolor=color, markeredgewidth=1.2
            )


def _oriented_box(ax: Axes, targets: Targets, number: int, color: str, options: RenderOptions) -> None:
    if len(targets.rboxes):
        _closed(ax, rboxes_to_polygons(targets.rboxes[number]), color, options, _style(targets, number))


def _closed(ax: Axes, corners: Tensor, color: str, options: RenderOptions, style: str) -> None:
    ax.add_patch(
        Polygon(corners.tolist(), fill=False, edgecolor=color, linewidth=options.truth_width, linestyle=style)
    )


def _style(targets: Targets, number: int) -> str:
    return ":" if bool(targets.difficult[number]) else "--"


def _ignore_region(ax: Axes, box: list[float]) -> None:
    x1, y1, x2, y2 = box
    ax.add_patch(
        Rectangle((x1, y1), x2 - x1, y2 - y1, fill=False, edgecolor="0.6", hatch="//", linewidth=0.5)
    )


_MARKS: Mapping[str, tuple[Mark, ...]] = MappingProxyType(
    {
        "detect": (_box,),
        "segment": (_outline,),
        "pose": (_box, _points),
        "obb": (_oriented_box,),
    }
)
