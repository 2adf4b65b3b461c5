"""The pictures of a run: curves, training batches with their labels, predictions beside labels."""

from pathlib import Path

from lucid_data import TrainPipeline, epoch_order
from lucid_models import Predictor
from lucid_train import DetectionDataModule, stored_config
from lucid_viz import RenderOptions, batch_sheet, comparison_sheet, plot_curves, save_figure

BATCHES = 2
COMPARED = 6


def draw_run(run: Path) -> None:
    """Draw everything under ``plots`` of a finished run.

    Samples are a function of seed, epoch and image: the batches drawn are the very ones that were trained on.
    """
    config = stored_config(run)
    data = DetectionDataModule(config)
    plots = run / "plots"
    close = config.augment.close_mosaic or 0
    save_figure(
        plot_curves(run, mark_epoch=config.run.epochs - close if close else None), plots / "curves.png"
    )
    pipeline = data.train_pipeline()
    for number in range(BATCHES):
        draw_training_batch(
            pipeline, number, min(config.data.batch, 16), plots / f"train_batch_{number + 1}.png"
        )
    predictor = Predictor(run / "checkpoints" / "last.ckpt", confidence=0.25)
    draw_validation(data, predictor, plots / "val_predictions.png")


def draw_training_batch(pipeline: TrainPipeline, number: int, batch: int, path: Path) -> None:
    """Draw one batch of the first epoch with its labels; nothing when the set has fewer batches."""
    order = epoch_order(len(pipeline), pipeline.seed, 0)[number * batch : (number + 1) * batch]
    samples = [pipeline(0, int(index)) for index in order]
    if samples:
        images, targets = [sample.image for sample in samples], [sample.targets for sample in samples]
        save_figure(batch_sheet(images, targets, pipeline.catalog.class_names), path)


def draw_validation(data: DetectionDataModule, predictor: Predictor, path: Path) -> None:
    """Draw labels beside predictions for images spread over the validation split."""
    catalog = data.val_catalog
    count = min(COMPARED, len(catalog))
    samples = [catalog.sample(position * len(catalog) // count) for position in range(count)]
    images, targets = [image for image, _, _ in samples], [labels for _, labels, _ in samples]
    save_figure(comparison_sheet(images, predictor(images), targets, RenderOptions(confidence=0.25)), path)
