"""``lucid data tile``: large pictures cut into tiles."""

from dataclasses import asdict
from pathlib import Path
from typing import Annotated

import typer

from lucid_app.checks import check_at_least, check_data
from lucid_app.console import Quiet, counting, out, print_json
from lucid_app.options import TILED_TASKS, DotaVersionOption, LayoutOption, as_layout, choice
from lucid_data import TileOptions
from lucid_data import tile as cut

_DEFAULTS = TileOptions()


def tile(
    source: Annotated[Path, typer.Argument(help="Folder of large images and labels, such as DOTA.")],
    target: Annotated[Path, typer.Argument(help="Folder to make; must be empty or absent.")],
    task: Annotated[str, choice("Which labels are cut", TILED_TASKS)] = "obb",
    split: Annotated[
        list[str] | None, typer.Option(help="Split to cut; again for more; all when absent.")
    ] = None,
    layout: LayoutOption = None,
    patch: Annotated[int, typer.Option(help="Side of a tile, pixels.")] = _DEFAULTS.patch,
    overlap: Annotated[int, typer.Option(help="What neighbours share, pixels.")] = _DEFAULTS.overlap,
    scale: Annotated[
        list[float] | None, typer.Option(help="Resize first; again for more; 1 when absent.")
    ] = None,
    suffix: Annotated[
        str, typer.Option(help=".png keeps the pixels, .jpg decodes faster.")
    ] = _DEFAULTS.suffix,
    quality: Annotated[int, typer.Option(help="Of .jpg tiles.")] = _DEFAULTS.quality,
    pad: Annotated[bool, typer.Option("--pad", help="Fill tiles of small pictures with grey.")] = False,
    keep_empty: Annotated[
        float, typer.Option(help="Share of the tiles without objects that is written.")
    ] = _DEFAULTS.keep_empty,
    seed: Annotated[int, typer.Option(help="Chooses which empty tiles are written.")] = _DEFAULTS.seed,
    dota_version: DotaVersionOption = None,
    workers: Annotated[int, typer.Option(help="Processes; the result is the same.")] = 0,
    as_json: Annotated[bool, typer.Option("--json", help="Print the counts as JSON.")] = False,
    quiet: Quiet = False,
) -> None:
    """Cut a data set of large pictures into a COCO data set of tiles that knows where each tile lies.

    Examples:
        lucid data tile DOTA DOTA-tiles

        lucid data tile DOTA DOTA-tiles --scale 1 --scale 0.5 --overlap 512 --workers 8
    """
    check_at_least("--workers", workers, 0)
    check_data(source)
    options = TileOptions(
        patch=patch,
        overlap=overlap,
        scales=tuple(scale or (1.0,)),
        suffix=suffix,
        quality=quality,
        pad=pad,
        keep_empty=keep_empty,
        seed=seed,
    )
    with counting("cutting", quiet=quiet or as_json) as observe:
        reports = cut(
            source,
            target,
            task,
            splits=split,
            layout=as_layout(layout),
            dota_version=dota_version,
            options=options,
            workers=workers,
            observer=observe,
        )
    if as_json:
        print_json({"target": str(target), "splits": [asdict(report) for report in reports]})
        return
    for report in reports:
        out.print(
            f"{report.split}: {report.tiles} tiles ({report.empty_tiles} empty) of {report.source_images} pictures, "
            f"{report.instances} objects ({report.difficult} difficult)",
            soft_wrap=True,
        )
    out.print(str(target), soft_wrap=True)
