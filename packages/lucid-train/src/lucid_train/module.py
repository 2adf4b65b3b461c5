"""The Lightning module: one detector, its objective, its optimizer and its validation."""

import logging
from collections.abc import Sequence
from typing import Any, Self

import lightning
import torch
from torch import Tensor
from torch.optim.lr_scheduler import LambdaLR

from lucid_capture import GradientNorm
from lucid_data import Batch, Catalog
from lucid_models import (
    HeadOutput,
    LossSettings,
    PaddedTargets,
    build_detector,
    build_loss,
    make_points,
)
from lucid_optim import MuSGD, param_groups, warmup_linear_decay
from lucid_train.config import LossConfig, OptimizerConfig
from lucid_train.multiscale import resized, step_size
from lucid_train.nonfinite import StepGuard
from lucid_train.processes import world_size
from lucid_train.replay import CompiledStep, NetworkRoute, ReplayedStep
from lucid_train.results import ResultCollector
from lucid_train.tasks import task_row

log = logging.getLogger("lucid")


class DetectionLitModule(lightning.LightningModule):
    """Trains one detector.

    Args:
        task: a task of :data:`lucid_train.tasks.TASK_TABLE`.
        size: ``n``, ``s``, ``m``, ``l`` or ``x``.
        num_classes: classes of the head.
        names: class names in label order, stored in checkpoints; ``None`` names them by index.
        num_keypoints: points per object, for ``pose``.
        optimizer: MuSGD settings; ``lr`` and ``warmup_epochs`` must be chosen (not ``None``).
        loss: gains and branch weights.

    Raises:
        ValueError: unknown task or size, or a name count that differs from ``num_classes``.

    The weight between the branches is the buffer-free attribute ``alpha`` (set by the progressive callback). What
    replays parts of a step is lent by the replay callback for one fit: ``network_route``, ``whole_step``,
    ``clipper`` and ``optimizer_captures`` (keywords of MuSGD); copies of the module have none of it.
    """

    def __init__(
        self,
        task: str = "detect",
        size: str = "n",
        num_classes: int = 80,
        names: Sequence[str] | None = None,
        *,
        num_keypoints: int | None = None,
        optimizer: OptimizerConfig | None = None,
        loss: LossConfig | None = None,
    ) -> None:
        super().__init__()
        self.row = task_row(task)
        self.optimizer_settings = optimizer or OptimizerConfig(lr=0.01, warmup_epochs=3.0)
        self.loss_settings = loss or LossConfig()
        self.detector = build_detector(
            task, size, num_classes=num_classes, names=names, num_keypoints=num_keypoints
        )
        self.criterion = build_loss(
            task,
            num_classes,
            num_keypoints=self.detector.num_keypoints,
            settings=loss_settings(self.loss_settings),
            fused_assignment=self.loss_settings.fused_assignment,
        )
        self.alpha: float | Tensor = 0.5
        self.image_size: int | None = None
        self.validation_catalog: Catalog | None = None
        self.validation_shard: Sequence[int] | None = None
        self.both_heads = False
        self._collector: ResultCollector | None = None
        self._suppressed: ResultCollector | None = None
        self.frozen: tuple[str, ...] = ()
        self.multi_scale, self.multi_scale_seed = 0.0, 0
        self.step_guard: StepGuard | None = None
        self.network_route: NetworkRoute | None = None
        self.whole_step: CompiledStep | ReplayedStep | None = None
        self.clipper: GradientNorm | None = None
        self.optimizer_captures: dict[str, Any] = {}

    def __getstate__(self) -> dict[str, Any]:
        lent: dict[str, Any] = dict.fromkeys(("step_guard", "network_route", "whole_step", "clipper"))
        lent["optimizer_captures"] = {}
        return {**super().__getstate__(), **lent}

    def train(self, mode: bool = True) -> Self:
        """Set the training mode; frozen stages keep their statistics."""
        super().train(mode)
        for stage in self.frozen:
            getattr(self.detector, stage).eval()
        return self

    def freeze_stages(self, stages: Sequence[str]) -> None:
        """Keep ``backbone``, ``neck`` or ``head`` as they are: no gradients, no statistics."""
        self.frozen = tuple(stages)
        for stage in stages:
            getattr(self.detector, stage).requires_grad_(False)
        self.train(self.training)

    def setup(self, stage: str) -> None:
        """Lay convolution weights out channels-last where that is faster (CPU and CUDA)."""
        device = self.trainer.strategy.root_device if self._trainer is not None else self.device
        if device.type in ("cpu", "cuda"):
            self.to(memory_format=torch.channels_last)

    def prepare_images(self, images: Tensor) -> Tensor:
        """Return the network input of uint8 images (B, 3, H, W): the parameters' dtype, [0, 1], channels-last."""
        dtype = next(self.detector.parameters()).dtype
        return images.to(dtype=dtype, memory_format=torch.channels_last).div_(255)

    def training_step(self, batch: Batch, batch_index: int) -> Tensor:
        """Return the objective of one batch (0-d, float32) and log its parts."""
        if self.multi_scale:
            seed, epoch = self.multi_scale_seed, self.trainer.current_epoch
            size = step_size(batch.images.shape[-1], self.multi_scale, seed, epoch, batch_index)
            batch = resized(batch, size)
        return self._shared_step(batch, "train")

    def validation_step(self, batch: Batch, batch_index: int) -> None:
        """Log the objective of one batch and collect its end-to-end detections."""
        self._shared_step(batch, "val")

    def objective(self, batch: Batch) -> Any:
        """Return the losses of one batch as they are, nothing logged."""
        return self._forward(batch, "train")[1]

    def _forward(self, batch: Batch, stage: str) -> tuple[HeadOutput | None, Any, tuple[Tensor, Tensor]]:
        """Return the network's output (None from a whole step), its losses, and points with strides."""
        images = self.prepare_images(batch.images)
        height, width = images.shape[-2:]
        points, strides = make_points(height, width, self.detector.strides, device=images.device)
        targets = padded_targets(batch)
        if stage == "train" and self.whole_step is not None:
            losses = self.whole_step(images, points, strides, targets, self.alpha)
            return None, losses, (points, strides)
        if stage == "train" and self.network_route is not None:
            output = self.network_route(images, batch.labels.shape[1])
        else:
            output = self.detector(images)
        return output, self.criterion(output, points, strides, targets, self.alpha), (points, strides)

    def _shared_step(self, batch: Batch, stage: str) -> Tensor:
        output, result, grid = self._forward(batch, stage)
        parts = {f"{stage}/{name}": value.detach() for name, value in result.terms().items()}
        self.latest_parts = parts
        if stage == "val" or self.step_guard is None or self.step_guard.admits(result.total):
            self.log_parts(parts, len(batch.images))
        if stage == "val" and self._collector is not None and output is not None:
            names = self.detector.names
            self._collector.add_output("e2e", output, *grid, batch, names)
            if self._suppressed is not None:
                self._suppressed.add_output("nms", output, *grid, batch, names)
        total: Tensor = result.total
        return total

    def log_parts(self, parts: dict[str, Tensor], batch_size: int) -> None:
        """Hand the parts of one step to Lightning's loggers and callbacks."""
        self.log_dict(
            parts,
            on_step=False,
            on_epoch=True,
            batch_size=batch_size,
            sync_dist=world_size() > 1,
        )

    def on_validation_epoch_start(self) -> None:
        """Start collecting results when there is ground truth to score them against."""
        if self.validation_catalog is not None:
            self._collector = ResultCollector(self.validation_catalog, self.validation_shard)
            if self.both_heads:
                self._suppressed = ResultCollector(self.validation_catalog, self.validation_shard)

    def on_validation_epoch_end(self) -> None:
        """Score what was collected, over all processes, and log the headline metrics."""
        if self._collector is None:
            return
        scores = self.scores_of(self._collector, "val/")
        if self._suppressed is not None:
            scores |= self.scores_of(self._suppressed, "val/nms_")
        self._collector = self._suppressed = None
        self.log_dict(scores, rank_zero_only=False)

    def scores_of(self, collector: ResultCollector, prefix: str) -> dict[str, float]:
        """Return the headline numbers of what was collected, over all processes, by column."""
        report = collector.score()
        return {column.replace("val/", prefix): report[name] for column, name in self.row.logged.items()}

    def score_columns(self) -> tuple[str, ...]:
        """Return the columns of a validation's scores."""
        prefixes = ("val/", "val/nms_") if self.both_heads else ("val/",)
        return tuple(column.replace("val/", prefix) for prefix in prefixes for column in self.row.logged)

    def configure_gradient_clipping(
        self,
        optimizer: torch.optim.Optimizer,
        gradient_clip_val: float | None = None,
        gradient_clip_algorithm: str | None = None,
    ) -> None:
        """Clip by the total norm, replayed where a clipper was lent; limits that disagree are Lightning's to refuse."""
        if self.step_guard is not None and self.step_guard.left_out:
            return
        if (
            self.clipper is None
            or gradient_clip_val is None
            or gradient_clip_val != self.trainer.gradient_clip_val
        ):
            self.clip_gradients(optimizer, gradient_clip_val, gradient_clip_algorithm)
            return
        self.clipper.clip_(self.trainer.precision_plugin.main_params(optimizer), gradient_clip_val)

    def lr_scheduler_step(self, scheduler: Any, metric: Any | None) -> None:
        """Advance the schedule, unless the step was left out."""
        if self.step_guard is None or not self.step_guard.left_out:
            super().lr_scheduler_step(scheduler, metric)

    def configure_optimizers(self) -> Any:
        """Return MuSGD over all parameters, with warm-up and linear decay per optimizer step."""
        settings = self.optimizer_settings
        if settings.lr is None or settings.warmup_epochs is None:
            raise ValueError("optimizer.lr and optimizer.warmup_epochs must be chosen before training")
        optimizer = MuSGD(
            param_groups(self),
            lr=settings.lr,
            momentum=settings.momentum,
            weight_decay=settings.weight_decay,
            w_muon=settings.w_muon,
            w_sgd=settings.w_sgd,
            ns_steps=settings.ns_steps,
            **self.optimizer_captures,
        )
        epochs = self.trainer.max_epochs if self._trainer is not None else None
        constant = settings.final_factor >= 1 and settings.warmup_epochs <= 0
        if constant or epochs is None or epochs <= 0:
            return optimizer
        total = total_steps(self.trainer, epochs)
        warmup = round(total * settings.warmup_epochs / epochs)
        if warmup > total - 1:
            log.warning("optimizer.warmup_epochs = %s covers the run: no decay", settings.warmup_epochs)
        schedule = StepSchedule(total, warmup, settings.final_factor)
        return {
            "optimizer": optimizer,
            "lr_scheduler": {"scheduler": LambdaLR(optimizer, schedule), "interval": "step"},
        }


def padded_targets(batch: Batch) -> PaddedTargets:
    """Return the ground truth of a batch as losses take it."""
    return PaddedTargets(
        batch.boxes,
        batch.labels,
        batch.valid,
        rboxes=batch.rboxes,
        keypoints=batch.keypoints,
        masks=batch.masks,
        mask_ok=batch.mask_ok,
    )


def loss_settings(config: LossConfig) -> LossSettings:
    """Return the losses' own settings."""
    return LossSettings(
        box=config.box_gain,
        cls=LossSettings().cls if config.class_gain is None else config.class_gain,
        l1=config.l1_gain,
        mask=config.mask_gain,
        semantic=config.semantic_gain,
        angle=config.angle_gain,
        rle=config.rle_gain,
        oks=config.oks_gain,
        visibility=config.visibility_gain,
        paired_density=config.paired_density,
    )


def total_steps(trainer: lightning.Trainer, epochs: int) -> int:
    """Return the optimizer steps of a whole fit, at least one.

    The data module's own loader is asked: the trainer's estimate would create the loader's iterator before a resumed
    position is restored, and so lose the position.
    """
    data = getattr(trainer, "datamodule", None)
    if data is None:
        return max(1, int(trainer.estimated_stepping_batches))
    batches = len(data.train_dataloader())
    return max(1, -(-batches // trainer.accumulate_grad_batches) * epochs)


class StepSchedule:
    """The learning-rate factor as a function of the optimizer step; warm-up is clamped to leave one decay step."""

    def __init__(self, total: int, warmup: int, final_factor: float) -> None:
        self.total = total
        self.warmup = min(warmup, total - 1)
        self.final_factor = final_factor

    def __call__(self, step: int) -> float:
        """Return the factor of a zero-based optimizer step."""
        return warmup_linear_decay(step, self.total, self.warmup, self.final_factor)
