"""Detection datasets as they really are, augmented reproducibly."""

from lucid_data import synthetic
from lucid_data.batch import Batch, collate
from lucid_data.catalog import Catalog, open_catalog
from lucid_data.check import check
from lucid_data.convert import Conversion, Format, Pictures, convert
from lucid_data.device_color import jitter_batch
from lucid_data.doctor.findings import Finding
from lucid_data.download import Downloaded, download_coco, download_manifest, fetch
from lucid_data.formats.dota_classes import DotaVersion
from lucid_data.images import IMAGE_SUFFIXES, image_size, read_image
from lucid_data.layout import available_splits
from lucid_data.loader import EpochBatches, EvalLoader, TrainLoader, eval_loader, train_loader
from lucid_data.metrics.coco import score_coco
from lucid_data.metrics.coco_pairs import CocoPairs, coco_pairs
from lucid_data.metrics.confusion import ConfusionMatrix, confusion_matrix
from lucid_data.metrics.dota import (
    DotaClassScore,
    DotaReport,
    Task1Detections,
    read_task1,
    score_dota,
    write_task1,
)
from lucid_data.metrics.errors import ErrorSplit, error_split
from lucid_data.metrics.report import ClassScore, CocoReport, Curves
from lucid_data.metrics.rotated import RotatedReport, score_rotated
from lucid_data.metrics.tile_merge import MergedImage, merge_tiles, tile_cores
from lucid_data.picture_cache import PictureCache, cache_pictures
from lucid_data.pipeline import EvalPipeline, Sample, TrainPipeline
from lucid_data.policy import NO_AUGMENTATION, AugmentPolicy, policy_for
from lucid_data.randomness import epoch_order
from lucid_data.source import Layout
from lucid_data.stats import Stats, stats
from lucid_data.targets import Targets
from lucid_data.tasks import Task
from lucid_data.tiling.tile import TiledSplit, TileManifest, TileOptions, read_tile_manifest, tile
from lucid_data.tiling.windows import tile_windows
from lucid_data.unpack import UnpackLimits, unpack
from lucid_data.workers import available_cpus, available_memory, default_workers

__all__ = [
    "IMAGE_SUFFIXES",
    "NO_AUGMENTATION",
    "AugmentPolicy",
    "Batch",
    "Catalog",
    "ClassScore",
    "CocoPairs",
    "CocoReport",
    "ConfusionMatrix",
    "Conversion",
    "Curves",
    "DotaClassScore",
    "DotaReport",
    "DotaVersion",
    "Downloaded",
    "EpochBatches",
    "ErrorSplit",
    "EvalLoader",
    "EvalPipeline",
    "Finding",
    "Format",
    "Layout",
    "MergedImage",
    "PictureCache",
    "Pictures",
    "RotatedReport",
    "Sample",
    "Stats",
    "Targets",
    "Task",
    "Task1Detections",
    "TileManifest",
    "TileOptions",
    "TiledSplit",
    "TrainLoader",
    "TrainPipeline",
    "UnpackLimits",
    "available_cpus",
    "available_memory",
    "available_splits",
    "cache_pictures",
    "check",
    "coco_pairs",
    "collate",
    "confusion_matrix",
    "convert",
    "default_workers",
    "download_coco",
    "download_manifest",
    "epoch_order",
    "error_split",
    "eval_loader",
    "fetch",
    "image_size",
    "jitter_batch",
    "merge_tiles",
    "open_catalog",
    "policy_for",
    "read_image",
    "read_task1",
    "read_tile_manifest",
    "score_coco",
    "score_dota",
    "score_rotated",
    "stats",
    "synthetic",
    "tile",
    "tile_cores",
    "tile_windows",
    "train_loader",
    "unpack",
    "write_task1",
]
