"""``lucid data download``: data sets over the network."""

from pathlib import Path
from typing import Annotated

import typer

from lucid_app.console import Quiet, counting, out, print_json
from lucid_data import download_coco, download_manifest
from lucid_train import ConfigError


def download(
    what: Annotated[str, typer.Argument(help="coco2017, or a JSON manifest of URLs and SHA-256 digests.")],
    target: Annotated[Path, typer.Argument(help="Folder of the data set.")],
    split: Annotated[
        list[str] | None, typer.Option(help="Of coco2017: train (18 GB), val (1 GB) or test; again for more.")
    ] = None,
    annotations: Annotated[bool, typer.Option(help="Labels of coco2017 as well.")] = True,
    sha256: Annotated[
        list[str] | None, typer.Option(help="Expected digest of an archive, NAME=HEX; again for more.")
    ] = None,
    force: Annotated[bool, typer.Option("--force", help="Fetch what is there already.")] = False,
    keep_archives: Annotated[
        bool, typer.Option("--keep-archives", help="Leave archives after unpacking.")
    ] = False,
    as_json: Annotated[bool, typer.Option("--json", help="Print what arrived as JSON.")] = False,
    quiet: Quiet = False,
) -> None:
    """Fetch a data set; an interrupted transfer goes on where it stopped, and nothing that arrives is executed.

    Examples:
        lucid data download coco2017 coco --split val

        lucid data download parts.json parts
    """
    with counting("downloading", quiet=quiet or as_json) as observe:
        if what == "coco2017":
            digests = dict(_digest(one) for one in sha256 or ())
            arrived = download_coco(
                target,
                split or ["val"],
                annotations=annotations,
                sha256=digests,
                force=force,
                keep_archives=keep_archives,
                observer=observe,
            )
        elif Path(what).is_file():
            arrived = download_manifest(Path(what), target, observer=observe)
        else:
            raise ConfigError(f"{what}: neither coco2017 nor a manifest file")
    if as_json:
        print_json([{"path": str(a.path), "sha256": a.sha256, "verified": a.verified} for a in arrived])
        return
    for a in arrived:
        out.print(
            f"{a.path}  {a.sha256}{'' if a.verified else '  (no digest to compare with)'}", soft_wrap=True
        )
    if not arrived:
        out.print(f"{target}: everything is there", soft_wrap=True)


def _digest(stated: str) -> tuple[str, str]:
    name, equals, digest = stated.partition("=")
    if not equals or not name or not digest:
        raise ConfigError(f"--sha256 {stated}: give NAME=HEX, such as val2017.zip=4f7e...")
    return name, digest
