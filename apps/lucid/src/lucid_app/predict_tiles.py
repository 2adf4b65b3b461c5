"""``lucid predict --tiles``: predictions on tiles, put together on the pictures that they were cut from."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from pathlib import Path

from torch import Tensor

from lucid_app.checks import check_folder_target
from lucid_app.options import TILED_TASKS
from lucid_data import (
    Catalog,
    MergedImage,
    TileManifest,
    available_splits,
    image_size,
    merge_tiles,
    open_catalog,
    read_tile_manifest,
    write_task1,
)
from lucid_geometry import clip_boxes, rboxes_to_boxes, rboxes_to_polygons
from lucid_models import ExportedPredictor, Predictions, Predictor, describe
from lucid_train import ConfigError, default_split


@dataclass(frozen=True, eq=False)
class Tiling:
    """A split of a tile data set: the tiles and, in the same order, where each lies in its picture."""

    folder: Path
    tiles: Catalog
    manifest: TileManifest

    def picture(self, source: str) -> Path:
        """Return where a picture lies, or its name alone where the data set does not say."""
        return Path(source) if self.manifest.folder is None else self.manifest.folder / source

    def pictures(self) -> dict[Path, tuple[int, int]]:
        """Return the height and width of every picture that has a tile, in order."""
        return {
            self.picture(source): (height, width)
            for source, (height, width) in zip(
                self.manifest.sources, self.manifest.sizes.tolist(), strict=True
            )
        }


def open_tiles(folder: Path, split: str | None) -> Tiling:
    """Return a split of the data set that ``lucid data tile`` wrote; None takes the one a fit validates on.

    Raises:
        FileNotFoundError: no such split.
        ConfigError: no data set, or no COCO data set, which tiles are.
        ValueError: a COCO data set of something else than tiles; the message names its annotation file.
    """
    if not folder.is_dir() or not available_splits(folder, layout="coco"):
        raise ConfigError(f"--tiles {folder}: that is no data set of tiles; lucid data tile makes one")
    chosen = split or default_split(folder, "detect", "coco")
    # prediction asks for no labels, and boxes are there whatever the tiles were cut for
    tiles = open_catalog(folder, chosen, "detect", layout="coco")
    return Tiling(folder, tiles, read_tile_manifest(tiles.source.labels))


def require_fit(
    tiling: Tiling, model: Path, predictor: Predictor | ExportedPredictor, task1: Path | None
) -> None:
    """Raise ConfigError for a model of another task, ValueError for one of other classes."""
    task = predictor.info.task if isinstance(predictor, ExportedPredictor) else describe(model).task
    if task not in TILED_TASKS:
        raise ConfigError(
            f"--tiles {tiling.folder}: {model} is for {task}; tiles are put together for {' and '.join(TILED_TASKS)}"
        )
    if task1 is not None and task != "obb":
        raise ConfigError(
            f"--task1 {task1}: {model} is for {task}; Task 1 files hold the oriented boxes of obb"
        )
    ours, theirs = predictor.names, tiling.tiles.class_names
    if ours != theirs:
        label = next((i for i, (a, b) in enumerate(zip(ours, theirs, strict=False)) if a != b), None)
        said = (
            f"{len(theirs)} classes, but {len(ours)}"
            if label is None
            else f"class {label} is {theirs[label]!r}, but {ours[label]!r}"
        )
        raise ValueError(f"{tiling.folder}: {said} in {model}")


def require_pictures(tiling: Tiling) -> None:
    """Raise ConfigError where the pictures themselves, which ``--draw`` draws on, cannot be found as they were."""
    labels, folder = tiling.tiles.source.labels, tiling.manifest.folder
    if folder is None:
        raise ConfigError(
            f"--draw: {labels} does not say where the pictures lie; cut the tiles anew, or leave --draw out"
        )
    for path, size in tiling.pictures().items():
        if not path.is_file():
            raise ConfigError(
                f"--draw: {path} is gone, of which {labels} has tiles; put it back, or leave --draw out"
            )
        if image_size(path, tiling.manifest.exif) != size:
            height, width = size
            raise ConfigError(
                f"--draw: {path} is not the picture of {height} x {width} px that {labels} has tiles of"
            )


def require_empty(task1: Path) -> None:
    """Raise ConfigError where the folder of ``--task1`` cannot be made or has content."""
    check_folder_target("--task1", task1)
    if task1.is_dir() and any(task1.iterdir()):
        raise ConfigError(f"--task1 {task1}: there is something in it; choose a new or an empty folder")


def find(
    tiling: Tiling, predictor: Predictor | ExportedPredictor, batch: int, observe: Callable[[int, int], None]
) -> dict[Path, Predictions]:
    """Return the predictions on every picture, in order; ``observe`` hears tiles done and all.

    What two tiles found of one object is suppressed class by class, by exact rotated overlap for oriented boxes.

    Raises:
        OSError: a tile cannot be read.
    """
    tiles, manifest = tiling.tiles, tiling.manifest
    found: list[tuple[Tensor, Tensor, Tensor]] = []
    highest = dict.fromkeys(manifest.sources, 0.0)
    for start in range(0, len(tiles), batch):
        images = [tiles.image(index) for index in range(start, min(start + batch, len(tiles)))]
        for one, source in zip(predictor(images), manifest.sources[start:], strict=False):
            found.append(_rows(one))
            highest[source] = max(highest[source], one.highest_score or 0.0)
        observe(len(found), len(tiles))
    merged = merge_tiles(found, manifest.windows, manifest.sources, "nms", scales=manifest.scales)
    sizes = tiling.pictures()
    return {
        path: replace(_on_picture(image, predictor.names, sizes[path]), highest_score=highest[image.source])
        for image in merged
        for path in [tiling.picture(image.source)]
    }


def write_results(folder: Path, found: Mapping[Path, Predictions], names: tuple[str, ...]) -> None:
    """Write the DOTA Task 1 files of oriented boxes: all of them or none.

    Raises:
        ValueError: two pictures of one name, or a name with a space.
    """
    stems = [path.stem for path in found]
    if len(set(stems)) != len(stems):
        twice = next(stem for stem in stems if stems.count(stem) > 1)
        raise ValueError(f"two pictures are called {twice!r}, which Task 1 files could not tell apart")
    rows = {
        path.stem: (rboxes_to_polygons(one.rboxes), one.scores, one.labels)
        for path, one in found.items()
        if one.rboxes is not None
    }
    write_task1(folder, rows, names)


def _rows(one: Predictions) -> tuple[Tensor, Tensor, Tensor]:
    return one.boxes if one.rboxes is None else one.rboxes, one.scores, one.labels


def _on_picture(merged: MergedImage, names: tuple[str, ...], size: tuple[int, int]) -> Predictions:
    rboxes = merged.boxes if merged.boxes.shape[1] == 5 else None
    boxes = merged.boxes if rboxes is None else rboxes_to_boxes(rboxes)
    return Predictions(clip_boxes(boxes, *size), merged.scores, merged.labels, names, size, rboxes=rboxes)
