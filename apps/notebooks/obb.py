# ---
# jupyter:
#   kernelspec:
#     display_name: Python 3
#     language: python
#     name: python3
# ---

# %% [markdown]
# # Oriented boxes: pictures from above
#
# A box has a centre, two sides and an angle. Large pictures are cut into tiles for training, and predictions on tiles
# are put together again.

# %%
import os

import torch

from lucid_data import (
    TileOptions,
    TrainPipeline,
    merge_tiles,
    open_catalog,
    policy_for,
    read_tile_manifest,
    score_rotated,
    synthetic,
    tile,
)
from lucid_geometry import aligned_rotated_box_iou, probiou, rboxes_to_polygons
from lucid_models import Predictor
from lucid_train import evaluate, fit, load_config
from lucid_viz import RenderOptions, batch_sheet, comparison_sheet, plot_curves

# %matplotlib inline

FAST = bool(os.environ.get("LUCID_NOTEBOOK_FAST"))
SIZE = 64 if FAST else 128

# %% [markdown]
# ## What an oriented box is
#
# (cx, cy, w, h, theta) with the long side first, radians, y down. Half a turn gives the same box, and overlap is exact.

# %%
box = torch.tensor([[30.0, 20.0, 24.0, 8.0, 0.5]])
turned = torch.tensor([[30.0, 20.0, 24.0, 8.0, 0.6]])
print(rboxes_to_polygons(box)[0])
print("overlap", aligned_rotated_box_iou(box, turned).item(), "ProbIoU", probiou(box, turned).item())

# %% [markdown]
# ## Tiles
#
# `tile` cuts a DOTA or COCO set. An object of which too little shows is refitted to its visible part and flagged.

# %%
splits = {"train": 8, "val": 4} if FAST else {"train": 240, "val": 48}
whole = synthetic.write_dota("obb-scenes", splits=splits, size=2 * SIZE, seed=0)
tile(whole, "obb-tiles", options=TileOptions(patch=SIZE, overlap=SIZE // 4))
train, val = open_catalog("obb-tiles", "train", "obb"), open_catalog("obb-tiles", "val", "obb")
print(len(train), "tiles to train on,", len(val), "to validate on")

pipeline = TrainPipeline(train, SIZE, policy_for("n", "obb"), seed=0, mosaic_epochs=1)
samples = [pipeline(0, index) for index in range(4)]
batch_sheet([s.image for s in samples], [s.targets for s in samples], train.class_names, task="obb")

# %% [markdown]
# ## Training and curves

# %%
settings = {
    "model.task": "obb",
    "data.path": "obb-tiles",
    "data.image_size": SIZE,
    "data.workers": 0,
    "data.batch": 16,
    "run.epochs": 1 if FAST else 16,
    "run.output": "obb-run",
}
result = fit(load_config("demo", settings))
plot_curves(result.run)

# %%
report = evaluate(
    result.last_checkpoint,
    "obb-tiles",
    split="val",
    path="e2e",
    device="cpu",
    workers=0,
    limit=8 if FAST else 0,
)
numbers = report["report"]["e2e"]
print({name: round(value, 3) for name, value in numbers.items() if name.endswith(("map", "map_50"))})

# %%
predictor = Predictor(result.last_checkpoint, confidence=0.05 if FAST else 0.25)
images, labels, _ = zip(*(val.sample(index) for index in range(3)), strict=True)
comparison_sheet(images, predictor(list(images)), labels, RenderOptions(confidence=predictor.confidence))

# %% [markdown]
# ## From tiles back to whole pictures
#
# Rotated suppression joins what neighbouring tiles found twice; then the whole pictures are scored.

# %%
manifest = read_tile_manifest("obb-tiles/annotations/instances_val.json")
on_tiles = []
for index in range(len(val)):
    (one,) = predictor([val.sample(index)[0]])
    on_tiles.append((one.rboxes, one.scores, one.labels))
merged = {image.source: image for image in merge_tiles(on_tiles, manifest.windows, manifest.sources)}
pictures = open_catalog(whole, "val", "obb")
found, truth = [], []
for index in range(len(pictures)):
    image = merged[pictures.file_names[index]]
    found.append((image.boxes, image.scores, image.labels))
    truth.append(pictures.targets(index))
print("whole pictures: AP", score_rotated(found, truth, pictures.class_names)["map"])
