"""``lucid predict``: run a checkpoint on images."""

import glob
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Any

import typer
from torch import Tensor

from lucid_app.checks import (
    check_at_least,
    check_canvas,
    check_checkpoint,
    check_file_target,
    check_folder_target,
    choose_device,
)
from lucid_app.console import Quiet, counting, err, out, print_json
from lucid_app.options import DeviceOption
from lucid_app.predict_tiles import (
    Tiling,
    find,
    open_tiles,
    require_empty,
    require_fit,
    require_pictures,
    write_results,
)
from lucid_data import IMAGE_SUFFIXES, read_image
from lucid_models import EXPORT_FORMATS, ExportedPredictor, Predictions, Predictor
from lucid_train import ConfigError, write_json
from lucid_viz import RenderOptions, burn_predictions, enlarge, nothing_above, save_image

EXPORT_SUFFIXES = frozenset(row.suffix for row in EXPORT_FORMATS.values())


@dataclass(frozen=True)
class Drawing:
    """Where drawn images go, and how they are drawn."""

    folder: Path
    style: RenderOptions

    def write(self, image: Tensor, found: Predictions, target: Path) -> None:
        """Write an image with what was found on it, a small one enlarged."""
        save_image(burn_predictions(*enlarge(image, found), self.style), target)


def predict(
    checkpoint: Annotated[Path, typer.Argument(help="A checkpoint of lucid fit, or a file of lucid export.")],
    sources: Annotated[list[str] | None, typer.Argument(help="Images, folders or globs.")] = None,
    tiles: Annotated[
        Path | None,
        typer.Option(help="In place of images a data set of lucid data tile; one result per whole picture."),
    ] = None,
    split: Annotated[
        str | None, typer.Option(help="Split of --tiles; val, valid or test when absent.")
    ] = None,
    task1: Annotated[
        Path | None,
        typer.Option(help="With --tiles: write DOTA Task 1 files into this folder, for lucid score."),
    ] = None,
    output: Annotated[Path, typer.Option(help="Folder for predictions.json and drawn images.")] = Path(
        "predictions"
    ),
    draw: Annotated[
        bool,
        typer.Option("--draw", help="Write each image with its predictions drawn, a small one enlarged."),
    ] = False,
    captions: Annotated[
        bool, typer.Option(help="Write class and score beside what is drawn; crowds are clearer without.")
    ] = True,
    conf: Annotated[float, typer.Option(help="Keep predictions scoring above this.")] = 0.25,
    max_detections: Annotated[int, typer.Option(help="At most this many per image, or per tile.")] = 300,
    image_size: Annotated[int | None, typer.Option(help="Canvas; the checkpoint's when absent.")] = None,
    device: DeviceOption = "auto",
    batch: Annotated[int, typer.Option(help="Images per step.")] = 8,
    as_json: Annotated[bool, typer.Option("--json", help="Print what predictions.json holds.")] = False,
    quiet: Quiet = False,
) -> None:
    """Find objects in images, folders and globs, or in large pictures by their tiles; EXIF tags turn photos upright.

    Examples:
        lucid predict runs/detect-n-1/checkpoints/best.ckpt photo.jpg --draw

        lucid predict best.ckpt "holiday/*.jpg" --output found --conf 0.4 --json

        lucid predict pets.onnx photos

        lucid predict best.ckpt --tiles DOTA-tiles --conf 0.01 --task1 results
    """
    if not 0 <= conf <= 1:
        raise ConfigError(f"--conf {conf}: give a number from 0 to 1")
    check_at_least("--max-detections", max_detections, 1)
    check_at_least("--batch", batch, 1)
    check_canvas(image_size)
    check_folder_target("--output", output)
    check_file_target("--output", output / "predictions.json")
    if not (draw or captions):
        raise ConfigError("--no-captions: only with --draw")
    if tiles is None:
        given = {"--split": split, "--task1": task1}
        if stray := [f"{option} {value}" for option, value in given.items() if value is not None]:
            raise ConfigError(f"{stray[0]}: only with --tiles")
        if not sources:
            raise ConfigError("nothing to look at; give images, folders or globs, or --tiles FOLDER")
    elif sources:
        raise ConfigError(f"--tiles {tiles}: takes the place of {sources[0]}; give one of the two")

    def open_model() -> Predictor | ExportedPredictor:
        return opened(checkpoint, image_size, device, conf, max_detections, batch)

    info: dict[str, Any] = {"checkpoint": str(checkpoint), "conf_threshold": conf, "decoder": "e2e"}
    silent, failures = quiet or as_json, list[str]()
    drawing = Drawing(output, RenderOptions(confidence=conf, show_labels=captions)) if draw else None
    if tiles is None:
        records = on_images(expand(sources or []), open_model, batch, drawing, silent, failures)
    else:
        tiling = open_tiles(tiles, split)
        info |= {"tiles": str(tiles), "split": tiling.tiles.split}
        records = on_tiles(tiling, checkpoint, open_model, batch, drawing, task1, silent)
    for failure in failures:
        err.print(f"error: {failure}", style="red", soft_wrap=True)
    document = {"info": info, "images": records}
    if records:
        write_json(output / "predictions.json", document)
    if as_json:
        print_json(document)
    else:
        for one in records:
            out.print(f"{one['image']}: {summary(one, conf)}", soft_wrap=True)
        if records:
            out.print(f"written {output}", soft_wrap=True)
        if task1 is not None:
            out.print(f"written {task1}", soft_wrap=True)
    if failures:
        raise typer.Exit(1)


def on_images(
    files: list[Path],
    open_model: Callable[[], Predictor | ExportedPredictor],
    batch: int,
    drawing: Drawing | None,
    silent: bool,
    failures: list[str],
) -> list[dict[str, Any]]:
    """Return the record of every image, drawn where asked for; what cannot be read goes to ``failures``."""
    pictures = {} if drawing is None else drawn_paths(files, drawing.folder)
    predictor = open_model()
    records: list[dict[str, Any]] = []
    with counting("predicting", quiet=silent) as observe:
        for paths, images in readable(files, batch, failures):
            for path, image, found in zip(paths, images, predictor(images), strict=True):
                records.append(record(path, found))
                if drawing is not None:
                    drawing.write(image, found, pictures[path])
            observe(len(records) + len(failures), len(files))
    return records


def on_tiles(
    tiling: Tiling,
    model: Path,
    open_model: Callable[[], Predictor | ExportedPredictor],
    batch: int,
    drawing: Drawing | None,
    task1: Path | None,
    silent: bool,
) -> list[dict[str, Any]]:
    """Return the record of every picture that the tiles were cut from, drawn where asked for, and write Task 1."""
    if task1 is not None:
        require_empty(task1)
    if drawing is not None:
        require_pictures(tiling)
    pictures = {} if drawing is None else drawn_paths(list(tiling.pictures()), drawing.folder)
    predictor = open_model()
    require_fit(tiling, model, predictor, task1)
    if tiling.manifest.keep_empty < 1:
        share = f"--keep-empty {tiling.manifest.keep_empty:g}"
        err.print(
            f"{tiling.folder} was cut with {share}: parts of its pictures are not looked at", style="yellow"
        )
    with counting("predicting", quiet=silent) as observe:
        found = find(tiling, predictor, batch, observe)
    if task1 is not None:
        write_results(task1, found, predictor.names)
    if drawing is not None:
        with counting("drawing", quiet=silent) as observe:
            for number, (path, target) in enumerate(pictures.items(), 1):
                image = read_image(path, exif=tiling.manifest.exif)
                drawing.write(image, found[path], target)
                observe(number, len(pictures))
    return [record(path, one) for path, one in found.items()]


def opened(
    model: Path, image_size: int | None, device: str, confidence: float, max_detections: int, batch: int
) -> Predictor | ExportedPredictor:
    """Return what predicts with a checkpoint or an exported file, which its suffix tells."""
    if model.suffix not in EXPORT_SUFFIXES:
        chosen = choose_device(device)
        check_checkpoint(model)
        return Predictor(
            model,
            image_size=image_size,
            device=chosen,
            confidence=confidence,
            max_detections=max_detections,
            batch_size=batch,
        )
    if image_size is not None:
        raise ConfigError(
            f"--image-size {image_size}: {model} was exported for one canvas; export it anew for another"
        )
    if device not in ("auto", "cpu"):
        raise ConfigError(f"--device {device}: exported files run on the CPU here; leave the option out")
    check_checkpoint(model)
    return ExportedPredictor(model, confidence=confidence, max_detections=max_detections, batch_size=batch)


def expand(sources: list[str]) -> list[Path]:
    """Return the image files that the sources name, each once, in order.

    Raises:
        ConfigError: a source that names no image.
    """
    files: dict[Path, None] = {}
    for source in sources:
        path = Path(source)
        if path.is_dir():
            found = sorted(entry for entry in path.rglob("*") if entry.suffix.lower() in IMAGE_SUFFIXES)
        elif path.is_file():
            found = [path]
        else:
            found = sorted(
                Path(match) for match in glob.glob(source, recursive=True) if Path(match).is_file()
            )
        if not found:
            raise ConfigError(f"{source}: no image there; give a file, a folder of images or a glob")
        files |= dict.fromkeys(found)
    return list(files)


def readable(files: list[Path], batch: int, failures: list[str]) -> Iterator[tuple[list[Path], list[Tensor]]]:
    """Yield batches of decoded images; a file that cannot be read is noted in ``failures`` and left out."""
    paths: list[Path] = []
    images: list[Tensor] = []
    for path in files:
        try:
            images.append(read_image(path, exif=True))
        except OSError as error:
            failures.append(str(error))
            continue
        paths.append(path)
        if len(paths) == batch:
            yield paths, images
            paths, images = [], []
    if paths:
        yield paths, images


def record(path: Path, found: Predictions) -> dict[str, Any]:
    """Return the JSON record of one image: path, size, a box, score, label and name per detection, and the best score.

    What a task finds beside its boxes stands there too, as ``Predictions.to_dict`` has it. The best score is that
    before any detection was dropped for it.
    """
    return {"image": str(path), **found.to_dict(), "highest_score": found.highest_score}


def drawn_paths(files: list[Path], output: Path) -> dict[Path, Path]:
    """Return where each file's drawing goes: its own name in ``output``, numbered where that is taken already.

    Raises:
        ConfigError: a drawing would take the place of a source; nothing has been written.
    """
    sources = {(status.st_dev, status.st_ino): path for path in files for status in [path.stat()]}
    taken: set[str] = set()
    last: dict[str, int] = {}
    places: dict[Path, Path] = {}
    for path in files:
        suffix = path.suffix.lower() if path.suffix.lower() in (".jpg", ".jpeg", ".png") else ".png"
        name = wanted = f"{path.stem}{suffix}"
        while name.casefold() in taken:  # some file systems do not tell A.jpg from a.jpg
            last[wanted.casefold()] = last.get(wanted.casefold(), 0) + 1
            name = f"{path.stem}-{last[wanted.casefold()]}{suffix}"
        taken.add(name.casefold())
        target = output / name
        if target.exists():
            status = target.stat()
            if (source := sources.get((status.st_dev, status.st_ino))) is not None:
                raise ConfigError(
                    f"--output {output}: the drawing of {path} would overwrite the source {source}; "
                    "choose another folder"
                )
        if target.is_dir():
            raise ConfigError(
                f"--output {output}: {target}, the drawing of {path}, is a folder; choose another"
            )
        places[path] = target
    return places


def summary(one: dict[str, Any], confidence: float) -> str:
    """Return how many objects of each class were found, in words, or how high the best score was."""
    counts: dict[str, int] = {}
    for detection in one["detections"]:
        counts[detection["name"]] = counts.get(detection["name"], 0) + 1
    found = ", ".join(f"{number} {name}" for name, number in sorted(counts.items()))
    return found or nothing_above(confidence, one["highest_score"])
