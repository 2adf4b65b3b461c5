# ---
# jupyter:
#   kernelspec:
#     display_name: Python 3
#     language: python
#     name: python3
# ---

# %% [markdown]
# # Keypoints: people, animals, anything with named points
#
# Every object has the same list of points. Their number and names come from the data.

# %%
import os

from lucid_data import TrainPipeline, open_catalog, policy_for, synthetic
from lucid_models import Predictor
from lucid_train import evaluate, fit, load_config
from lucid_viz import RenderOptions, batch_sheet, comparison_sheet, plot_curves, skeleton_of

# %matplotlib inline

FAST = bool(os.environ.get("LUCID_NOTEBOOK_FAST"))
SIZE = 64 if FAST else 128

# %% [markdown]
# ## Points, sides and bones
#
# A mirrored person's left hand is on the other side: pairs are read from names with left and right in them, or
# from the data set's own list. Bones are only for drawing. COCO's person is known; a COCO file may state others; here
# we say what to join.

# %%
splits = {"train": 16, "val": 8} if FAST else {"train": 480, "val": 96}
scenes = synthetic.write_coco("pose-scenes", splits=splits, size=SIZE, seed=0, task="pose")
train, val = open_catalog(scenes, "train", "pose"), open_catalog(scenes, "val", "pose")
print("points", train.keypoint_names)
print("pairs", train.keypoint_flip_pairs)
bones = skeleton_of(train) or tuple((i, i + 1) for i in range(len(train.keypoint_names) - 1))

pipeline = TrainPipeline(train, SIZE, policy_for("n", "pose"), seed=0, mosaic_epochs=1)
samples = [pipeline(0, index) for index in range(4)]
batch_sheet(
    [s.image for s in samples], [s.targets for s in samples], train.class_names, task="pose", skeleton=bones
)

# %% [markdown]
# ## Training and curves

# %%
settings = {
    "model.task": "pose",
    "data.path": scenes,
    "data.image_size": SIZE,
    "data.workers": 0,
    "data.batch": 8 if FAST else 16,
    "run.epochs": 1 if FAST else 24,
    "run.output": "pose-run",
}
result = fit(load_config("demo", settings))
plot_curves(result.run)

# %% [markdown]
# ## OKS AP
#
# Object keypoint similarity stands in for overlap: how far each point is off, relative to the object's size.

# %%
report = evaluate(result.last_checkpoint, scenes, split="val", path="e2e", device="cpu", workers=0)
numbers = report["report"]["e2e"]
print({name: round(value, 3) for name, value in numbers.items() if name.endswith(("map", "map_50"))})

# %% [markdown]
# ## Look
#
# A full point is thought visible, a hollow one hidden; a bone joins two visible points.

# %%
predictor = Predictor(result.last_checkpoint, confidence=0.05 if FAST else 0.25)
images, labels, _ = zip(*(val.sample(index) for index in range(3)), strict=True)
found = predictor(list(images))
comparison_sheet(images, found, labels, RenderOptions(confidence=predictor.confidence, skeleton=bones))

# %%
if len(found[0]):
    for name, (x, y, visible) in zip(train.keypoint_names, found[0].keypoints[0].tolist(), strict=True):
        print(f"{name:12s} x {x:6.1f}  y {y:6.1f}  visible {visible:.2f}")
