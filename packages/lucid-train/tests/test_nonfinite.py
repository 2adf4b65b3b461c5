"""A step whose loss is not finite is left out where that is asked for: nothing of it stays, and it is counted."""

import csv
import sys

import pytest
import torch
from lightning.pytorch.callbacks import Callback

from lucid_train import DetectionLitModule, fingerprint, fit
from lucid_train.callbacks import EmaCallback

FIT = sys.modules["lucid_train.fit"]  # the package exports a function of that name


class States(Callback):
    """Keeps a digest of everything a step may change, at the start and after every batch."""

    def __init__(self):
        self.digests = []

    def on_train_start(self, trainer, module):
        self.on_train_batch_end(trainer, module)

    def on_train_batch_end(self, trainer, module, *_):
        (average,) = (one.average for one in trainer.callbacks if isinstance(one, EmaCallback))
        (schedule,) = (config.scheduler.last_epoch for config in trainer.lr_scheduler_configs)
        momentum = trainer.optimizers[0].state_dict()["state"]
        learned = [module.detector.state_dict(), momentum, average.state_dict(), schedule]
        self.digests.append(fingerprint(learned))


@pytest.fixture
def spoilt_fit(small_config, monkeypatch):
    """Return a function that trains three batches of two images, some with an infinite activation."""

    def run(name, bad, **overrides):
        seen, states = [], States()
        honest, build = DetectionLitModule._forward, FIT.build_trainer

        def forward(self, batch, stage):
            if stage == "train":
                seen.append(len(batch.images))
                if len(seen) - 1 in bad:
                    running = next(self.detector.buffers()).data
                    output, result, grid = honest(self, batch, stage)
                    running.fill_(float("inf"))
                    return output, result._replace(total=result.total * float("nan")), grid
            return honest(self, batch, stage)

        def trainer(config, callbacks, loggers=None):
            # the average has seen the step when the states are taken, and the table has not
            return build(config, [*callbacks[:-1], states, callbacks[-1]], loggers)

        monkeypatch.setattr(DetectionLitModule, "_forward", forward)
        monkeypatch.setattr(FIT, "build_trainer", trainer)
        small = {"data.train_split": "val", "data.image_size": 32, "data.batch": 2, "augment.mosaic": 0.0}
        settings = {"run.epochs": 1, "optimizer.skip_nonfinite": 1}
        try:
            return fit(small_config(name, **small | settings | overrides)), states.digests
        finally:
            monkeypatch.undo()

    return run


def test_nothing_of_a_step_that_is_left_out_stays_and_the_next_one_learns(spoilt_fit, caplog):
    with caplog.at_level("WARNING", "lucid"):
        result, (_, first, bad, last) = spoilt_fit("skipped", {1})
    assert first == bad != last
    assert result.metrics["skipped"] == 1
    (row,) = csv.DictReader((result.run / "metrics.csv").open())
    assert (row["skipped"], row["step"]) == ("1", "3")
    assert torch.isfinite(torch.tensor(result.metrics["train/loss"]))
    assert "the step is left out (number 1 in a row, 1 in all); the batch: " in caplog.text


def test_one_bad_batch_leaves_out_all_batches_of_its_step(spoilt_fit):
    result, (start, _, bad, last) = spoilt_fit("summed", {0}, **{"optimizer.accumulate": 2})
    assert start == bad != last
    header = torch.load(result.last_checkpoint, weights_only=True)
    assert header["lr_schedulers"][0]["last_epoch"] == 1
    assert result.metrics["skipped"] == 1


def test_more_in_a_row_than_asked_for_end_the_run(spoilt_fit):
    with pytest.raises(ValueError, match=r"step 2: the loss is nan.*; the batch: .*\.png"):
        spoilt_fit("ended", {0, 1})


def test_steps_between_them_that_are_finite_start_the_count_again(spoilt_fit):
    assert spoilt_fit("apart", {0, 2})[0].metrics["skipped"] == 2
