"""A split of a data set, opened: pictures by index, labels from one packed store."""

from __future__ import annotations

import warnings
from collections.abc import Callable, Iterable
from dataclasses import dataclass, replace
from functools import cached_property, partial
from pathlib import Path
from typing import Any, Final, get_args

import numpy as np
import numpy.typing as npt
from torch import Tensor

from lucid_data.formats.coco import read_coco
from lucid_data.formats.coco_json import load_document
from lucid_data.formats.coco_values import id_key
from lucid_data.formats.dota import read_dota
from lucid_data.formats.parsed import BadImage, Classes, Parsed, ReadOptions, unreadable
from lucid_data.formats.voc import read_voc
from lucid_data.formats.write_coco import coco_annotations
from lucid_data.formats.yolo import read_yolo
from lucid_data.ground_truth import part_that_was_read
from lucid_data.images import read_image
from lucid_data.label_store import stored
from lucid_data.layout import find_source
from lucid_data.records import Records
from lucid_data.records_builder import RboxFit
from lucid_data.source import Layout, Source
from lucid_data.targets import Targets
from lucid_data.tasks import TASK_NEEDS, Task, TaskNeeds, as_task

_READERS: Final[dict[Layout, Callable[[Source, TaskNeeds, ReadOptions], Parsed]]] = {
    "coco": read_coco,
    "yolo": read_yolo,
    "voc": read_voc,
    "dota": read_dota,
}
# COCO and DOTA state coordinates for the raster as stored; the other formats are drawn on the upright picture
_EXIF: Final[dict[Layout, bool]] = {"coco": False, "yolo": True, "voc": True, "dota": False}


@dataclass(frozen=True, eq=False)
class Catalog:
    """One split, ready to index; made by ``open_catalog``. Picklable, and shared with workers by page.

    Attributes:
        root: the data set's folder.
        split, task, layout: what was opened, and as what.
        source: the files it came from.
        images: the folder that ``file_names`` are relative to.
        class_names: in label order.
        category_ids: the source's category ids in label order.
        keypoint_names, keypoint_flip_pairs: for pose, else ().
        exif: whether pictures are turned upright by their orientation tag.
        bad_image: what an unreadable picture does: ``raise``, or ``skip`` to the next one.
        min_side: boxes narrower or lower than this many pixels are left out.
        records: the packed labels.
    """

    root: Path
    split: str
    task: Task
    layout: Layout
    source: Source
    images: Path
    class_names: tuple[str, ...]
    category_ids: tuple[int, ...]
    keypoint_names: tuple[str, ...]
    keypoint_flip_pairs: tuple[tuple[int, int], ...]
    exif: bool
    bad_image: BadImage
    min_side: float
    records: Records

    def __len__(self) -> int:
        return len(self.records)

    @property
    def num_classes(self) -> int:
        """How many classes there are."""
        return len(self.class_names)

    @property
    def num_keypoints(self) -> int | None:
        """How many keypoints an instance has; None for other tasks than pose."""
        return self.records.keypoints.shape[1] if TASK_NEEDS[self.task].keypoints else None

    @cached_property
    def image_ids(self) -> list[int] | list[str]:
        """The source's image ids, in index order."""
        ids: list[int] | list[str] = self.records.image_ids.tolist()
        return ids

    @property
    def file_names(self) -> list[str]:
        """Picture paths relative to ``images``, in index order."""
        return [self.records.file_names[i] for i in range(len(self))]

    @property
    def sizes(self) -> npt.NDArray[np.int32]:
        """(n, 2) height and width of every picture."""
        return self.records.sizes

    @property
    def dropped(self) -> dict[str, int]:
        """What was left out or put right while reading, by reason; boxes under ``min_side`` included."""
        small = int(self.too_small().sum())
        return self.records.dropped | ({f"box under {self.min_side:g} px": small} if small else {})

    def image_path(self, index: int) -> Path:
        """Return the file of picture ``index``."""
        return self.images / self.records.file_names[index]

    def image(self, index: int) -> Tensor:
        """Return picture ``index`` as (3, H, W) uint8 RGB; OSError naming the path when it cannot be read."""
        return read_image(self.image_path(index), self.exif)

    def targets(self, index: int) -> Targets:
        """Return the labels of picture ``index`` in its own pixels; no decoding."""
        height, width = self.records.sizes[index].tolist()
        return self.records.targets(index, (height, width), self.min_side)

    def sample(self, index: int) -> tuple[Tensor, Targets, int]:
        """Return picture and labels of ``index``, and the index really used.

        The picture's decoded size outranks the stated one (warned about once per process). With
        ``bad_image="skip"`` an unreadable picture is replaced by the next readable one.
        """
        for step in range(len(self)):
            at = (index + step) % len(self)
            try:
                image = self.image(at)
            except OSError as error:
                if self.bad_image == "raise":
                    raise unreadable(error) from error
                warnings.warn(f"skipped: {error}", stacklevel=2)
                continue
            size = (image.shape[1], image.shape[2])
            if size != tuple(self.records.sizes[at].tolist()):
                warnings.warn(
                    f"{self.source.labels}: stated picture sizes differ from the files, such as "
                    f"{self.image_path(at).name}; the files count",
                    stacklevel=2,
                )
            return image, self.records.targets(at, size, self.min_side), at
        raise OSError(f"no picture of {self.root} ({self.split}) can be read")

    def subset(self, indices: Iterable[int]) -> Catalog:
        """Return the catalogue of these pictures only, in the order given; IndexError for one that is not there."""
        return replace(self, records=self.records.subset(indices))

    def to_coco(self) -> dict[str, Any]:
        """Return a COCO ground-truth document of exactly these images.

        For a COCO source it is the file's own content, untouched but for what reading it left out or had to find
        elsewhere: unreadable images, annotations of unknown ones, boxes that are not finite and, where masks are
        learnt, instances with an unusable outline are absent; sizes and classes that the file lacks are added.
        Otherwise ids count from 1 in index order, outlines, points and oriented boxes included, and ``iscrowd`` is 0.
        """
        if self.layout == "coco":
            sizes = dict(zip(map(id_key, self.image_ids), map(tuple, self.sizes.tolist()), strict=True))
            classes = dict(zip(self.category_ids, self.class_names, strict=True))
            document = load_document(self.source.labels)
            return part_that_was_read(document, sizes, classes, masks=TASK_NEEDS[self.task].masks)
        points = {"keypoints": list(self.keypoint_names)} if self.keypoint_names else {}
        names = zip(self.category_ids, self.class_names, strict=True)
        annotations: list[dict[str, Any]] = []
        ids = self.image_ids
        for index, (height, width) in enumerate(self.sizes.tolist()):
            annotations += coco_annotations(
                self.targets(index), (height, width), ids[index], self.category_ids, len(annotations) + 1
            )
        return {
            "info": {"description": f"{self.root.name} {self.split}"},
            "images": [
                {"id": i, "file_name": name, "height": h, "width": w}
                for i, name, (h, w) in zip(self.image_ids, self.file_names, self.sizes.tolist(), strict=True)
            ],
            "annotations": annotations,
            "categories": [{"id": i, "name": name, **points} for i, name in names],
        }

    def too_small(self) -> npt.NDArray[np.bool_]:
        """Return (M,) bool over all records: boxes that ``targets`` leaves out for their size."""
        records = self.records
        if len(records.rboxes):
            sides = records.boxes[:, 2:] - records.boxes[:, :2]
        else:
            size = np.repeat(records.sizes, np.diff(records.starts), axis=0).astype(np.float32)
            limit = size[:, [1, 0, 1, 0]]
            boxes = np.clip(records.boxes, np.float32(0), limit)
            sides = boxes[:, 2:] - boxes[:, :2]
        return np.asarray((sides < self.min_side).any(1))


def open_catalog(
    path: str | Path,
    split: str = "train",
    task: str = "detect",
    *,
    layout: Layout | None = None,
    exif: bool | None = None,
    bad_image: BadImage = "raise",
    min_side: float = 1.0,
    like: Catalog | None = None,
    outlines: bool = False,
    keep_difficult: bool = True,
    strict_labels: bool = False,
    dota_version: str | None = None,
    keypoint_offset: float = 0.5,
    min_visible: float = 0.0,
    rbox_fit: RboxFit = "mean",
    label_store: str | Path | None = None,
) -> Catalog:
    """Return the ``split`` of the data set at ``path`` (a folder, a COCO JSON or a YOLO dataset file).

    Args:
        path: where the data set lies; COCO, YOLO, Pascal VOC and DOTA trees are told apart by looking.
        split: ``train``, ``val``, ``test`` (usual other spellings are tried) or any list the tree has.
        task: ``detect``, ``segment``, ``pose`` or ``obb``; labels must have what it needs.
        layout: ``coco``, ``yolo``, ``voc`` or ``dota`` where the tree fits more than one.
        exif: turn pictures upright by their tag; default false for COCO and DOTA, true for YOLO and VOC.
        bad_image: ``raise``, or ``skip`` an unreadable picture and count it.
        min_side: boxes with a shorter side than this (px, at least 1e-3) are left out and counted.
        like: a catalogue whose classes this one must share; it may lack some of them.
        outlines: read outlines for detect and pose too, which copy-paste needs.
        keep_difficult: false leaves flagged instances out. Evaluation needs them: a detection of one would
            otherwise count as false.
        strict_labels: a YOLO or DOTA picture without a label file is an error instead of background.
        dota_version: ``1.0``, ``1.5`` or ``2.0``, the class list; None chooses by the names found, and takes other
            names as a list of their own.
        keypoint_offset: added to labelled COCO keypoints; half a pixel takes an index to its pixel's centre.
        min_visible: objects of a tile set of which a smaller fraction shows are left out and counted.
        rbox_fit: how oriented boxes are fitted to four points: ``mean`` forgives one bad corner, ``minarea`` is the
            smallest rectangle around them.
        label_store: a folder, not the data set's, that keeps packed labels. They are parsed once, found again while
            files, options and readers stay as they were, mapped rather than read, and shared with spawned workers.

    Raises FileNotFoundError listing the places tried, ValueError for labels that cannot be understood, with file
    and line or annotation, OSError for an unreadable picture header.

    >>> catalog = open_catalog("scenes", "train")
    >>> len(catalog), catalog.layout, catalog.targets(0).boxes.shape
    (4, 'coco', torch.Size([5, 4]))
    """
    kind = as_task(task)
    needs = TASK_NEEDS[kind]
    if outlines:
        needs = replace(needs, outlines=True)
    if bad_image not in ("raise", "skip"):
        raise ValueError(f"bad_image must be 'raise' or 'skip', got {bad_image!r}")
    if rbox_fit not in get_args(RboxFit):
        raise ValueError(f"rbox_fit must be one of {', '.join(get_args(RboxFit))}, got {rbox_fit!r}")
    if not min_side >= 1e-3:
        raise ValueError(f"min_side must be at least 0.001 px, got {min_side!r}")
    source = find_source(path, split, layout=layout, keypoints=needs.keypoints, rboxes=needs.rboxes)
    upright = _EXIF[source.layout] if exif is None else exif
    classes = Classes(like.class_names, like.category_ids) if like is not None else None
    options = ReadOptions(
        upright, bad_image, classes, strict_labels, dota_version, keypoint_offset, min_visible, rbox_fit
    )
    read = partial(_READERS[source.layout], source, needs, options)
    parsed = read() if label_store is None else stored(Path(label_store), source, needs, options, read)
    if not keep_difficult:
        parsed = replace(parsed, records=parsed.records.without_difficult())
    if not len(parsed.records):
        raise ValueError(f"{source.labels}: the split {split!r} holds no picture")
    return Catalog(
        root=source.root,
        split=split,
        task=kind,
        layout=source.layout,
        source=source,
        images=parsed.images,
        class_names=parsed.class_names,
        category_ids=parsed.category_ids,
        keypoint_names=parsed.keypoint_names,
        keypoint_flip_pairs=parsed.keypoint_flip_pairs,
        exif=upright,
        bad_image=bad_image,
        min_side=min_side,
        records=parsed.records,
    )
