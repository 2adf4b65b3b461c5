"""Colour jitter against the standard library's colour model."""

import colorsys

import pytest
import torch

from lucid_data.transforms.color import ColorParams, jitter_color


def noise(height, width, seed=0):
    generator = torch.Generator().manual_seed(seed)
    return torch.randint(0, 256, (3, height, width), dtype=torch.uint8, generator=generator)


def by_colorsys(image, params):
    out = torch.empty(image.shape, dtype=torch.float64).flatten(1)
    for i, (r, g, b) in enumerate((image.flatten(1).T.double() / 255).tolist()):
        h, s, v = colorsys.rgb_to_hsv(r, g, b)
        changed = ((h + params.hue) % 1, min(1, s * (1 + params.saturation)), min(1, v * (1 + params.value)))
        out[:, i] = torch.tensor(colorsys.hsv_to_rgb(*changed), dtype=torch.float64) * 255
    return out.view(image.shape)


@pytest.mark.parametrize(
    "params",
    [
        ColorParams(0.01, 0.5, -0.2),
        ColorParams(-0.015, -0.7, 0.4),
        ColorParams(0.5, 1.0, 1.0),
        ColorParams(-0.5, -1.0, -1.0),
        ColorParams(0.0, 0.0, 0.3),
    ],
)
def test_colours_equal_colorsys_rounded(params):
    image = noise(40, 40)
    image[:, :8] = image[:1, :8]  # grey
    image[1, 8:16] = image[0, 8:16]  # ties
    image[:, 16] = 0
    image[:, 17] = 255
    assert (jitter_color(image, params).double() - by_colorsys(image, params)).abs().max() <= 0.5 + 1e-3


def test_colour_strips_do_not_show(monkeypatch):
    image = noise(33, 50)
    whole = jitter_color(image, ColorParams(0.01, 0.3, 0.2))
    monkeypatch.setattr("lucid_data.transforms.color._STRIP", 97)
    assert torch.equal(jitter_color(image, ColorParams(0.01, 0.3, 0.2)), whole)


def test_no_colour_change_returns_the_same_pixels():
    image = noise(5, 5)
    assert jitter_color(image, ColorParams()) is image
