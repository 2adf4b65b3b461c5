"""Exact upright and rotated box geometry in pure torch."""

from lucid_geometry.affine import Affine
from lucid_geometry.boxes import (
    aligned_box_iou,
    box_area,
    box_iou,
    clip_boxes,
    complete_box_iou,
    cxcywh_to_xyxy,
    xywh_to_xyxy,
    xyxy_to_cxcywh,
    xyxy_to_xywh,
)
from lucid_geometry.letterbox import Letterbox
from lucid_geometry.nms import nms
from lucid_geometry.rotated import (
    canonicalize_rboxes,
    flip_rboxes_horizontal,
    flip_rboxes_vertical,
    points_in_rboxes,
    polygons_to_rboxes,
    rboxes_to_boxes,
    rboxes_to_polygons,
    rotate_rboxes_clockwise,
)

__all__ = [
    "Affine",
    "Letterbox",
    "aligned_box_iou",
    "box_area",
    "box_iou",
    "canonicalize_rboxes",
    "clip_boxes",
    "complete_box_iou",
    "cxcywh_to_xyxy",
    "flip_rboxes_horizontal",
    "flip_rboxes_vertical",
    "nms",
    "points_in_rboxes",
    "polygons_to_rboxes",
    "rboxes_to_boxes",
    "rboxes_to_polygons",
    "rotate_rboxes_clockwise",
    "xywh_to_xyxy",
    "xyxy_to_cxcywh",
    "xyxy_to_xywh",
]
