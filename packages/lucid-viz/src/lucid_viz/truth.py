"""Labels of every task over an image."""

from collections.abc import Callable, Mapping, Sequence
from types import MappingProxyType

from matplotlib.axes import Axes
from matplotlib.patches import PathPatch, Polygon, Rectangle
from matplotlib.path import Path

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
    """Draw labels: dashed boxes, filled outlines, points (hollow when hidden), oriented boxes; no scores.

    Ignore regions are hatched in grey, difficult objects dotted.

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
    for ring in rings:
        # an even-odd fill shows what the mask is: a slit joins a hole to its outer ring without filling it
        corners = [*ring.tolist(), ring[0].tolist()]
        codes = [Path.MOVETO, *([Path.LINETO] * (len(corners) - 2)), Path.CLOSEPOLY]
        ax.add_patch(
            PathPatch(Path(corners, codes), facecolor=color, edgecolor=color, alpha=0.45, linewidth=0.8)
        )


def _points(ax: Axes, targets: Targets, number: int, color: str, options: RenderOptions) -> None:
    for x, y, visibility in targets.keypoints[number].tolist() if len(targets.keypoints) else ():
        if visibility > 0:
            face = color if visibility > 1 else "none"
            ax.plot(x, y, "o", markersize=4, markerfacecolor=face, markeredgecolor=color, markeredgewidth=1.0)


def _oriented_box(ax: Axes, targets: Targets, number: int, color: str, options: RenderOptions) -> None:
    if len(targets.rboxes):
        corners = rboxes_to_polygons(targets.rboxes[number]).tolist()
        style = _style(targets, number)
        ax.add_patch(
            Polygon(corners, fill=False, edgecolor=color, linewidth=options.truth_width, linestyle=style)
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
        "segment": (_outline, _box),
        "pose": (_box, _points),
        "obb": (_oriented_box,),
    }
)
