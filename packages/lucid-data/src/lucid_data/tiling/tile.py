"""A data set of large pictures into a COCO data set of tiles, whose JSON is the manifest that leads back."""

from __future__ import annotations

import os
import signal
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ProcessPoolExecutor
from contextlib import contextmanager
from dataclasses import asdict, dataclass
from functools import partial
from pathlib import Path
from typing import Any, Final

import numpy as np
import numpy.typing as npt
import torch
from PIL import Image
from torch import Tensor

from lucid_data.catalog import Catalog, open_catalog
from lucid_data.formats.coco_json import json_text, load_document
from lucid_data.layout import available_splits
from lucid_data.randomness import Stream
from lucid_data.source import SPLIT_SPELLINGS, WHOLE, Layout
from lucid_data.tiling.windows import tile_windows, window_labels
from lucid_data.transforms.letterbox import GREY, resize
from lucid_data.whole import Observer, nothing, refuse_inside, whole_folder
from lucid_geometry import rboxes_to_polygons

_SUFFIXES: Final = (".png", ".jpg")
_LARGEST_PATCH: Final = 1 << 16
_LARGEST_SCALE: Final = 16.0
_STOPS: Final = (signal.SIGINT, signal.SIGTERM)


@dataclass(frozen=True)
class TileOptions:
    """How to cut.

    Attributes:
        patch, overlap: side of a tile and what neighbours share, px. More overlap cuts fewer objects and costs pixels:
            (patch / (patch - overlap))^2 times as many, 1.55 for 200 and 4 for 512 of 1024.
        scales: every picture is resized by each of these first.
        suffix: ``.png`` keeps the pixels, ``.jpg`` (of ``quality``) decodes faster.
        pad: fill tiles of smaller pictures with grey to the whole patch.
        keep_empty: which share of the tiles without objects is written, chosen by ``seed``.
    """

    patch: int = 1024
    overlap: int = 200
    scales: tuple[float, ...] = (1.0,)
    suffix: str = ".png"
    quality: int = 92
    pad: bool = False
    keep_empty: float = 1.0
    seed: int = 0

    def __post_init__(self) -> None:
        if not 1 <= self.patch <= _LARGEST_PATCH:
            raise ValueError(f"patch must be in 1..{_LARGEST_PATCH} px, got {self.patch!r}")
        tile_windows(1, 1, self.patch, self.overlap)
        if self.suffix not in _SUFFIXES:
            raise ValueError(f"suffix must be one of {', '.join(_SUFFIXES)}, got {self.suffix!r}")
        if not 0 <= self.keep_empty <= 1:
            raise ValueError(f"keep_empty must be in [0, 1], got {self.keep_empty!r}")
        if not 1 <= self.quality <= 100:
            raise ValueError(f"quality must be in 1..100, got {self.quality!r}")
        if not self.scales or not all(0 < scale <= _LARGEST_SCALE for scale in self.scales):
            raise ValueError(f"scales must be positive and at most {_LARGEST_SCALE:g}, got {self.scales!r}")
        if len(set(self.scales)) != len(self.scales):
            raise ValueError(f"scales must differ, got {self.scales!r}")


@dataclass(frozen=True)
class TiledSplit:
    """What became of one split."""

    split: str
    source_images: int
    tiles: int
    empty_tiles: int
    instances: int
    difficult: int


@dataclass(frozen=True, eq=False)
class TileManifest:
    """Where each of T tiles comes from.

    Attributes:
        file_names, sources: the tiles, and the pictures they were cut from.
        windows: (T, 4) x1 y1 x2 y2 in the picture as resized by its scale.
        scales: (T,) by what the picture was resized.
        sizes: (T, 2) height and width of the picture itself; what the windows reach where the file does not say.
        folder: where the pictures lay, None where the file does not say.
        exif: whether they were turned upright by their orientation tag.
        keep_empty: which share of the tiles without objects was written.
    """

    file_names: tuple[str, ...]
    sources: tuple[str, ...]
    windows: npt.NDArray[np.int64]
    scales: npt.NDArray[np.float64]
    sizes: npt.NDArray[np.int64]
    folder: Path | None
    exif: bool
    keep_empty: float


@dataclass(frozen=True)
class _Tile:
    name: str
    size: tuple[int, int]
    source: str
    source_size: tuple[int, int]
    scale: float
    window: tuple[int, int, int, int]
    objects: tuple[dict[str, Any], ...]


def tile(
    source: str | Path,
    out: str | Path,
    task: str = "obb",
    *,
    splits: Sequence[str] | None = None,
    layout: Layout | None = None,
    dota_version: str | None = None,
    options: TileOptions | None = None,
    workers: int = 0,
    observer: Observer = nothing,
) -> list[TiledSplit]:
    """Cut the data set at ``source`` into tiles under the empty folder ``out`` and return the counts per split.

    Args:
        source: anything ``open_catalog`` opens for ``task``.
        out: becomes a COCO tree, ``<split>`` and ``annotations/instances_<split>.json``. Image records carry
            ``source_image``, ``source_size`` and ``window`` (and ``scale``), annotations ``difficult`` and
            ``visible_fraction``, ``info`` where the pictures lie as seen from the JSON.
        task: ``obb``, or ``detect`` for upright boxes.
        splits: default all there are.
        layout: as for ``open_catalog``.
        dota_version: as for ``open_catalog``.
        options: how to cut.
        workers: processes, one picture each at a time; the result is the same, byte for byte.
        observer: is told (pictures cut, pictures in all).

    Objects of which less than 0.7 shows are refitted to what shows and flagged difficult; a flag is never taken away.
    Raises ValueError for another task or two pictures of one stem, FileExistsError for an ``out`` with content.

    >>> options = TileOptions(patch=48, overlap=16)
    >>> [split.tiles for split in tile("scenes", "tiles", "detect", splits=["val"], options=options)]
    [8]
    """
    if task not in ("obb", "detect"):
        raise ValueError(f"tiles are cut for obb and detect, not for {task!r}")
    chosen = options or TileOptions()
    there = available_splits(source, task, layout=layout)
    usual = tuple(s for s in there if s in SPLIT_SPELLINGS) or there[:1] or ("train",)
    catalogs = {
        split: open_catalog(source, split, task, layout=layout, dota_version=dota_version, min_side=1e-3)
        for split in (splits if splits is not None else usual)
    }
    total, before, reports = sum(map(len, catalogs.values())), 0, []
    refuse_inside(out, [f for catalog in catalogs.values() for f in catalog.source.folders - {catalog.root}])
    with whole_folder(out) as folder:
        for split, catalog in catalogs.items():
            told = partial(_told, observer, before, total)
            reports.append(
                _tile_split(
                    catalog, folder, Path(out), "train" if split == WHOLE else split, chosen, workers, told
                )
            )
            before += len(catalog)
    return reports


def _told(observer: Observer, before: int, total: int, done: int) -> None:
    observer(before + done, total)


def _tile_split(
    catalog: Catalog,
    folder: Path,
    out: Path,
    split: str,
    options: TileOptions,
    workers: int,
    told: Callable[[int], None],
) -> TiledSplit:
    stems = [Path(name).stem for name in catalog.file_names]
    if len(set(stems)) != len(stems):
        twice = next(stem for stem in stems if stems.count(stem) > 1)
        raise ValueError(f"two pictures of {split!r} are called {twice!r}; tiles need names of their own")
    place = folder / split
    place.mkdir(parents=True)
    images: list[dict[str, Any]] = []
    annotations: list[dict[str, Any]] = []
    scaled = options.scales != (1.0,)
    for done, tiles in enumerate(_all_tiles(catalog, place, options, workers), 1):
        told(done)
        for item in tiles:
            number = len(images) + 1
            record = {"id": number, "file_name": item.name, "height": item.size[0], "width": item.size[1]}
            record |= {"source_image": item.source, "source_size": list(item.source_size)}
            record |= {"window": list(item.window)}
            images.append(record | ({"scale": item.scale} if scaled else {}))
            for row in item.objects:
                annotations.append({"id": len(annotations) + 1, "image_id": number, **row})
    path = Path("annotations") / f"instances_{split}.json"
    pictures = {"source_images": _seen_from(out / path.parent, catalog.images), "source_exif": catalog.exif}
    document = {
        "info": {
            "description": f"tiles of {catalog.root.name} {split}",
            "version": "1",
            **pictures,
            **asdict(options),
        },
        "images": images,
        "annotations": annotations,
        "categories": [
            {"id": i, "name": name, "supercategory": ""} for i, name in enumerate(catalog.class_names, 1)
        ],
    }
    (folder / path.parent).mkdir(exist_ok=True)
    (folder / path).write_text(json_text(document), encoding="utf-8")
    owners = {row["image_id"] for row in annotations}
    difficult = sum(row["difficult"] for row in annotations)
    return TiledSplit(
        split, len(catalog), len(images), len(images) - len(owners), len(annotations), difficult
    )


def _seen_from(place: Path, folder: Path) -> str:
    """Return ``folder`` relative to ``place``, so that both may move together; as it is on another drive."""
    there = folder.resolve()
    try:
        return Path(os.path.relpath(there, place.resolve())).as_posix()
    except ValueError:
        return there.as_posix()


def _all_tiles(catalog: Catalog, place: Path, options: TileOptions, workers: int) -> Iterator[list[_Tile]]:
    if not workers:
        yield from (_cut(catalog, index, place, options) for index in range(len(catalog)))
        return
    # the platform's own way of starting, as torch's loaders do
    pool = ProcessPoolExecutor(workers, None, _begin_worker, (catalog, place, options))
    try:
        with _signals_held():
            cut = pool.map(_cut_in_worker, range(len(catalog)))  # starts the processes
        yield from cut
    finally:
        pool.shutdown(cancel_futures=True)  # else what is left would be cut before an error is heard


@contextmanager
def _signals_held() -> Iterator[None]:
    """Deliver Ctrl-C and SIGTERM when the block ends: what they raise inside the hooks of a fork is ignored there."""
    if not hasattr(signal, "pthread_sigmask"):  # Windows, where nothing forks
        yield
        return
    before = signal.pthread_sigmask(signal.SIG_BLOCK, _STOPS)
    try:
        yield
    finally:
        signal.pthread_sigmask(signal.SIG_SETMASK, before)


_WORK: list[tuple[Catalog, Path, TileOptions]] = []


def _begin_worker(catalog: Catalog, place: Path, options: TileOptions) -> None:
    torch.set_num_threads(1)
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # Ctrl-C is the parent's to answer
    signal.signal(signal.SIGTERM, signal.SIG_DFL)  # not the handler of a parent that was copied
    if hasattr(signal, "pthread_sigmask"):
        signal.pthread_sigmask(signal.SIG_UNBLOCK, _STOPS)
    _WORK[:] = [(catalog, place, options)]


def _cut_in_worker(index: int) -> list[_Tile]:
    catalog, place, options = _WORK[0]
    return _cut(catalog, index, place, options)


def _cut(catalog: Catalog, index: int, place: Path, options: TileOptions) -> list[_Tile]:
    """Write the tiles of one picture and return their records, empty ones that are not kept left out."""
    whole = catalog.image(index)
    targets = catalog.targets(index)
    source = Path(catalog.records.file_names[index])
    tiles: list[_Tile] = []
    stream = Stream.of(options.seed, 0, index)
    for scale in options.scales:
        height, width = (max(1, round(side * scale)) for side in whole.shape[1:])
        image = resize(whole, height, width)
        windows = tile_windows(height, width, options.patch, options.overlap)
        rboxes = targets.rboxes if len(targets.rboxes) else _upright(targets.boxes)
        rboxes = torch.cat([rboxes[:, :4].double() * scale, rboxes[:, 4:].double()], 1)
        left = window_labels(rboxes, targets.boxes.double() * scale, windows)
        for at, (x1, y1, x2, y2) in enumerate(windows.tolist()):
            rows = (left.window == at).nonzero()[:, 0]
            if not len(rows) and stream.unit() >= options.keep_empty:
                continue
            middle = "" if options.scales == (1.0,) else f"__{scale:g}"
            name = f"{source.stem}{middle}__{x1}_{y1}{options.suffix}"
            size = _save(image[:, y1:y2, x1:x2], place / name, options)
            objects = tuple(
                _record(
                    int(targets.labels[left.instance[r]]) + 1,
                    left.rboxes[r],
                    left.boxes[r],
                    float(left.visible[r]),
                    bool(left.cut[r] or targets.difficult[left.instance[r]]),
                    catalog.task == "obb",
                )
                for r in rows.tolist()
            )
            own = (whole.shape[1], whole.shape[2])
            tiles.append(_Tile(name, size, source.as_posix(), own, scale, (x1, y1, x2, y2), objects))
    return tiles


def _upright(boxes: Tensor) -> Tensor:
    centre, sides = (boxes[:, :2] + boxes[:, 2:]) / 2, boxes[:, 2:] - boxes[:, :2]
    return torch.cat([centre, sides, torch.zeros(len(boxes), 1)], 1)


def _save(part: Tensor, path: Path, options: TileOptions) -> tuple[int, int]:
    if options.pad and part.shape[1:] != (options.patch, options.patch):
        padded = torch.full((3, options.patch, options.patch), GREY, dtype=torch.uint8)
        padded[:, : part.shape[1], : part.shape[2]] = part
        part = padded
    picture = Image.fromarray(part.permute(1, 2, 0).contiguous().numpy())
    if options.suffix == ".jpg":
        picture.save(path, quality=options.quality)
    else:
        picture.save(path, compress_level=3)
    return part.shape[1], part.shape[2]


def _record(
    category: int, rbox: Tensor, box: Tensor, visible: float, difficult: bool, oriented: bool
) -> dict[str, Any]:
    x1, y1, x2, y2 = box.tolist()
    record: dict[str, Any] = {
        "category_id": category,
        "bbox": _rounded([x1, y1, x2 - x1, y2 - y1]),
        "area": round(float(rbox[2] * rbox[3]), 4),
        "iscrowd": 0,
    }
    if oriented:
        record["segmentation"] = [_rounded(rboxes_to_polygons(rbox).flatten().tolist())]
    return record | {"difficult": int(difficult), "visible_fraction": round(visible, 6)}


def _rounded(values: list[float]) -> list[float]:
    return [round(value, 4) for value in values]


def read_tile_manifest(path: str | Path) -> TileManifest:
    """Return where the tiles of a JSON written by ``tile`` come from, in the order of its ids.

    Raises ValueError for an image record without ``source_image`` and ``window``.

    >>> _ = tile("scenes", "more-tiles", "detect", splits=["val"], options=TileOptions(patch=48, overlap=16))
    >>> read_tile_manifest("more-tiles/annotations/instances_val.json").windows[1].tolist()
    [16, 0, 64, 48]
    """
    document = load_document(path)
    images = sorted(document["images"], key=lambda image: image["id"])
    for image in images:
        if "source_image" not in image or len(image.get("window", ())) != 4:
            raise ValueError(f"{path}: image {image.get('id')} has no source_image and window; it is no tile")
    info = document.get("info") or {}
    stated = info.get("source_images")
    reached: dict[str, tuple[int, int]] = {}
    for image in images:
        scale, (height, width) = image.get("scale", 1.0), reached.get(image["source_image"], (0, 0))
        right, bottom = (round(side / scale) for side in image["window"][2:])
        reached[image["source_image"]] = (max(height, bottom), max(width, right))
    return TileManifest(
        tuple(image["file_name"] for image in images),
        tuple(image["source_image"] for image in images),
        np.array([image["window"] for image in images], np.int64).reshape(-1, 4),
        np.array([image.get("scale", 1.0) for image in images], np.float64),
        np.array(
            [image.get("source_size", reached[image["source_image"]]) for image in images], np.int64
        ).reshape(-1, 2),
        None if stated is None else (Path(path).parent / stated).resolve(),
        bool(info.get("source_exif", False)),
        float(info.get("keep_empty", 1.0)),
    )
