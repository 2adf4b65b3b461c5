import doctest
import importlib
import pkgutil

import pytest

import lucid_data

MODULES = sorted(
    {lucid_data.__name__, *(m.name for m in pkgutil.walk_packages(lucid_data.__path__, "lucid_data."))}
)


@pytest.mark.parametrize("name", MODULES)
def test_the_examples_of_a_module_run(name):
    failures, _ = doctest.testmod(importlib.import_module(name))
    assert failures == 0


def test_public_functions_and_classes_say_what_they_return():
    for name in lucid_data.__all__:
        item = getattr(lucid_data, name)
        if isinstance(item, type) or (callable(item) and hasattr(item, "__module__")):
            assert name in ("EvalLoader", "Task", "Layout") or item.__doc__, name


def test_nothing_public_was_removed():
    frozen = {
        "IMAGE_SUFFIXES", "NO_AUGMENTATION", "AugmentPolicy", "Batch", "Catalog", "ClassScore", "CocoReport",
        "ConfusionMatrix", "Curves", "EpochBatches", "EvalLoader", "EvalPipeline", "Finding", "Layout", "Sample",
        "Stats", "Targets", "Task", "TrainLoader", "TrainPipeline", "available_cpus", "available_splits",
        "check", "collate",
        "confusion_matrix", "default_workers", "epoch_order", "eval_loader", "image_size", "open_catalog", "policy_for",
        "read_image", "score_coco", "stats", "synthetic", "train_loader",
        "Conversion", "Downloaded", "UnpackLimits", "convert", "download_coco", "download_manifest", "fetch", "unpack",
    }  # fmt: skip
    assert frozen <= set(lucid_data.__all__)
