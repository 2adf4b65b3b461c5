# ---
# jupyter:
#   kernelspec:
#     display_name: Python 3
#     language: python
#     name: python3
# ---

# %% [markdown]
# # Masks: instance segmentation
#
# The same trunk and the same boxes as a detector, and for every object a mask at the resolution of the picture.

# %%
import os

from lucid_data import TrainPipeline, open_catalog, policy_for, synthetic
from lucid_models import Predictor
from lucid_train import evaluate, fit, load_config
from lucid_viz import RenderOptions, batch_sheet, burn_predictions, comparison_sheet, plot_curves, save_image

# %matplotlib inline

FAST = bool(os.environ.get("LUCID_NOTEBOOK_FAST"))
SIZE = 64 if FAST else 128

# %% [markdown]
# ## Outlines
#
# Objects keep all their rings, holes and separate parts included. Copy-paste, which puts outlined objects into other
# pictures, is on for this task.

# %%
splits = {"train": 16, "val": 8} if FAST else {"train": 480, "val": 96}
scenes = synthetic.write_coco("segment-scenes", splits=splits, size=SIZE, seed=0, task="segment")
train, val = open_catalog(scenes, "train", "segment"), open_catalog(scenes, "val", "segment")
pipeline = TrainPipeline(train, SIZE, policy_for("n", "segment"), seed=0, mosaic_epochs=1)
samples = [pipeline(0, index) for index in range(4)]
batch_sheet([s.image for s in samples], [s.targets for s in samples], train.class_names, task="segment")

# %% [markdown]
# ## Training and curves
#
# The task's own terms, `mask` and `semantic`, stand beside those of the boxes.

# %%
settings = {
    "model.task": "segment",
    "data.path": scenes,
    "data.image_size": SIZE,
    "data.workers": 0,
    "data.batch": 8 if FAST else 16,
    "run.epochs": 1 if FAST else 16,
    "run.output": "segment-run",
}
result = fit(load_config("demo", settings))
plot_curves(result.run)

# %% [markdown]
# ## Box AP and mask AP

# %%
report = evaluate(result.last_checkpoint, scenes, split="val", path="e2e", device="cpu", workers=0)
numbers = report["report"]["e2e"]
print({name: round(value, 3) for name, value in numbers.items() if name.endswith(("map", "map_50"))})

# %% [markdown]
# ## Masks on the original picture
#
# `Predictions.masks` is (N, H, W) bool. `to_coco` gives compressed run lengths, which any COCO tool reads.

# %%
predictor = Predictor(result.last_checkpoint, confidence=0.05 if FAST else 0.25)
images, labels, _ = zip(*(val.sample(index) for index in range(3)), strict=True)
found = predictor(list(images))
comparison_sheet(images, found, labels, RenderOptions(confidence=predictor.confidence))

# %%
for entry in found[0].to_coco(image_id=1)[:3]:
    print(entry["category_id"], round(entry["score"], 2), entry["segmentation"]["counts"][:24])

# %% [markdown]
# For a folder of pictures, burn predictions into pixels: that is much faster than a figure.

# %%
save_image(burn_predictions(images[0], found[0]), "segment-drawn.png")
