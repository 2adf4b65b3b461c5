"""The pictures of a run: curves, training batches with their labels, predictions beside labels."""

from collections.abc import Callable
from functools import cache, partial
from pathlib import Path

from lucid_data import epoch_order
from lucid_models import Predictor
from lucid_train import DetectionDataModule, FitConfig, augment_policy, stored_config
from lucid_viz import RenderOptions, batch_sheet, comparison_sheet, plot_curves, save_figure, skeleton_of

BATCHES = 2
COMPARED = 6


def draw_run(run: Path) -> list[str]:
    """Draw what ``plots`` of a finished run holds; return one line for each picture that could not be drawn.

    Samples are a function of seed, epoch and image: the batches drawn are the very ones that were trained on.
    A picture is not worth a finished run: what fails is said, and the next one is drawn.
    """

    @cache
    def data() -> DetectionDataModule:
        return DetectionDataModule(stored_config(run))

    plots = run / "plots"
    pictures: list[tuple[Path, Callable[[Path], None]]] = [
        (plots / "curves.png", partial(draw_curves, run)),
        *(
            (plots / f"train_batch_{n + 1}.png", partial(draw_training_batch, data, n))
            for n in range(BATCHES)
        ),
        (plots / "val_predictions.png", partial(draw_validation, run, data)),
    ]
    failures = []
    for path, draw in pictures:
        try:
            draw(path)
        except Exception as error:
            said = " ".join(str(error).split()) or type(error).__name__
            failures.append(f"{path} is not drawn: {said}")
    return failures


def draw_curves(run: Path, path: Path) -> None:
    """Draw the run's curves, with a mark where mosaic ends."""
    save_figure(plot_curves(run, mark_epoch=mosaic_end(stored_config(run))), path)


def mosaic_end(config: FitConfig) -> int | None:
    """Return the first epoch without mosaic, counted from 0; None where mosaic does not end within the run."""
    if not augment_policy(config).mosaic:
        return None
    end = config.run.epochs - (config.augment.close_mosaic or 0)
    return end if 0 < end < config.run.epochs else None


def draw_training_batch(data: Callable[[], DetectionDataModule], number: int, path: Path) -> None:
    """Draw one batch of the first epoch with its labels; nothing when the set has fewer batches."""
    pipeline = data().train_pipeline()
    batch = min(data().batch, 16)
    order = epoch_order(len(pipeline), pipeline.seed, 0)[number * batch : (number + 1) * batch]
    samples = [pipeline(0, int(index)) for index in order]
    if samples:
        images, targets = [sample.image for sample in samples], [sample.targets for sample in samples]
        catalog = pipeline.catalog
        sheet = batch_sheet(
            images, targets, catalog.class_names, task=catalog.task, skeleton=skeleton_of(catalog)
        )
        save_figure(sheet, path)


def draw_validation(run: Path, data: Callable[[], DetectionDataModule], path: Path) -> None:
    """Draw labels beside predictions for images spread over the validation split."""
    catalog = data().val_catalog
    predictor = Predictor(run / "checkpoints" / "last.ckpt", confidence=0.25)
    count = min(COMPARED, len(catalog))
    samples = [catalog.sample(position * len(catalog) // count) for position in range(count)]
    images, targets = [image for image, _, _ in samples], [labels for _, labels, _ in samples]
    options = RenderOptions(confidence=0.25, skeleton=skeleton_of(catalog))
    save_figure(comparison_sheet(images, predictor(images), targets, options), path)
