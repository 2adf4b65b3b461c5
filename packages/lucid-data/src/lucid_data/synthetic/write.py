"""Writers: the same scenes as COCO JSON, YOLO text, Pascal VOC XML and DOTA text."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any
from xml.sax.saxutils import escape

from PIL import Image
from torch import Tensor

from lucid_data.formats.flip_pairs import keypoint_flip_pairs
from lucid_data.formats.write_text import dataset_yaml, dota_rows, yolo_rows
from lucid_data.synthetic.scene import class_names, keypoint_names, scene
from lucid_data.targets import Targets
from lucid_data.tasks import as_task
from lucid_data.whole import whole_folder
from lucid_geometry import rboxes_to_polygons

Writer = Callable[[int, str, Targets, int], None]


def write_coco(
    root: str | Path,
    *,
    splits: Mapping[str, int],
    size: int = 128,
    seed: int = 0,
    shapes: int = 5,
    task: str = "detect",
) -> Path:
    """Write scenes as a COCO tree (``<split>``, ``annotations/instances_<split>.json``) and return its root.

    Pose scenes become ``person_keypoints_<split>.json``; obb scenes carry four-point outlines. The coordinates are
    exact (keypoints as COCO states them, half a pixel less). Raises FileExistsError when ``root`` has content.
    """
    with whole_folder(root) as folder:
        names = class_names(task)
        prefix = "person_keypoints" if task == "pose" else "instances"
        for split, first, count in _ranges(splits):
            images: list[dict[str, Any]] = []
            annotations: list[dict[str, Any]] = []
            for number in range(1, count + 1):
                image, targets = scene(seed * 1_000_003 + first + number, size, shapes, task)
                name = _save(image, folder / split, number)
                images.append(
                    {"id": number, "file_name": name, "height": image.shape[1], "width": image.shape[2]}
                )
                annotations += _coco_annotations(targets, number, len(annotations))
            category = {"keypoints": list(keypoint_names()), "skeleton": []} if task == "pose" else {}
            document = {
                "info": {"description": f"drawn scenes, seed {seed}"},
                "images": images,
                "annotations": annotations,
                "categories": [{"id": i, "name": n, **category} for i, n in enumerate(names, 1)],
            }
            path = folder / "annotations" / f"{prefix}_{split}.json"
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_text(json.dumps(document), encoding="utf-8")
    return Path(root)


def write_yolo(
    root: str | Path,
    *,
    splits: Mapping[str, int],
    size: int = 128,
    seed: int = 0,
    shapes: int = 5,
    task: str = "detect",
) -> Path:
    """Write scenes as a YOLO tree (``data.yaml``, ``images/<split>``, ``labels/<split>``) and return its root.

    Six decimals; an outline of several parts becomes one ring with a slit of no width (the format has no parts).
    Raises FileExistsError when ``root`` has content.
    """
    with whole_folder(root) as folder:
        points = keypoint_names() if task == "pose" else ()
        entries = {split: f"images/{split}" for split in splits}
        text = dataset_yaml(entries, class_names(task), len(points), points, keypoint_flip_pairs(points))
        (folder / "data.yaml").write_text(text, encoding="utf-8")

        def write(number: int, split: str, targets: Targets, side: int) -> None:
            rows = yolo_rows(targets, (side, side), as_task(task))
            _text(folder / "labels" / split / f"{number:05d}.txt", rows)

        _each(folder, splits, size, seed, shapes, task, lambda split: folder / "images" / split, write)
    return Path(root)


def write_voc(
    root: str | Path, *, splits: Mapping[str, int], size: int = 128, seed: int = 0, shapes: int = 5
) -> Path:
    """Write detection scenes as a Pascal VOC tree and return its root; corners keep their fractions.

    Raises FileExistsError when ``root`` has content.
    """
    with whole_folder(root) as folder:
        names = class_names("detect")
        listed: dict[str, list[str]] = {split: [] for split in splits}

        def write(number: int, split: str, targets: Targets, side: int) -> None:
            stem = f"{number:05d}" if split == next(iter(splits)) else f"{split}_{number:05d}"
            listed[split].append(stem)
            objects = "".join(
                f"<object><name>{escape(names[label])}</name><difficult>0</difficult><bndbox><xmin>{x1:.6f}</xmin>"
                f"<ymin>{y1:.6f}</ymin><xmax>{x2:.6f}</xmax><ymax>{y2:.6f}</ymax></bndbox></object>"
                for label, (x1, y1, x2, y2) in zip(
                    targets.labels.tolist(), targets.boxes.tolist(), strict=True
                )
            )
            size_tag = f"<size><width>{side}</width><height>{side}</height><depth>3</depth></size>"
            xml = f"<annotation><filename>{stem}.png</filename>{size_tag}{objects}</annotation>"
            _text(folder / "Annotations" / f"{stem}.xml", [xml])

        _each(folder, splits, size, seed, shapes, "detect", lambda split: folder / "JPEGImages", write)
        for split, stems in listed.items():
            _text(folder / "ImageSets" / "Main" / f"{split}.txt", stems)
    return Path(root)


def write_dota(
    root: str | Path, *, splits: Mapping[str, int], size: int = 128, seed: int = 0, shapes: int = 5
) -> Path:
    """Write obb scenes as a DOTA tree (``<split>/images``, ``<split>/labelTxt``) and return its root.

    Raises FileExistsError when ``root`` has content.
    """
    with whole_folder(root) as folder:
        names = class_names("obb")

        def write(number: int, split: str, targets: Targets, side: int) -> None:
            rows = ["imagesource:drawn", "gsd:1", *dota_rows(targets, names)]
            _text(folder / split / "labelTxt" / f"{number:05d}.txt", rows)

        _each(folder, splits, size, seed, shapes, "obb", lambda split: folder / split / "images", write)
    return Path(root)


def _each(
    folder: Path,
    splits: Mapping[str, int],
    size: int,
    seed: int,
    shapes: int,
    task: str,
    images: Callable[[str], Path],
    write: Writer,
) -> None:
    first_split = next(iter(splits), "")
    for split, first, count in _ranges(splits):
        for number in range(1, count + 1):
            image, targets = scene(seed * 1_000_003 + first + number, size, shapes, task)
            shared = images(split) == images(first_split) and split != first_split
            _save(image, images(split), number, f"{split}_" if shared else "")
            write(number, split, targets, size)


def _ranges(splits: Mapping[str, int]) -> list[tuple[str, int, int]]:
    first, ranges = 0, []
    for split, count in splits.items():
        ranges.append((split, first, count))
        first += count
    return ranges


def _coco_annotations(targets: Targets, image_id: int, before: int) -> list[dict[str, Any]]:
    rows = []
    quads = rboxes_to_polygons(targets.rboxes.double()).flatten(1).tolist() if len(targets.rboxes) else None
    for i, (x1, y1, x2, y2) in enumerate(targets.boxes.double().tolist()):
        row: dict[str, Any] = {
            "id": before + i + 1,
            "image_id": image_id,
            "category_id": int(targets.labels[i]) + 1,
            "bbox": [x1, y1, x2 - x1, y2 - y1],
            "area": float(targets.area[i]),
            "iscrowd": 0,
        }
        if targets.polygons:
            row["segmentation"] = [ring.flatten().tolist() for ring in targets.polygons[i]]
        if quads is not None:
            row["segmentation"] = [quads[i]]
        if len(targets.keypoints):
            points = targets.keypoints[i].double()
            points[:, :2] -= 0.5 * (points[:, 2:] > 0)
            row["keypoints"] = [int(v) if n % 3 == 2 else v for n, v in enumerate(points.flatten().tolist())]
            row["num_keypoints"] = int((points[:, 2] > 0).sum())
        rows.append(row)
    return rows


def _save(image: Tensor, folder: Path, number: int, prefix: str = "") -> str:
    folder.mkdir(parents=True, exist_ok=True)
    name = f"{prefix}{number:05d}.png"
    Image.fromarray(image.permute(1, 2, 0).numpy()).save(folder / name, compress_level=1)
    return name


def _text(path: Path, lines: list[str]) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text("".join(f"{line}\n" for line in lines), encoding="utf-8")
