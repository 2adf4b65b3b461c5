"""``lucid bench``: measurements anyone can repeat, each against a reference in the same run, one file per command."""

from typing import ClassVar

import typer

from lucid_app.lazy import Later, LazyGroup


class _Bench(LazyGroup):
    table: ClassVar = {
        "fit": Later(
            "lucid_app.bench.fit:fit",
            "Measure two configurations of a fit in alternating pairs of fresh processes.",
        ),
        "step": Later(
            "lucid_app.bench.step:step",
            "Measure the bare training step: network, objective, clipping and MuSGD on a random batch.",
        ),
        "loader": Later(
            "lucid_app.bench.loader:loader",
            "Measure a sample of the complete training pipeline, mosaic on, in one process with one thread.",
        ),
        "predict": Later(
            "lucid_app.bench.predict:predict",
            "Measure how long a batch takes, its images in memory: bare network, predictor end to end, onnxruntime.",
        ),
        "optim": Later(
            "lucid_app.bench.optim:optim",
            "Measure one optimizer step over the matrices of a model, beside torch's optimizers.",
        ),
        "geometry": Later(
            "lucid_app.bench.geometry:geometry",
            "Measure rotated overlap, suppression and clipping beside torchvision's compiled kernel and shapely.",
        ),
        "eval": Later(
            "lucid_app.bench.evaluation:evaluation",
            "Measure COCO scoring of generated detections of 80 classes, beside pycocotools and faster-coco-eval.",
        ),
        "open": Later(
            "lucid_app.bench.opening:opening",
            "Measure how long a large COCO file takes to open and what it holds in memory, beside pycocotools.",
        ),
        "scaling": Later(
            "lucid_app.bench.scaling:scaling",
            "Measure how the cost of a step, of scoring and of opening a data set grows, at four sizes each.",
        ),
        "replay": Later(
            "lucid_app.bench.replay:replay",
            "Measure one training step eager, compiled, with its network replayed, and replayed whole, by batch.",
        ),
        "proof": Later(
            "lucid_app.bench.proof:proof", "Prove that switches change no byte of what is learned."
        ),
        "publish": Later(
            "lucid_app.bench.publish:publish",
            "Write the figures of result files into the pages that name them.",
        ),
    }


app = typer.Typer(
    cls=_Bench,
    help="Measure, and prove that nothing else changed.",
    no_args_is_help=True,
    add_completion=False,
)


@app.callback()
def _group() -> None:
    """Measure, and prove that nothing else changed."""
