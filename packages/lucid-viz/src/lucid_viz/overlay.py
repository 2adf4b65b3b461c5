"""Labels and predictions over an image, on axes that the caller owns."""

from collections.abc import Sequence
from pathlib import Path
from typing import Any

from matplotlib.axes import Axes
from matplotlib.figure import Figure
from torch import Tensor

from lucid_data import Targets, read_image
from lucid_models import Detector, Predictions, Predictor
from lucid_viz.captions import write_captions
from lucid_viz.marks import (
    bones,
    check_image,
    check_predictions,
    closed_line,
    mask_tint,
    object_corners,
    rectangle,
)
from lucid_viz.skeletons import edges_to_draw
from lucid_viz.style import RenderOptions, class_color
from lucid_viz.truth import draw_ground_truth
from lucid_viz.words import captions_of, note, plain_name


def show_image(ax: Axes, image: Tensor) -> None:
    """Show a uint8 RGB image (3, H, W) in the edge frame: pixel j covers [j, j+1), as boxes do.

    Raises:
        ValueError: not an image of that form.
    """
    height, width = check_image(image)
    ax.imshow(image.permute(1, 2, 0).cpu().numpy(), extent=(0, width, height, 0), interpolation="nearest")
    ax.set_xlim(0, width)
    ax.set_ylim(height, 0)
    ax.set_axis_off()


def draw_predictions(ax: Axes, predictions: Predictions, options: RenderOptions | None = None) -> None:
    """Draw predictions above the confidence: solid outlines, class and score, masks, points and oriented boxes.

    Points are full where the model thinks them visible, hollow elsewhere; a line joins two that are visible. Captions
    stand inside the axes, over all outlines, and apart from each other where there is room.

    Args:
        ax: axes that show the original image.
        predictions: boxes in that image's pixels.
        options: confidence, widths, text size and skeleton.

    Raises:
        ValueError: parts that differ in number or form, or a skeleton that names a point that is not there.
    """
    options = options or RenderOptions()
    check_predictions(predictions)
    tint = mask_tint(predictions, options.confidence)
    if tint is not None:
        height, width = predictions.image_size
        ax.imshow(tint, extent=(0, width, height, 0), interpolation="nearest")
    labels = predictions.labels.tolist()
    corners = object_corners(predictions)
    shown = (predictions.scores > options.confidence).nonzero()[:, 0].tolist()
    for number in reversed(shown):  # the surest on top
        color = class_color(labels[number])
        if predictions.rboxes is None:
            rectangle(ax, predictions.boxes[number].tolist(), color, options.box_width, "-")
        else:
            closed_line(ax, corners[number].tolist(), color, options.box_width, "-")
        if predictions.keypoints is not None:
            edges = edges_to_draw(options.skeleton, predictions.names, predictions.keypoints.shape[1])
            _points(ax, predictions.keypoints[number].tolist(), edges, color, options)
    if options.show_labels:
        texts = captions_of(predictions, shown)
        colors = [class_color(labels[number]) for number in shown]
        write_captions(ax, texts, colors, corners[shown], options.font_size)


def _points(
    ax: Axes, points: list[list[float]], edges: Sequence[tuple[int, int]], color: str, options: RenderOptions
) -> None:
    seen = [visible > 0.5 for _, _, visible in points]
    bones(ax, points, seen, edges, color, options.bone_width, "-")
    for wanted, face in ((True, color), (False, "none")):
        chosen = [point[:2] for point, one in zip(points, seen, strict=True) if one is wanted]
        if chosen:
            x, y = zip(*chosen, strict=True)
            ax.plot(x, y, "o", markersize=4, markerfacecolor=face, markeredgecolor=color, clip_on=True)


def predict_and_draw(
    module: Detector | Predictor,
    image: Tensor,
    options: RenderOptions | None = None,
    *,
    axes: Axes,
) -> Predictions:
    """Run a detector on one image, draw image and predictions on the axes, and return the predictions.

    Args:
        module: a detector or a ready predictor.
        image: (3, H, W) uint8 RGB.
        options: confidence, widths and text size.
        axes: where to draw.
    """
    options = options or RenderOptions()
    predictor = module if isinstance(module, Predictor) else Predictor(module, confidence=options.confidence)
    (predictions,) = predictor([image])
    show_image(axes, image)
    draw_predictions(axes, predictions, options)
    return predictions


def show_predictions(
    checkpoint: str | Path,
    images: Sequence[Tensor | str | Path],
    annotations: Sequence[Targets] | None = None,
    options: RenderOptions | None = None,
) -> Figure:
    """Return an open figure of images with a checkpoint's predictions, labels beside them where given.

    Args:
        checkpoint: a lucid checkpoint.
        images: uint8 RGB tensors (3, H, W) or paths.
        annotations: one ``Targets`` per image, in the image's pixels.
        options: confidence, widths and text size.

    Raises:
        ValueError: no image, or another number of annotations than images.
    """
    pixels = [image if isinstance(image, Tensor) else read_image(image) for image in images]
    options = options or RenderOptions()
    predictor = Predictor(checkpoint, confidence=options.confidence)
    return comparison_sheet(pixels, predictor(pixels), annotations, options)


def comparison_sheet(
    images: Sequence[Tensor],
    predictions: Sequence[Predictions],
    annotations: Sequence[Targets] | None = None,
    options: RenderOptions | None = None,
) -> Figure:
    """Return an open figure, one row an image: labels left (where given), predictions right.

    Where nothing is above the confidence, the panel's title says so, and the highest score where it is known.

    Raises:
        ValueError: no image, counts that differ, or predictions of another image size.
    """
    counts = {len(images), len(predictions), len(images if annotations is None else annotations)}
    if not images or len(counts) > 1:
        raise ValueError(
            f"{len(images)} images, {len(predictions)} predictions, "
            f"{'no' if annotations is None else len(annotations)} annotations: give as many of each, at least one"
        )
    columns = 1 if annotations is None else 2
    confidence = (options or RenderOptions()).confidence
    figure = Figure(figsize=(5 * columns, 4 * len(images)), layout="constrained")
    grid: Any = figure.subplots(len(images), columns, squeeze=False)
    for row, (image, found) in enumerate(zip(images, predictions, strict=True)):
        if annotations is not None:
            show_image(grid[row][0], image)
            draw_ground_truth(grid[row][0], annotations[row], task_of(found), found.names, options)
        check_predictions(found, check_image(image))
        show_image(grid[row][-1], image)
        draw_predictions(grid[row][-1], found, options)
        grid[row][-1].set_title(note(found, confidence))
    for ax, title in zip(grid[0], ("labels", "predictions")[-columns:], strict=True):
        ax.set_title(": ".join(filter(None, (title, ax.get_title()))))
    return figure


def task_of(predictions: Predictions) -> str:
    """Return the task whose labels look like ``predictions``."""
    if predictions.masks is not None:
        return "segment"
    if predictions.keypoints is not None:
        return "pose"
    return "detect" if predictions.rboxes is None else "obb"


def batch_sheet(
    images: Sequence[Tensor],
    annotations: Sequence[Targets],
    names: Sequence[str],
    columns: int = 4,
    task: str = "detect",
    skeleton: tuple[tuple[int, int], ...] | None = None,
) -> Figure:
    """Return an open figure of training samples with their labels, for a look at the augmentation.

    The name of an only class is the sheet's title and not written beside every object, where it hides small ones.

    Raises:
        ValueError: no image, another number of annotations than images, or an unknown task.
    """
    if not images or len(images) != len(annotations):
        raise ValueError(
            f"{len(images)} images and {len(annotations)} annotations: give as many of each, at least one"
        )
    columns = min(columns, len(images))
    rows = -(-len(images) // columns)
    figure = Figure(figsize=(4 * columns, 4 * rows), layout="constrained")
    cells: Any = figure.subplots(rows, columns, squeeze=False).ravel()
    for ax in cells:
        ax.set_axis_off()
    if len(names) == 1:
        figure.suptitle(plain_name(names[0]), parse_math=False)
    options = RenderOptions(font_size=6.0, show_labels=len(names) > 1, skeleton=skeleton)
    for ax, image, targets in zip(cells, images, annotations, strict=False):
        show_image(ax, image)
        draw_ground_truth(ax, targets, task, names, options)
    return figure
