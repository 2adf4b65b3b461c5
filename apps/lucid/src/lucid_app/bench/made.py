"""COCO documents made from a seed: detections to score, and large label files to open."""

from pathlib import Path
from typing import Any

import numpy as np

CLASSES = 80
_SIDE = 640


def scored_scenes(images: int, detections: int, seed: int = 0) -> tuple[dict[str, Any], list[dict[str, Any]]]:
    """Return a ground truth of about 7 boxes an image and results of exactly ``detections`` an image, 80 classes.

    Objects are found about three times each, by boxes a few per cent off; one object in fifty is a crowd; the other
    detections are noise of lower scores.
    """
    rng = np.random.default_rng(seed)
    truth: dict[str, Any] = {
        "images": [{"id": i + 1, "width": _SIDE, "height": _SIDE} for i in range(images)],
        "categories": [{"id": c + 1, "name": f"class {c}"} for c in range(CLASSES)],
        "annotations": [],
    }
    results: list[dict[str, Any]] = []
    for image in range(images):
        objects = int(rng.poisson(7.3))
        extent = rng.uniform(8, 240, (objects, 2))
        corner = rng.uniform(0, 1, (objects, 2)) * (_SIDE - extent)
        classes = rng.integers(0, CLASSES, objects)
        for k in range(objects):
            truth["annotations"].append(
                {
                    "id": len(truth["annotations"]) + 1,
                    "image_id": image + 1,
                    "category_id": int(classes[k]) + 1,
                    "bbox": [*corner[k].tolist(), *extent[k].tolist()],
                    "area": float(extent[k].prod()),
                    "iscrowd": int(rng.random() < 0.02),
                }
            )
        hits = min(objects * 3, detections) if objects else 0
        of = rng.integers(0, max(1, objects), hits)
        off = rng.normal(0, 0.07, (hits, 4))
        found = np.concatenate((corner[of], extent[of]), 1) if hits else np.zeros((0, 4))
        found = found + off * np.concatenate((extent[of], extent[of]), 1) if hits else found
        noise = rng.uniform(8, 240, (detections - hits, 4))
        boxes = np.concatenate((found, noise))
        labels = np.concatenate((classes[of] if hits else of, rng.integers(0, CLASSES, detections - hits)))
        scores = np.concatenate((rng.uniform(0.2, 1, hits), rng.uniform(0, 0.5, detections - hits)))
        results += [
            {
                "image_id": image + 1,
                "category_id": int(labels[k]) + 1,
                "bbox": np.maximum(boxes[k], 0.5).tolist(),
                "score": float(scores[k]),
            }
            for k in range(detections)
        ]
    return truth, results


def write_large(path: Path, images: int, per_image: int) -> None:
    """Write a COCO file of so many outlined instances, one picture at a time, and one picture beside it.

    The reader looks for the first picture to find their folder, not into it.
    """
    (path.parent / "images").mkdir(exist_ok=True)
    (path.parent / "images" / f"{1:012d}.jpg").touch()
    with path.open("w", encoding="utf-8") as file:
        file.write('{"images": [')
        file.write(
            ",".join(
                f'{{"id": {i}, "file_name": "{i:012d}.jpg", "height": 480, "width": 640}}'
                for i in range(1, images + 1)
            )
        )
        names = ",".join(f'{{"id": {c}, "name": "c{c}"}}' for c in range(1, CLASSES + 1))
        file.write(f'], "categories": [{names}],"annotations": [')
        for i in range(images):
            rows = []
            for k in range(per_image):
                n, x, y = i * per_image + k + 1, (i * 7 + k * 53) % 560, (i * 11 + k * 31) % 400
                ring = ",".join(f"{x + (3 * p) % 60}.25,{y + (5 * p) % 60}.5" for p in range(12))
                rows.append(
                    f'{{"id": {n}, "image_id": {i + 1}, "category_id": {n % 80 + 1}, "iscrowd": 0, "area": 900.5,'
                    f'"bbox": [{x}.5, {y}.25, 60.0, 60.0], "segmentation": [[{ring}]]}}'
                )
            file.write(("," if i else "") + ",".join(rows))
        file.write("]}")
