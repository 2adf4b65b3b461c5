"""What happens around the step: the best checkpoint, stop signals, the average, the schedule's length."""

import logging
import signal
from types import SimpleNamespace

import pytest
import torch

from lucid_train import DetectionLitModule, Interrupted
from lucid_train.callbacks import Checkpoints, EmaCallback
from lucid_train.config import OptimizerConfig
from lucid_train.module import StepSchedule, total_steps


class FakeTrainer:
    """As much of a trainer as the callbacks ask for; checkpoints are the step's number as text."""

    def __init__(self, epochs=10, batches=4):
        self.callback_metrics, self.max_epochs, self.num_training_batches = {}, epochs, batches
        self.global_step = self.current_epoch = 0

    def save_checkpoint(self, path):
        path.write_text(str(self.global_step))


def end_epoch(saver, trainer, score):
    trainer.global_step += 1
    trainer.callback_metrics = {"val/mAP": torch.tensor(score)}
    saver.on_train_epoch_end(trainer, None)
    trainer.current_epoch += 1


def test_best_is_the_epoch_with_the_highest_score_also_across_a_resume(tmp_path):
    saver, trainer = Checkpoints(tmp_path, "val/mAP"), FakeTrainer()
    for score in (0.3, 0.4):
        end_epoch(saver, trainer, score)
    resumed = Checkpoints(tmp_path, "val/mAP")
    resumed.load_state_dict(saver.state_dict())
    for score in (0.2, 0.4, 0.1):
        end_epoch(resumed, trainer, score)
    assert (resumed.best.read_text(), resumed.last.read_text()) == ("2", "5")
    end_epoch(resumed, trainer, 0.5)
    assert resumed.best.read_text() == "6"
    assert not list(tmp_path.glob("*.tmp"))


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
def test_a_stop_waits_for_the_end_of_the_optimizer_step(tmp_path, number, caplog):
    caplog.set_level(logging.INFO, logger="lucid")
    run = tmp_path / "my run"
    saver, trainer = Checkpoints(run / "checkpoints", "val/mAP"), FakeTrainer()
    saver.on_train_start(trainer, None)
    with saver.catching_signals():
        signal.raise_signal(number)
        # who pressed the keys is told that it was heard
        assert ("stopping when" in caplog.text) is (number == signal.SIGINT)
        saver.on_train_batch_end(trainer, None, None, None, 0)  # a micro-batch: no step was made
        assert not saver.last.exists()
        trainer.global_step = 1
        with pytest.raises(Interrupted, match=rf"--resume last --output '{run}'"):
            saver.on_train_batch_end(trainer, None, None, None, 1)
    assert saver.last.read_text() == "1"


def test_saves_inside_an_epoch_follow_optimizer_steps(tmp_path):
    saver, trainer = Checkpoints(tmp_path, "val/mAP", every_steps=2), FakeTrainer(batches=9)
    saver.on_train_start(trainer, None)
    written = []
    for batch, step in enumerate((0, 1, 1, 2, 2, 3)):
        trainer.global_step = step
        saver.last.unlink(missing_ok=True)
        saver.on_train_batch_end(trainer, None, None, None, batch)
        written.append(saver.last.exists())
    assert written == [False, False, False, True, False, False]


def test_signals_are_given_back_whatever_happens(tmp_path):
    before = signal.getsignal(signal.SIGTERM), signal.getsignal(signal.SIGINT)
    saver = Checkpoints(tmp_path, "val/mAP")

    def work():
        with saver.catching_signals():
            assert signal.getsignal(signal.SIGTERM) != before[0]
            raise RuntimeError

    with pytest.raises(RuntimeError):
        work()
    assert (signal.getsignal(signal.SIGTERM), signal.getsignal(signal.SIGINT)) == before


def test_a_second_interrupt_does_not_wait(tmp_path):
    saver = Checkpoints(tmp_path, "val/mAP")
    with saver.catching_signals():
        signal.raise_signal(signal.SIGINT)
        with pytest.raises(Interrupted, match="at once"):
            signal.raise_signal(signal.SIGINT)


def test_the_average_is_taken_out_again_when_validation_fails():
    module = DetectionLitModule(num_classes=1)
    ema, trainer = EmaCallback(0.5, 1.0), SimpleNamespace(global_step=0)
    ema.on_fit_start(trainer, module)
    with torch.no_grad():
        for parameter in module.detector.parameters():
            parameter.add_(1)
    trained = {name: value.clone() for name, value in module.detector.state_dict().items()}
    ema.on_validation_start(trainer, module)
    assert any(not torch.equal(trained[name], value) for name, value in module.detector.state_dict().items())
    ema.on_exception(trainer, module, RuntimeError())
    assert all(torch.equal(trained[name], value) for name, value in module.detector.state_dict().items())


def test_the_average_moves_once_per_optimizer_step():
    module = DetectionLitModule(num_classes=1)
    ema, trainer = EmaCallback(0.5, 1.0), SimpleNamespace(global_step=3, precision_plugin=None)
    ema.on_fit_start(trainer, module)
    ema.on_train_start(trainer, module)
    for step in (3, 4, 4, 5):
        trainer.global_step = step
        ema.on_train_batch_end(trainer, module)
    assert ema.average.num_updates == 2


def test_the_average_takes_in_no_step_that_a_scaler_skipped():
    module, scales = DetectionLitModule(num_classes=1), iter([8.0, 8.0, 4.0, 4.0, 8.0])
    scaler = SimpleNamespace(get_scale=lambda: next(scales))
    trainer = SimpleNamespace(global_step=0, precision_plugin=SimpleNamespace(scaler=scaler))
    ema = EmaCallback(0.5, 1.0)
    ema.on_fit_start(trainer, module)
    ema.on_train_start(trainer, module)
    updates = []
    for step in (1, 2, 3, 4):
        trainer.global_step = step
        ema.on_train_batch_end(trainer, module)
        updates.append(ema.average.num_updates)
    assert updates == [1, 1, 2, 3]


@pytest.mark.parametrize(
    ("batches", "accumulate", "epochs", "steps"), [(7, 1, 3, 21), (7, 2, 3, 12), (1, 4, 1, 1)]
)
def test_the_schedule_counts_optimizer_steps(batches, accumulate, epochs, steps):
    data = SimpleNamespace(train_dataloader=lambda: range(batches))
    assert total_steps(SimpleNamespace(datamodule=data, accumulate_grad_batches=accumulate), epochs) == steps


def test_warm_up_leaves_a_step_to_decay():
    schedule = StepSchedule(total=4, warmup=9, final_factor=0.1)
    assert [schedule(step) for step in range(5)] == pytest.approx([1 / 3, 2 / 3, 1, 1, 0.1])


def test_open_settings_are_refused_by_the_module():
    module = DetectionLitModule(num_classes=1, optimizer=OptimizerConfig())
    with pytest.raises(ValueError, match="must be chosen"):
        module.configure_optimizers()
