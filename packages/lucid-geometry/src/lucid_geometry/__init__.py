"""Exact upright and rotated box geometry in pure torch."""

from lucid_geometry.affine import Affine
from lucid_geometry.angles import angle_difference
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
from lucid_geometry.clip import clip_rboxes
from lucid_geometry.convert import (
    dota_to_rboxes,
    opencv_to_rboxes,
    rboxes_to_dota,
    rboxes_to_opencv,
    rboxes_to_torchvision,
    torchvision_to_rboxes,
)
from lucid_geometry.fit import polygons_to_rboxes
from lucid_geometry.letterbox import Letterbox
from lucid_geometry.nms import nms, rotated_nms
from lucid_geometry.polygon import clip_half_plane, convex_intersection, polygon_area
from lucid_geometry.probiou import probiou, probiou_loss
from lucid_geometry.refit import ClippedRBoxes, refit_ring, refit_rings
from lucid_geometry.rings import clip_ring, clip_rings
from lucid_geometry.rotated import (
    canonicalize_rboxes,
    flip_rboxes_horizontal,
    flip_rboxes_vertical,
    points_in_rboxes,
    rboxes_to_boxes,
    rboxes_to_polygons,
    rotate_rboxes_clockwise,
)
from lucid_geometry.rotated_iou import aligned_rotated_box_iou, rotated_box_iou

__all__ = [
    "Affine",
    "ClippedRBoxes",
    "Letterbox",
    "aligned_box_iou",
    "aligned_rotated_box_iou",
    "angle_difference",
    "box_area",
    "box_iou",
    "canonicalize_rboxes",
    "clip_boxes",
    "clip_half_plane",
    "clip_rboxes",
    "clip_ring",
    "clip_rings",
    "complete_box_iou",
    "convex_intersection",
    "cxcywh_to_xyxy",
    "dota_to_rboxes",
    "flip_rboxes_horizontal",
    "flip_rboxes_vertical",
    "nms",
    "opencv_to_rboxes",
    "points_in_rboxes",
    "polygon_area",
    "polygons_to_rboxes",
    "probiou",
    "probiou_loss",
    "rboxes_to_boxes",
    "rboxes_to_dota",
    "rboxes_to_opencv",
    "rboxes_to_polygons",
    "rboxes_to_torchvision",
    "refit_ring",
    "refit_rings",
    "rotate_rboxes_clockwise",
    "rotated_box_iou",
    "rotated_nms",
    "torchvision_to_rboxes",
    "xywh_to_xyxy",
    "xyxy_to_cxcywh",
    "xyxy_to_xywh",
]
