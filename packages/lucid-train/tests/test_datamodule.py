"""Splits, classes and pipelines follow the tree and the configuration."""

import json
import shutil

import pytest

from lucid_data import synthetic
from lucid_train import ConfigError, DetectionDataModule, load_config
from lucid_train.auto import augment_policy
from lucid_train.datamodule import choose_splits
from lucid_train.switches import check_switches


@pytest.mark.parametrize(
    ("splits", "asked", "chosen"),
    [
        (("train", "val"), {}, ("train", "val")),
        (("train", "val", "trainval", "test"), {}, ("trainval", "test")),
        (("train", "val", "trainval", "test"), {"data.train_split": "train"}, ("train", "val")),
        (("train", "val", "trainval", "test"), {"data.val_split": "val"}, ("trainval", "val")),
        (("train", "test"), {}, ("train", "test")),
    ],
)
def test_splits_follow_the_tree_unless_named(tmp_path, splits, asked, chosen):
    lists = tmp_path / "ImageSets" / "Main"
    for folder in (lists, tmp_path / "JPEGImages", tmp_path / "Annotations"):
        folder.mkdir(parents=True)
    for name in splits:
        (lists / f"{name}.txt").write_text("")
    assert choose_splits(load_config("detect", {"data.path": tmp_path} | asked)) == chosen


def test_a_tree_without_a_split_to_validate_on_says_what_to_name(tmp_path):
    synthetic.write_coco(tmp_path, splits={"train": 2}, size=32, seed=0)
    with pytest.raises(
        ValueError, match=r"no validation split among train; name one with --set data\.val_split"
    ):
        choose_splits(load_config("detect", {"data.path": tmp_path}))


def edited(scenes, folder, edit):
    shutil.copytree(scenes, folder)
    file = folder / "annotations" / "instances_val.json"
    document = json.loads(file.read_text())
    edit(document)
    file.write_text(json.dumps(document))
    return load_config("detect", {"data.path": folder})


def test_validation_may_lack_a_class(scenes, tmp_path):
    def drop_first(document):
        gone = document["categories"].pop(0)["id"]
        document["annotations"] = [one for one in document["annotations"] if one["category_id"] != gone]

    data = DetectionDataModule(edited(scenes, tmp_path / "set", drop_first))
    assert data.val_catalog.class_names == data.train_catalog.class_names


def test_validation_may_not_bring_a_class_of_its_own(scenes, tmp_path):
    config = edited(
        scenes, tmp_path / "set", lambda document: document["categories"].append({"id": 77, "name": "owl"})
    )
    with pytest.raises(ValueError, match="owl"):
        DetectionDataModule(config)


def test_mosaic_closes_where_the_configuration_says(small_config):
    assert DetectionDataModule(small_config()).train_pipeline().mosaic_epochs == 2
    assert (
        DetectionDataModule(small_config(**{"augment.close_mosaic": 0})).train_pipeline().mosaic_epochs
        is None
    )


def test_augmentation_settings_replace_the_policys(small_config):
    policy = augment_policy(small_config(**{"augment.scale": 0.25, "augment.hue": 0.0}))
    assert (policy.scale, policy.hue, policy.flip_horizontal) == (0.25, 0.0, 0.5)


@pytest.mark.parametrize("task", ["detect", "segment", "pose", "obb"])
def test_the_overfit_recipe_changes_no_image(small_config, task):
    policy = augment_policy(load_config("overfit", {"model.task": task}))
    moving = (
        "mosaic",
        "mixup",
        "copy_paste",
        "scale",
        "translate",
        "degrees",
        "shear",
        "hue",
        "saturation",
        "value",
    )
    assert {
        name: getattr(policy, name) for name in (*moving, "flip_horizontal", "flip_vertical")
    } == dict.fromkeys((*moving, "flip_horizontal", "flip_vertical"), 0.0)


def test_copy_paste_is_for_tasks_that_read_outlines():
    assert augment_policy(load_config("segment", {"augment.copy_paste": 0.3})).copy_paste == 0.3
    check_switches(load_config("segment", {"augment.copy_paste": 0.3}))
    with pytest.raises(
        ConfigError, match=r"augment\.copy_paste pastes objects.*the task is detect; leave it out"
    ):
        check_switches(load_config("detect", {"augment.copy_paste": 0.3}))


def test_a_folder_without_labels_leads_to_the_doctor(small_config, tmp_path):
    with pytest.raises(ValueError, match="no labelled data set of a known format; `lucid data check` says"):
        DetectionDataModule(small_config(**{"data.path": str(tmp_path)}))
