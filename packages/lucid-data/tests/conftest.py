import json
import os
from collections.abc import Callable
from pathlib import Path

import pytest
import torch
from PIL import Image

torch.set_num_threads(1)


def _shared() -> Path | None:
    stated = os.environ.get("LUCID_SHARED")
    places = [Path(stated)] if stated else [Path(__file__).resolve().parents[4] / "shared"]
    return next((p / "data" for p in places if (p / "data").is_dir()), None)


@pytest.fixture(scope="session")
def shared_data() -> Path:
    """The folder of real data sets; tests that need it are skipped without."""
    found = _shared()
    if found is None:
        pytest.skip("no shared data beside the repository (set LUCID_SHARED)")
    return found


@pytest.fixture
def picture() -> Callable[..., Path]:
    """Write a picture of (height, width) and return its path."""

    def write(
        path: Path, height: int = 40, width: int = 100, colour: tuple[int, int, int] = (10, 20, 30)
    ) -> Path:
        path.parent.mkdir(parents=True, exist_ok=True)
        Image.new("RGB", (width, height), colour).save(path)
        return path

    return write


@pytest.fixture
def coco_tree(tmp_path: Path, picture: Callable[..., Path]) -> Callable[..., Path]:
    """Write a COCO tree of one split from annotations; images 7 and 3 are 40 high and 100 wide."""

    def write(
        annotations: list[dict], *, categories: list[dict] | None = None, split: str = "train", **image
    ) -> Path:
        for number in (7, 3):
            picture(tmp_path / split / f"{number}.png")
        document = {
            "images": [
                {"id": i, "file_name": f"{i}.png", "height": 40, "width": 100} | image for i in (7, 3)
            ],
            "annotations": annotations,
            "categories": categories or [{"id": 90, "name": "late"}, {"id": 5, "name": "early"}],
        }
        path = tmp_path / "annotations" / f"instances_{split}.json"
        path.parent.mkdir(exist_ok=True)
        path.write_text(json.dumps(document))
        return tmp_path

    return write


@pytest.fixture
def yolo_tree(tmp_path: Path, picture: Callable[..., Path]) -> Callable[..., Path]:
    """Write a YOLO tree of one 40 x 100 picture with the given label text (None: no file) and dataset keys."""

    def write(text: str | None, *, keys: str = "names: [a, b]") -> Path:
        picture(tmp_path / "images" / "train" / "p.png")
        (tmp_path / "data.yaml").write_text(f"train: images/train\n{keys}\n")
        if text is not None:
            labels = tmp_path / "labels" / "train" / "p.txt"
            labels.parent.mkdir(parents=True, exist_ok=True)
            labels.write_text(text)
        return tmp_path

    return write


@pytest.fixture
def voc_tree(tmp_path: Path, picture: Callable[..., Path]) -> Callable[..., Path]:
    """Write a Pascal VOC tree of one 40 x 100 picture whose <annotation> holds the given XML."""

    def write(inner: str, *, size: str = "<size><width>100</width><height>40</height></size>") -> Path:
        picture(tmp_path / "JPEGImages" / "p.png")
        for path, text in (
            (tmp_path / "Annotations" / "p.xml", f"<annotation>{size}{inner}</annotation>"),
            (tmp_path / "ImageSets" / "Main" / "train.txt", "p\n"),
        ):
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_text(text)
        return tmp_path

    return write


@pytest.fixture(scope="session")
def scenes(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A COCO tree of drawn scenes: 24 for training, 5 held out, 96 px."""
    from lucid_data import synthetic

    folder = tmp_path_factory.mktemp("scenes")
    return synthetic.write_coco(folder, splits={"train": 24, "val": 5}, size=96, seed=3)
