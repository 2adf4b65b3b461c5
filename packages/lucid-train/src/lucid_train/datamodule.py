"""The Lightning data module: catalogs, pipelines and loaders of one run."""

import hashlib
import logging
from dataclasses import replace
from importlib.util import find_spec
from typing import Any

import lightning

from lucid_data import (
    Batch,
    Catalog,
    EvalLoader,
    EvalPipeline,
    PictureCache,
    TrainLoader,
    TrainPipeline,
    available_splits,
    cache_pictures,
    eval_loader,
    jitter_batch,
    open_catalog,
    train_loader,
)
from lucid_train.auto import augment_policy
from lucid_train.balance import balanced
from lucid_train.config import FitConfig
from lucid_train.processes import loader_workers, rank, world_size
from lucid_train.splits import default_splits, missing_split
from lucid_train.tasks import task_row

log = logging.getLogger("lucid")


class DetectionDataModule(lightning.LightningDataModule):
    """Opens the train and validation splits of a configuration and serves their batches.

    Args:
        config: the run's configuration; ``data.path`` must be set.

    Raises:
        ValueError: no data path, or splits whose classes differ.
        FileNotFoundError: a split that is not there.
    """

    def __init__(self, config: FitConfig) -> None:
        super().__init__()
        if config.data.path is None:
            raise ValueError("data.path is not set: say where the images and labels are (--data DIR)")
        self.config = config
        train_split, val_split = choose_splits(config)
        self.train_catalog = self._open(train_split)
        self.val_catalog = self._open(val_split, like=self.train_catalog)
        if config.data.balance is not None:
            self.train_catalog = balanced(self.train_catalog, config.data.balance, config.run.seed)
        points = (self.train_catalog.num_keypoints, self.val_catalog.num_keypoints)
        if points[0] != points[1]:
            raise ValueError(
                f"{config.data.path}: split {train_split!r} has {points[0]} keypoints, {val_split!r} has {points[1]}; "
                "one list per data set"
            )
        self._train_loader: TrainLoader | None = None

    def _open(self, split: str, like: Catalog | None = None) -> Catalog:
        data = self.config.data
        assert data.path is not None
        return open_catalog(
            data.path,
            split,
            self.config.model.task,
            layout=data.layout,
            like=like,
            label_store=data.label_store,
        )

    @property
    def image_size(self) -> int:
        """Canvas side in pixels."""
        return self.config.data.image_size or task_row(self.config.model.task).image_size

    @property
    def batch(self) -> int:
        """Images per step and process."""
        if self.config.data.batch is None:
            raise ValueError("data.batch must be chosen before there are loaders")
        return self.config.data.batch

    def use(self, config: FitConfig) -> None:
        """Adopt a configuration whose open values have been chosen; the catalogs stay."""
        self.config = config

    def train_pipeline(self) -> TrainPipeline:
        """Return the augmenting pipeline; mosaic ends at a fixed epoch, whichever process asks."""
        closing = self.config.augment.close_mosaic or 0
        return TrainPipeline(
            self.train_catalog,
            self.image_size,
            augment_policy(self.config),
            seed=self.config.run.seed,
            mosaic_epochs=max(0, self.config.run.epochs - closing) if closing else None,
            cache=self._cache(),
            device_color=self.config.data.device_hsv,
            fused_color=self.config.data.fused_hsv,
        )

    def _cache(self) -> PictureCache | None:
        """Return the pictures that the configuration wants kept in memory, or None."""
        data = self.config.data
        if not (data.cache_train_images or data.cache_prepared_train_images):
            return None
        cache = cache_pictures(
            self.train_catalog, self.image_size if data.cache_prepared_train_images else None
        )
        log.info("training images kept in memory: %.2f GiB", cache.nbytes / 2**30)
        return cache

    def train_dataloader(self) -> TrainLoader:
        """Return the training loader of this process; its position survives a checkpoint."""
        if self._train_loader is None:
            self._train_loader = train_loader(
                self.train_pipeline(),
                self.batch,
                workers=loader_workers(self.config.data.workers),
                seed=self.config.run.seed,
                rank=rank() if world_size() > 1 else 0,
                world_size=world_size(),
                epoch_prefetch=self.config.data.epoch_prefetch,
            )
        return self._train_loader

    def on_after_batch_transfer(self, batch: Batch, dataloader_idx: int) -> Batch:
        """Return the batch with its colour done, where the workers left that to this device."""
        if batch.color is None:
            return batch
        # one pass, the same bytes: by Triton wherever it is, by Numba where it is asked for
        compiled = self.config.data.fused_hsv
        fused = find_spec("triton") is not None if batch.images.is_cuda else compiled
        return replace(batch, images=jitter_batch(batch.images, batch.color, fused=fused), color=None)

    def val_shard(self) -> tuple[int, ...] | None:
        """Return the positions of the validation images that this process scores; None stands for all of them.

        Every image is one process's. A process for which none is left takes one of another's, so that it has a loop to
        go through; an image that comes twice counts once.
        """
        if world_size() == 1:
            return None
        images = len(self.val_catalog)
        return tuple(range(rank(), images, world_size())) or (rank() % images,)

    def val_dataloader(self) -> EvalLoader:
        """Return the validation loader of this process."""
        shard = self.val_shard()
        catalog = self.val_catalog if shard is None else self.val_catalog.subset(shard)
        return eval_loader(
            EvalPipeline(catalog, self.image_size),
            min(self.batch * 2, task_row(self.config.model.task).eval_batch),
            workers=loader_workers(self.config.data.workers),
        )


def choose_splits(config: FitConfig) -> tuple[str, str]:
    """Return the training and validation split: those asked for, else the tree's own convention.

    A tree that offers ``trainval`` and ``test`` (Pascal VOC) is trained on the first and validated on the second;
    otherwise ``train`` and ``val`` (or ``valid``, else ``test``).

    Raises:
        ValueError: the tree has no split that could serve.
    """
    wanted_train, wanted_val = config.data.train_split, config.data.val_split
    if wanted_train and wanted_val:
        return wanted_train, wanted_val
    assert config.data.path is not None
    present = available_splits(config.data.path, config.model.task, layout=config.data.layout)
    # whoever trains on a part of a devkit's trainval validates on the other part
    train, val = default_splits(tuple(name for name in present if not wanted_train or name != "trainval"))
    train, val = wanted_train or train, wanted_val or val
    if train is None:
        raise missing_split(config.data.path, "training", present, "--set data.train_split=NAME")
    if val is None:
        raise missing_split(config.data.path, "validation", present, "--set data.val_split=NAME")
    return train, val


def data_identity(catalog: Catalog) -> dict[str, Any]:
    """Return what makes a training set the same set: class names, number of images, digest of their names."""
    names = "\n".join(catalog.file_names)
    return {
        "classes": list(catalog.class_names),
        "images": len(catalog),
        "files": hashlib.sha256(names.encode()).hexdigest(),
    }


def tell_about(catalog: Catalog) -> None:
    """Log what a reader left out and whether there is anything to learn."""
    for what, count in catalog.dropped.items():
        if count:
            log.warning(
                "%s, split %s: %d left out: %s (see `lucid data check`)",
                catalog.root,
                catalog.split,
                count,
                what,
            )
    if not any(len(catalog.targets(index)) for index in range(len(catalog))):
        log.warning(
            "%s, split %s has no objects at all: only background is learned", catalog.root, catalog.split
        )
