"""Detection datasets as they really are, augmented reproducibly."""

from lucid_data.batch import Batch, collate
from lucid_data.catalog import Catalog, open_catalog
from lucid_data.images import image_size, read_image
from lucid_data.layout import Layout, available_splits
from lucid_data.loader import EpochBatches, TrainLoader, eval_loader, train_loader
from lucid_data.pipeline import EvalPipeline, Sample, TrainPipeline
from lucid_data.policy import NO_AUGMENTATION, AugmentPolicy, policy_for
from lucid_data.targets import Targets
from lucid_data.tasks import Task
from lucid_data.workers import available_cpus, default_workers

__all__ = [
    "NO_AUGMENTATION",
    "AugmentPolicy",
    "Batch",
    "Catalog",
    "EpochBatches",
    "EvalPipeline",
    "Layout",
    "Sample",
    "Targets",
    "Task",
    "TrainLoader",
    "TrainPipeline",
    "available_cpus",
    "available_splits",
    "collate",
    "default_workers",
    "eval_loader",
    "image_size",
    "open_catalog",
    "policy_for",
    "read_image",
    "train_loader",
]
