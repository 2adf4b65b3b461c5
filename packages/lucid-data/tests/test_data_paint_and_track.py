"""Dots are painted, everything is moved, and the dots are looked for where the labels say they are."""

import json
from dataclasses import replace

import numpy as np
import pytest
import torch
from PIL import Image

from lucid_data import NO_AUGMENTATION, EvalPipeline, TrainPipeline, open_catalog
from lucid_data.raster import fill_rings
from lucid_geometry import rboxes_to_polygons

# four colours far apart, one corner of a rectangle each
COLOURS = np.array([[255, 0, 0], [0, 255, 0], [0, 0, 255], [255, 255, 0]], np.uint8)


@pytest.fixture(scope="module")
def painted(tmp_path_factory):
    """Black pictures with one leaning rectangle each, its corners marked by 7 px dots and labelled in every way."""
    root = tmp_path_factory.mktemp("painted")
    (root / "images").mkdir()
    images, annotations = [], []
    for number in range(1, 9):
        height, width = (96, 128) if number % 2 else (128, 96)
        centre, angle = np.array([width / 2, height / 2]), 0.15 + 0.3 * number
        axes = np.array([[np.cos(angle), np.sin(angle)], [-np.sin(angle), np.cos(angle)]])
        corners = centre + np.array([[-26, -13], [26, -13], [26, 13], [-26, 13]]) @ axes
        corners = np.round(corners - 0.5) + 0.5
        pixels = np.zeros((height, width, 3), np.uint8)
        for (x, y), colour in zip(corners.astype(int), COLOURS, strict=True):
            pixels[y - 3 : y + 4, x - 3 : x + 4] = colour
        Image.fromarray(pixels).save(root / "images" / f"{number}.png")
        images.append({"id": number, "file_name": f"{number}.png", "height": height, "width": width})
        low, high = corners.min(0), corners.max(0)
        annotations.append(
            {
                "id": number, "image_id": number, "category_id": 1, "iscrowd": 0, "area": 52 * 26,
                "bbox": [*low, *(high - low)], "segmentation": [corners.reshape(-1).tolist()],
                "keypoints": np.column_stack([corners - 0.5, [2, 2, 2, 2]]).reshape(-1).tolist(), "num_keypoints": 4,
            }
        )  # fmt: skip
    names = ["a", "b", "c", "d"]
    document = {
        "images": images, "annotations": annotations, "categories": [{"id": 1, "name": "sheet", "keypoints": names}],
    }  # fmt: skip
    (root / "annotations.json").write_text(json.dumps(document))
    return root


def dots(image, colour, near=None):
    """Return the centroid of what shines in ``colour`` (within 11 px of ``near``), by brightness, and how much."""
    on = torch.tensor(colour > 0)
    value = image.double()
    shine = value[on].amin(0) - value[~on].amax(0)
    shine = shine.clamp(min=0) * (shine > 60)
    y, x = torch.meshgrid(*(torch.arange(n) + 0.5 for n in image.shape[1:]), indexing="ij")
    if near is not None:
        shine = shine * ((x - near[0]).abs() < 11) * ((y - near[1]).abs() < 11)
    total = shine.sum()
    return torch.stack([(shine * x).sum(), (shine * y).sum()]) / total.clamp(min=1), float(total) / 255


MOVES = {
    "letterbox": {},
    "mirrored": {"flip_horizontal": 1.0},
    "upside down": {"flip_vertical": 1.0},
    "zoomed and shifted": {"scale": 0.4, "translate": 0.1},
    "turned": {"degrees": 40.0, "scale": 0.2},
    "sheared": {"shear": 12.0, "degrees": 10.0},
    "everything": {"degrees": 30.0, "shear": 8.0, "scale": 0.3, "flip_horizontal": 0.5, "flip_vertical": 0.5},
    "mosaic": {"mosaic": 1.0, "translate": 0.1, "flip_horizontal": 0.5},
    "turned mosaic": {"mosaic": 1.0, "degrees": 30.0, "flip_vertical": 0.5},
}


@pytest.mark.parametrize("move", MOVES)
def test_points_stay_on_their_dots(painted, move):
    catalog = open_catalog(painted, "all", "pose")
    policy = replace(NO_AUGMENTATION, min_visibility=0.0, **MOVES[move])
    found = 0
    for index in range(8):
        sample = TrainPipeline(catalog, 192, policy, seed=5)(0, index)
        for points in sample.targets.keypoints.tolist():
            for (x, y, v), colour in zip(points, COLOURS, strict=True):
                # the dot must be whole: seen, and away from borders and cuts
                if v == 0 or min(x, y) < 12 or max(x, y) > 180:
                    continue
                centre, size = dots(sample.image, colour, (x, y))
                if "mosaic" in move and size < 75:
                    continue
                found += 1
                assert size > 20
                assert (centre - torch.tensor([x, y])).norm() < 0.35, (move, index, colour)
    assert found >= 4 if "mosaic" in move else found >= 16


@pytest.mark.parametrize("move", [m for m in MOVES if "mosaic" not in m])
def test_boxes_outlines_and_rotated_boxes_agree_with_the_points(painted, move):
    policy = replace(NO_AUGMENTATION, min_visibility=0.0, **MOVES[move])
    made = {
        task: TrainPipeline(open_catalog(painted, "all", task), 192, policy, seed=5)
        for task in ("segment", "pose", "obb")
    }
    checked = 0
    for index in range(8):
        segment, pose, obb = (made[task](0, index).targets for task in ("segment", "pose", "obb"))
        if not len(pose) or (pose.keypoints[0, :, 2] == 0).any():
            continue
        checked += 1
        points = pose.keypoints[0, :, :2]
        ring = segment.polygons[0][0]
        assert torch.allclose(ring, points, atol=1e-3)
        assert torch.allclose(segment.boxes[0], torch.cat([points.amin(0), points.amax(0)]), atol=1e-3)
        corners = rboxes_to_polygons(obb.rboxes.double())[0]
        far = (corners[:, None] - points.double()[None]).norm(dim=-1).amin(1)
        # a sheared sheet is no rectangle: the fit leans in between, and the source's corners are whole pixels
        assert far.amax() < (14 if "shear" in str(MOVES[move]) else 3.0)
    assert checked >= 4


@pytest.mark.parametrize("move", ["mosaic", "turned mosaic", "everything"])
def test_masks_cover_the_pixels_of_their_objects(painted, move, tmp_path):
    # the same sheets filled white: what is bright is exactly what the outlines fill
    root = tmp_path
    document = json.loads((painted / "annotations.json").read_text())
    (root / "images").mkdir()
    for image, annotation in zip(document["images"], document["annotations"], strict=True):
        ring = np.array(annotation["segmentation"][0]).reshape(-1, 2)
        mask = fill_rings([ring], image["height"], image["width"])
        Image.fromarray((mask * np.uint8(255))[..., None].repeat(3, 2)).save(
            root / "images" / image["file_name"]
        )
    (root / "annotations.json").write_text(json.dumps(document))
    policy = replace(NO_AUGMENTATION, min_visibility=0.0, min_size=0.0, **MOVES[move])
    pipeline = TrainPipeline(open_catalog(root, "all", "segment"), 192, policy, seed=5)
    for index in range(8):
        sample = pipeline(0, index)
        bright = sample.image[0].numpy() > 184 if move != "everything" else sample.image[0].numpy() > 127
        filled = np.zeros((192, 192), bool)
        for rings in sample.targets.polygons:
            filled |= fill_rings([r.numpy() for r in rings], 192, 192)
        # the border of a resampled edge is uncertain by half a pixel
        assert (bright ^ filled).sum() <= 0.06 * max(filled.sum(), 200), index


def test_evaluation_moves_points_with_their_dots(painted):
    pipeline = EvalPipeline(open_catalog(painted, "all", "pose"), 160)
    for index in range(8):
        sample = pipeline(index)
        for k, colour in enumerate(COLOURS):
            centre, _ = dots(sample.image, colour)
            assert (centre - sample.targets.keypoints[0, k, :2]).norm() < 0.3
