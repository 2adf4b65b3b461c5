from pathlib import Path

import pytest
import torch

from lucid_data import synthetic
from lucid_train import load_config

# byte identity is a property of one thread count: this process and the ones it starts use the same
torch.set_num_threads(1)


@pytest.fixture(scope="session")
def scenes(tmp_path_factory) -> Path:
    """A small COCO tree: 22 training and 6 validation scenes of 64 pixels."""
    folder = tmp_path_factory.mktemp("scenes")
    synthetic.write_coco(folder, splits={"train": 22, "val": 6}, size=64, seed=3)
    return folder


@pytest.fixture
def small_config(scenes, tmp_path):
    """Three epochs of three steps (the last one partial) at 64 pixels, fingerprinted."""

    def build(name: str = "run", **overrides):
        settings = {
            "data.path": str(scenes),
            "data.image_size": 64,
            "data.batch": 8,
            "data.workers": 0,
            "augment.close_mosaic": 1,
            "run.epochs": 3,
            "run.device": "cpu",
            "run.fingerprint": True,
            "run.output": str(tmp_path / name),
        }
        return load_config("detect", settings | overrides)

    return build
