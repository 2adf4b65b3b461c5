"""``lucid data view``: training samples as the network will see them."""

from pathlib import Path
from typing import Annotated

import typer

from lucid_app.checks import check_at_least, check_canvas, check_data, check_file_target
from lucid_app.console import Quiet, counting, out
from lucid_app.options import LabelsOption, LayoutOption, as_layout, choice
from lucid_data import NO_AUGMENTATION, TrainPipeline, open_catalog, policy_for
from lucid_models import SIZES
from lucid_viz import batch_sheet, save_figure, skeleton_of


def view(
    path: Annotated[Path, typer.Argument(help="Folder of images and labels.")],
    output: Annotated[Path, typer.Option(help="Picture to write; the suffix chooses the format.")],
    task: LabelsOption = "detect",
    split: Annotated[str, typer.Option(help="Split to draw from.")] = "train",
    layout: LayoutOption = None,
    size: Annotated[str, choice("Size of the network whose augmentation is shown", SIZES)] = "n",
    image_size: Annotated[int, typer.Option(help="Canvas, pixels.")] = 640,
    count: Annotated[int, typer.Option(help="Samples to draw.")] = 16,
    epoch: Annotated[int, typer.Option(help="Epoch to draw, from 0.")] = 0,
    seed: Annotated[int, typer.Option(help="Of the augmentation.")] = 0,
    augment: Annotated[bool, typer.Option(help="Draw with augmentation, or labels as they are.")] = True,
    quiet: Quiet = False,
) -> None:
    """Draw training samples with their labels, augmented as in training.

    Examples:
        lucid data view ~/photos --output samples.png

        lucid data view ~/photos --task segment --no-augment --output labels.png
    """
    check_at_least("--count", count, 1)
    check_at_least("--epoch", epoch, 0)
    check_canvas(image_size)
    check_file_target("--output", output)
    check_data(path)
    policy = policy_for(size, task) if augment else NO_AUGMENTATION
    pipeline = TrainPipeline(
        open_catalog(path, split, task, layout=as_layout(layout)), image_size, policy, seed
    )
    chosen = pipeline.order(epoch)[:count].tolist()
    samples = []
    with counting("drawing", quiet=quiet) as observe:
        for index in chosen:
            samples.append(pipeline(epoch, index))
            observe(len(samples), len(chosen))
    images, targets = [sample.image for sample in samples], [sample.targets for sample in samples]
    catalog = pipeline.catalog
    sheet = batch_sheet(images, targets, catalog.class_names, task=task, skeleton=skeleton_of(catalog))
    save_figure(sheet, output)
    out.print(str(output), soft_wrap=True)
