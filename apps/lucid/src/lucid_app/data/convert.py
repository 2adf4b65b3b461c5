"""``lucid data convert``: the same data set in another format."""

from pathlib import Path
from typing import Annotated, get_args

import typer

from lucid_app.checks import check_data
from lucid_app.console import Quiet, counting, out, print_json
from lucid_app.options import DotaVersionOption, LabelsOption, LayoutOption, as_layout, choice
from lucid_data import Format, Pictures
from lucid_data import convert as write_as


def convert(
    source: Annotated[Path, typer.Argument(help="Folder of images and labels, in any format.")],
    target: Annotated[Path, typer.Argument(help="Folder to make; must be empty or absent.")],
    to: Annotated[str, choice("Format to write", get_args(Format))],
    task: LabelsOption = "detect",
    split: Annotated[
        list[str] | None, typer.Option(help="Split to convert; again for more; all when absent.")
    ] = None,
    layout: LayoutOption = None,
    pictures: Annotated[str, choice("What is done with the pictures", get_args(Pictures))] = "copy",
    dota_version: DotaVersionOption = None,
    as_json: Annotated[bool, typer.Option("--json", help="Print what was written as JSON.")] = False,
    quiet: Quiet = False,
) -> None:
    """Write a data set in another format; what the format cannot hold is counted and told.

    Examples:
        lucid data convert photos-yolo photos-coco --to coco

        lucid data convert dota tiles-yolo --to yolo --task obb --split train
    """
    check_data(source)
    with counting("converting", quiet=quiet or as_json) as observe:
        done = write_as(
            source,
            target,
            to,
            task,
            splits=split,
            layout=as_layout(layout),
            pictures=pictures,
            dota_version=dota_version,
            observer=observe,
        )
    if as_json:
        print_json(
            {
                "target": str(done.target),
                "images": done.images,
                "instances": done.instances,
                "lost": done.lost,
            }
        )
        return
    for name, images in done.images.items():
        out.print(f"{name}: {images} images, {done.instances[name]} objects")
    for reason, count in done.lost.items():
        out.print(f"lost: {count} x {reason}", soft_wrap=True)
    out.print(str(done.target), soft_wrap=True)
