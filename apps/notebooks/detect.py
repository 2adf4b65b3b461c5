# ---
# jupyter:
#   kernelspec:
#     display_name: Python 3
#     language: python
#     name: python3
# ---

# %% [markdown]
# # Boxes: train, score and look
#
# A detector for drawn scenes, from nothing to predictions on pictures it has not seen. Put the folder of your own
# images in place of `scenes`: COCO, YOLO and Pascal VOC trees are told apart by looking.

# %%
import os

from lucid_data import (
    TrainPipeline,
    check,
    confusion_matrix,
    error_split,
    open_catalog,
    policy_for,
    stats,
    synthetic,
)
from lucid_models import Predictor
from lucid_train import Progress, evaluate, fit, load_config
from lucid_viz import RenderOptions, batch_sheet, comparison_sheet, plot_confusion, plot_curves, plot_stats

# %matplotlib inline

FAST = bool(
    os.environ.get("LUCID_NOTEBOOK_FAST")
)  # a few steps instead of a few minutes, to see that all works

# %% [markdown]
# ## The data
#
# `check` is the first thing to run on a new data set: it reports every problem with file, place and remedy. Then a
# look at what there is, and at training samples as the network will see them.

# %%
SIZE = 64 if FAST else 128
splits = {"train": 16, "val": 8} if FAST else {"train": 480, "val": 96}
scenes = synthetic.write_coco("detect-scenes", splits=splits, size=SIZE, seed=0)
for finding in check(scenes):
    print(finding.severity, finding.where, finding.message)
train, val = open_catalog(scenes, "train"), open_catalog(scenes, "val")
plot_stats(stats(train))

# %%
pipeline = TrainPipeline(train, SIZE, policy_for("n"), seed=0, mosaic_epochs=1)
samples = [pipeline(0, index) for index in range(4)]
batch_sheet([sample.image for sample in samples], [sample.targets for sample in samples], train.class_names)

# %% [markdown]
# ## The training
#
# One configuration, one function. An observer hears of every step and every epoch; what is not set here is chosen from
# the number of images and epochs, and `config.yaml` in the run's folder says what was chosen.


# %%
def observe(progress: Progress) -> None:
    if progress.phase == "epoch" and "val/mAP" in progress.metrics:
        print(f"epoch {progress.epoch + 1}/{progress.epochs}: AP {progress.metrics['val/mAP']:.3f}")


settings = {
    "data.path": scenes,
    "data.image_size": SIZE,
    "data.workers": 0,
    "data.batch": 8 if FAST else 16,
    "run.epochs": 1 if FAST else 16,
    "run.output": "detect-run",
}
result = fit(load_config("demo", settings), observer=observe)
plot_curves(result.run)

# %% [markdown]
# ## The score
#
# `e2e` is what the network answers by itself, without suppression of duplicates; `nms` is the other branch with it. The
# numbers are those of pycocotools.

# %%
report = evaluate(result.last_checkpoint, scenes, split="val", device="cpu", workers=0)
for path, numbers in report["report"].items():
    print(f"{path}: AP50-95 {numbers['map']:.3f}  AP50 {numbers['map_50']:.3f}")

# %% [markdown]
# ## What it finds, and what it mistakes
#
# Labels are dashed, predictions solid.

# %%
predictor = Predictor(result.last_checkpoint, confidence=0.25)
images, labels, _ = zip(*(val.sample(index) for index in range(3)), strict=True)
comparison_sheet(images, predictor(list(images)), labels, RenderOptions(confidence=0.25))

# %%
predictor = Predictor(result.last_checkpoint, confidence=0.001)
found, truth = [], []
for index in range(len(val)):
    image, targets, _ = val.sample(index)
    (one,) = predictor([image])
    found.append((one.boxes, one.scores, one.labels))
    truth.append((targets.boxes, targets.labels))
split = error_split(found, truth, val.class_names)
for kind, count in split.counts.items():
    print(f"{kind:12s} {count:4d}  mending gains {100 * split.gains[kind]:.1f} points of AP50")
plot_confusion(confusion_matrix(found, truth, val.class_names, confidence=0.25))
