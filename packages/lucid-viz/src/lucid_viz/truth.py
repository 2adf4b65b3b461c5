"""Labels of every task over an image."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from types import MappingProxyType

from matplotlib.axes import Axes
from matplotlib.patches import Rectangle

from lucid_data import Targets
from lucid_geometry import rboxes_to_polygons
from lucid_viz.captions import write_captions
from lucid_viz.marks import bones, closed_line, rectangle
from lucid_viz.placing import outlines
from lucid_viz.skeletons import edges_to_draw
from lucid_viz.style import RenderOptions, class_color
from lucid_viz.words import caption

Mark = Callable[[Axes, Targets, int, str, RenderOptions], None]


def draw_ground_truth(
    ax: Axes,
    targets: Targets,
    task: str = "detect",
    names: Sequence[str] = (),
    options: RenderOptions | None = None,
) -> None:
    """Draw labels, dashed and unfilled and without scores: boxes, outlines, points, oriented boxes.

    An instance without an outline is drawn as its box. Points are hollow, hidden ones small, joined where both are
    labelled. Ignore regions are hatched in grey, difficult objects dotted.

    Args:
        ax: axes that show the image.
        targets: labels in the image's pixels.
        task: which of the labels are drawn.
        names: class names; without them no text is written.
        options: widths, text size and skeleton.

    Raises:
        ValueError: an unknown task, or a skeleton that names a point that is not there.
    """
    if task not in _MARKS:
        raise ValueError(f"task {task!r} has no drawing of labels; choose: {', '.join(_MARKS)}")
    options = options or RenderOptions()
    if options.skeleton is None and task == "pose":
        points = targets.keypoints.shape[1]
        options = replace(options, skeleton=tuple(edges_to_draw(None, names, points)))
    colors = [class_color(label) for label in targets.labels.tolist()]
    for region in targets.crowd.tolist():
        _ignore_region(ax, region)
    for number, color in enumerate(colors):
        for mark in _MARKS[task]:
            mark(ax, targets, number, color, options)
    if names and options.show_labels:
        oriented = task == "obb" and len(targets.rboxes)
        corners = rboxes_to_polygons(targets.rboxes).numpy() if oriented else outlines(targets.boxes.tolist())
        texts = [caption(tuple(names), label, among=len(targets)) for label in targets.labels.tolist()]
        write_captions(ax, texts, colors, corners, options.font_size)


def _box(ax: Axes, targets: Targets, number: int, color: str, options: RenderOptions) -> None:
    rectangle(ax, targets.boxes[number].tolist(), color, options.truth_width, _style(targets, number))


def _outline(ax: Axes, targets: Targets, number: int, color: str, options: RenderOptions) -> None:
    rings = targets.polygons[number] if targets.polygons else ()
    if not rings:
        _box(ax, targets, number, color, options)
    for ring in rings:
        closed_line(ax, ring.tolist(), color, options.truth_width, _style(targets, number))


def _points(ax: Axes, targets: Targets, number: int, color: str, options: RenderOptions) -> None:
    if not len(targets.keypoints):
        return
    points = targets.keypoints[number].tolist()
    edges = edges_to_draw(options.skeleton, (), len(points))
    bones(ax, points, [v > 0 for _, _, v in points], edges, color, options.bone_width, "--")
    for seen, size in ((True, 4.0), (False, 2.0)):
        chosen = [(x, y) for x, y, v in points if v > 0 and (v > 1) is seen]
        if chosen:
            x, y = zip(*chosen, strict=True)
            ax.plot(
                x, y, "o", markersize=size, markerfacecolor="none", markeredgecolor=color, markeredgewidth=1.2
            )


def _oriented_box(ax: Axes, targets: Targets, number: int, color: str, options: RenderOptions) -> None:
    if len(targets.rboxes):
        corners = rboxes_to_polygons(targets.rboxes[number]).tolist()
        closed_line(ax, corners, color, options.truth_width, _style(targets, number))


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
