"""The Lightning data module: catalogs, pipelines and loaders of one run."""

from dataclasses import fields, replace

import lightning

from lucid_data import (
    AugmentPolicy,
    Catalog,
    EvalLoader,
    EvalPipeline,
    TrainLoader,
    TrainPipeline,
    available_splits,
    eval_loader,
    open_catalog,
    policy_for,
    train_loader,
)
from lucid_train.config import AugmentConfig, FitConfig
from lucid_train.tasks import task_row


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
        self.val_catalog = self._open(val_split)
        check_same_classes(self.train_catalog, self.val_catalog)
        self._train_loader: TrainLoader | None = None

    def _open(self, split: str) -> Catalog:
        assert self.config.data.path is not None
        return open_catalog(
            self.config.data.path, split, self.config.model.task, layout=self.config.data.layout
        )

    @property
    def image_size(self) -> int:
        """Canvas side in pixels."""
        return self.config.data.image_size or task_row(self.config.model.task).image_size

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
        )

    def train_dataloader(self) -> TrainLoader:
        """Return the training loader of this process; its position survives a checkpoint."""
        if self._train_loader is None:
            trainer = self.trainer
            self._train_loader = train_loader(
                self.train_pipeline(),
                self.config.data.batch,
                workers=self.config.data.workers,
                seed=self.config.run.seed,
                rank=trainer.global_rank if trainer else 0,
                world_size=trainer.world_size if trainer else 1,
            )
        return self._train_loader

    def val_dataloader(self) -> EvalLoader:
        """Return the validation loader."""
        return eval_loader(
            EvalPipeline(self.val_catalog, self.image_size),
            min(self.config.data.batch * 2, task_row(self.config.model.task).eval_batch),
            workers=self.config.data.workers,
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
    splits = available_splits(config.data.path)
    devkit = {"trainval", "test"} <= set(splits)
    train = wanted_train or _first(("trainval", "train") if devkit else ("train",), splits)
    val = wanted_val or _first(
        ("test",) if devkit and train == "trainval" else ("val", "valid", "test"), splits
    )
    if train is None or val is None:
        role = "training" if train is None else "validation"
        raise ValueError(
            f"{config.data.path}: no {role} split among {', '.join(splits) or 'none at all'}; "
            f"name one with --set data.{'train' if train is None else 'val'}_split=NAME"
        )
    return train, val


def _first(wanted: tuple[str, ...], present: tuple[str, ...]) -> str | None:
    return next((name for name in wanted if name in present), None)


def augment_policy(config: FitConfig) -> AugmentPolicy:
    """Return the policy of the size and task with the configuration's overrides."""
    known = {field.name for field in fields(AugmentPolicy)}
    overrides = {
        name: value
        for name in AugmentConfig.model_fields
        if (value := getattr(config.augment, name)) is not None and name in known
    }
    return replace(policy_for(config.model.size, config.model.task), **overrides)


def check_same_classes(train: Catalog, val: Catalog) -> None:
    """Raise ValueError where validation labels would not mean what training labels mean."""
    if train.class_names == val.class_names:
        return
    only_train = sorted(set(train.class_names) - set(val.class_names))
    only_val = sorted(set(val.class_names) - set(train.class_names))
    if not only_train and not only_val:
        raise ValueError(
            f"{train.root}: splits {train.split} and {val.split} list the same classes in another order"
        )
    raise ValueError(
        f"{train.root}: the classes of {train.split} and {val.split} differ: "
        f"only in {train.split}: {only_train or 'none'}; only in {val.split}: {only_val or 'none'}"
    )
