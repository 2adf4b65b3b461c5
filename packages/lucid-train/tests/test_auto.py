import math

import pytest

from lucid_data import policy_for
from lucid_train import DetectionLitModule, FitConfig, RunLength, load_config, resolve


def test_nothing_is_left_open():
    chosen = resolve(FitConfig(), RunLength(images=118287, steps_per_epoch=7393, epochs=100))
    assert None not in (chosen.optimizer.lr, chosen.optimizer.warmup_epochs, chosen.ema.decay, chosen.ema.tau)
    assert chosen.data.image_size is not None
    assert None not in chosen.augment.model_dump().values()


@pytest.mark.parametrize(
    ("size", "task"), [("n", "detect"), ("x", "detect"), ("s", "segment"), ("m", "pose")]
)
def test_the_augmentation_of_a_stored_run_is_that_of_its_size_and_task(size, task):
    given = {"model.size": size, "model.task": task, "augment.hue": 0.5}
    chosen = resolve(
        load_config("detect", given), RunLength(images=100, steps_per_epoch=7, epochs=10)
    ).augment
    policy = policy_for(size, task)
    assert (chosen.mosaic, chosen.mixup, chosen.copy_paste) == (
        policy.mosaic,
        policy.mixup,
        policy.copy_paste,
    )
    assert (chosen.scale, chosen.translate, chosen.hue) == (policy.scale, policy.translate, 0.5)


def test_given_values_are_kept():
    given = {
        "optimizer.lr": "0.5",
        "optimizer.warmup_epochs": "0",
        "ema.tau": "7",
        "augment.close_mosaic": "0",
    }
    chosen = resolve(load_config("detect", given), RunLength(100, 7, 10))
    assert (chosen.optimizer.lr, chosen.optimizer.warmup_epochs) == (0.5, 0)
    assert (chosen.ema.tau, chosen.augment.close_mosaic) == (7, 0)


@pytest.mark.parametrize("epochs", [1, 2, 5, 30, 300])
def test_the_average_forms_within_the_run_and_warm_up_leaves_room_to_train(epochs):
    length = RunLength(images=292, steps_per_epoch=19, epochs=epochs)
    chosen = resolve(FitConfig(), length)
    decay = 1 - math.exp(-length.steps / chosen.ema.tau)
    assert 1 / (1 - decay) <= max(2, 0.11 * length.steps)
    assert chosen.optimizer.warmup_epochs <= max(epochs / 4, 0.25)
    assert chosen.augment.close_mosaic <= epochs / 2


def test_resolving_twice_changes_nothing():
    length = RunLength(images=292, steps_per_epoch=19, epochs=30)
    once = resolve(FitConfig(), length)
    assert resolve(once, length) == once


@pytest.mark.parametrize(
    ("steps", "init", "gain"),
    [
        (400, None, 2.0),
        (2000, None, 2.0),
        (6325, None, 1.0),
        (20000, None, 0.5),
        (10**6, None, 0.5),
        (400, "w.ckpt", 0.5),
    ],
)
def test_short_runs_from_scratch_weigh_classification_more(steps, init, gain):
    config = FitConfig().updated(model={"init": init})
    chosen = resolve(config, RunLength(images=1, steps_per_epoch=1, epochs=steps))
    assert chosen.loss.class_gain == pytest.approx(gain, abs=1e-3)


def test_a_module_of_its_own_has_the_losses_own_gain():
    assert DetectionLitModule(num_classes=1).criterion.detection.class_gain == 0.5
