"""Detection datasets as they really are, augmented reproducibly."""

from lucid_data.catalog import Catalog, open_catalog
from lucid_data.images import image_size, read_image
from lucid_data.layout import Layout, available_splits
from lucid_data.targets import Targets
from lucid_data.tasks import Task

__all__ = [
    "Catalog",
    "Layout",
    "Targets",
    "Task",
    "available_splits",
    "image_size",
    "open_catalog",
    "read_image",
]
