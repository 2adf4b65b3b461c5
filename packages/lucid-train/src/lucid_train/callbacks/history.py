"""One row of numbers per epoch, and every step's loss: what metrics.csv and the fingerprint are made of."""

import csv
import io
import logging
import math
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import lightning
import torch
from lightning.pytorch.callbacks import Callback

from lucid_train.files import write_text
from lucid_train.module import DetectionLitModule
from lucid_train.processes import gathered, summed, world_size

log = logging.getLogger("lucid")


def batch_files(trainer: lightning.Trainer, batch: Any) -> str:
    """Return ``"; the batch: a.jpg, b.jpg"``, or nothing where the data module does not know the files.

    The files are those of every process's batch; all of them call this together.
    """
    catalog = getattr(getattr(trainer, "datamodule", None), "train_catalog", None)
    if catalog is None:
        return ""
    names = gathered([catalog.file_names[index] for index in batch.indices.tolist()])
    return "; the batch: " + ", ".join(name for some in names for name in some)


def over_processes(values: list[float], images: int) -> tuple[list[float], int]:
    """Return means over the images of every process's batch, and their number; as given for a run of one process."""
    if world_size() == 1:
        return values, images
    *sums, count = summed(
        torch.tensor([*(value * images for value in values), images], dtype=torch.float64)
    ).tolist()
    return [total / count for total in sums], int(count)


def table_columns(module: DetectionLitModule) -> tuple[str, ...]:
    """Return the columns of a module's ``metrics.csv``: they depend on its task, and on what may be left out."""
    parts = [name.partition("/")[2] for name in module.latest_parts]
    train, val = ([f"{stage}/{part}" for part in parts] for stage in ("train", "val"))
    skipped = () if module.step_guard is None else ("skipped",)
    return ("epoch", "step", "lr", "alpha", *skipped, *train, *val, *module.score_columns())


class History(Callback):
    """Accumulates step values in float64 and writes ``metrics.csv`` whole after each epoch.

    The accumulators are checkpoint state, so a run resumed in the middle of an epoch writes the same rows as one
    that was never interrupted. They are of all processes together, so each process knows of a loss that is not finite.
    """

    def __init__(self, path: Path) -> None:
        self.path = path
        self.rows: list[dict[str, float]] = []
        self.losses: list[float] = []
        self._sums: dict[str, float] = {}
        self._images = 0
        self._validation: dict[str, float] = {}

    def on_train_batch_end(
        self,
        trainer: lightning.Trainer,
        pl_module: lightning.LightningModule,
        outputs: Any,
        batch: Any,
        batch_idx: int,
    ) -> None:
        """Add one step's parts, weighted by its images; those of a batch that is left out count nowhere."""
        assert isinstance(pl_module, DetectionLitModule)
        parts = pl_module.latest_parts
        own = torch.stack([part.double() for part in parts.values()]).tolist()
        values, images = over_processes(own, len(batch.images))
        guard = pl_module.step_guard
        if not math.isfinite(values[0]) and guard is not None and not guard.exhausted:
            files = batch_files(trainer, batch)
            if trainer.is_global_zero:
                place = f"epoch {trainer.current_epoch + 1}, step {trainer.global_step}"
                log.warning(
                    "%s: the loss is %s, the step is left out (number %d in a row, %d in all)%s",
                    *(place, values[0], guard.in_a_row, guard.total, files),
                )
            return
        if not math.isfinite(values[0]):
            rate = float(trainer.optimizers[0].param_groups[0]["lr"])
            raise ValueError(
                f"epoch {trainer.current_epoch + 1}, step {trainer.global_step}: the loss is {values[0]}, and nothing "
                f"of it was saved. Resume with --skip-nonfinite 5 to leave such steps out, or start again with a lower "
                f"optimizer.lr ({rate:g}) or --precision 32"
                f"{batch_files(trainer, batch)}"
            )
        for name, value in zip(parts, values, strict=True):
            self._sums[name] = self._sums.get(name, 0.0) + value * images
        self._images += images
        self.losses.append(values[0])

    def on_validation_end(self, trainer: lightning.Trainer, pl_module: lightning.LightningModule) -> None:
        """Keep the validation numbers for the epoch's row."""
        if not trainer.sanity_checking:
            self._validation = {
                name: float(value)
                for name, value in trainer.callback_metrics.items()
                if name.startswith("val/")
            }

    def on_train_epoch_end(self, trainer: lightning.Trainer, pl_module: lightning.LightningModule) -> None:
        """Close the epoch's row and rewrite the table."""
        assert isinstance(pl_module, DetectionLitModule)
        row: dict[str, float] = {
            "epoch": trainer.current_epoch,
            "step": trainer.global_step,
            "lr": float(trainer.optimizers[0].param_groups[0]["lr"]),
            "alpha": float(pl_module.alpha),
        }
        if pl_module.step_guard is not None:
            row["skipped"] = pl_module.step_guard.total
        row |= {name: total / max(1, self._images) for name, total in self._sums.items()}
        self.rows.append(row | self._validation)
        self._sums, self._images, self._validation = {}, 0, {}
        if trainer.is_global_zero:
            write_table(self.path, table_columns(pl_module), self.rows)

    def state_dict(self) -> dict[str, Any]:
        """Return the rows, the step losses and the open accumulators."""
        return {
            "rows": [dict(row) for row in self.rows],
            "losses": torch.tensor(self.losses, dtype=torch.float64),
            "sums": dict(self._sums),
            "images": self._images,
        }

    def load_state_dict(self, state_dict: dict[str, Any]) -> None:
        """Continue a saved history."""
        self.rows = [dict(row) for row in state_dict["rows"]]
        self.losses = state_dict["losses"].tolist()
        self._sums, self._images = dict(state_dict["sums"]), state_dict["images"]


def write_table(path: Path, columns: Sequence[str], rows: list[dict[str, float]]) -> None:
    """Write the rows under the columns; a cell is empty where an epoch has no such number."""
    stream = io.StringIO()
    writer = csv.DictWriter(stream, columns, restval="", extrasaction="ignore", lineterminator="\n")
    writer.writeheader()
    writer.writerows(rows)
    write_text(path, stream.getvalue())
