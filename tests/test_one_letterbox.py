"""Scoring and prediction see the same pixels: the evaluation sample of a photo is the predictor's own input."""

import pytest
import torch

from lucid_data import EvalPipeline, open_catalog, synthetic
from lucid_geometry import Letterbox
from lucid_models import letterbox_image


@pytest.mark.parametrize(("size", "side"), [(64, 64), (50, 96), (120, 64), (33, 128)])
def test_an_evaluation_sample_is_the_predictors_input(tmp_path, size, side):
    synthetic.write_coco(tmp_path, splits={"val": 3}, size=size, seed=size)
    catalog = open_catalog(tmp_path, "val")
    pipeline = EvalPipeline(catalog, side)
    for index in range(len(catalog)):
        image = catalog.image(index)
        canvas = letterbox_image(image, Letterbox(*image.shape[1:], side, side))
        assert torch.equal(pipeline(index).image, canvas)


@pytest.mark.parametrize("shape", [(40, 90), (91, 37), (5, 200), (200, 5), (1, 1)])
def test_pictures_that_are_not_square_agree_too(tmp_path, shape):
    from PIL import Image

    generator = torch.Generator().manual_seed(shape[0])
    pixels = torch.randint(0, 256, (*shape, 3), generator=generator, dtype=torch.uint8)
    synthetic.write_coco(tmp_path, splits={"val": 1}, size=32, seed=0)
    (name,) = (tmp_path / "val").iterdir()
    Image.fromarray(pixels.numpy()).save(name)
    catalog = open_catalog(tmp_path, "val")
    canvas = letterbox_image(pixels.permute(2, 0, 1).contiguous(), Letterbox(*shape, 64, 64))
    assert torch.equal(EvalPipeline(catalog, 64)(0).image, canvas)
