"""Drawn scenes with exact labels for every task, and writers for every label format; needs no data.

The same arguments give the same scene on every machine: all randomness is integer hashing.
"""

from lucid_data.synthetic.scene import CLASS_NAMES, class_names, keypoint_names, scene
from lucid_data.synthetic.write import write_coco, write_dota, write_voc, write_yolo

__all__ = [
    "CLASS_NAMES",
    "class_names",
    "keypoint_names",
    "scene",
    "write_coco",
    "write_dota",
    "write_voc",
    "write_yolo",
]
