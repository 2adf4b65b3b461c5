"""One picture or a mosaic of four on a canvas, moved: where each lands is settled first, pixels are drawn last.

By then it is known whether the sample is mirrored, so each part is mirrored on its way and no whole picture is.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property

import numpy as np
import numpy.typing as npt
import torch
from torch import Tensor

from lucid_data.targets import Targets
from lucid_data.transforms.affine import (
    AffineParams,
    UprightPlace,
    canvas_to_output,
    compose,
    draw_upright,
    upright_place,
    warp,
)
from lucid_data.transforms.flip import flip_image
from lucid_data.transforms.letterbox import GREY
from lucid_data.transforms.mosaic import Place
from lucid_data.transforms.moving import (
    KeepRule,
    clip_crowd,
    clip_targets,
    cut_targets,
    extents,
    move_targets,
    move_upright,
)
from lucid_geometry import Affine


@dataclass(frozen=True, eq=False)
class Picture:
    """A picture after everything that needs no random number.

    Attributes:
        image: (3, h, w) uint8, decoded and resized by ``ratio`` to a long side of S, channels side by side in memory.
        targets: its labels, in pixels of the picture as decoded.
        size: (H, W) as decoded.
        ratio: fitted pixels per decoded pixel.
    """

    image: Tensor
    targets: Targets
    size: tuple[int, int]
    ratio: float

    @property
    def fitted(self) -> tuple[int, int]:
        """(h, w) of ``image``."""
        return self.image.shape[1], self.image.shape[2]


@dataclass(frozen=True, eq=False)
class Composition:
    """Pictures at their places on a square of ``canvas`` pixels a side, taken to one of ``side`` by ``params``.

    What is drawn has its channels plane by plane, as colour wants them, or with ``planar`` false and neither rotation
    nor shear, side by side, as they lie in the pictures.
    """

    pictures: list[Picture]
    places: list[Place]
    params: AffineParams
    canvas: int
    side: int
    planar: bool = True

    def draw(self, *, across: bool = False, down: bool = False) -> Tensor:
        """Return the (3, side, side) uint8 picture, mirrored left to right (``across``), top to bottom (``down``)."""
        if not self.params.upright:
            canvas = compose([p.image for p in self.pictures], self.places, self.canvas)
            drawn = warp(canvas, canvas_to_output(self.params, self.canvas, self.side), self.side)
            return flip_image(drawn, across=across, down=down)
        shape = (3, self.side, self.side) if self.planar else (self.side, self.side, 3)
        image = torch.full(shape, GREY, dtype=torch.uint8)
        image = image if self.planar else image.permute(2, 0, 1)
        for picture, spot in self._seen:
            draw_upright(image, picture.image, spot, across=across, down=down)
        return image

    def labels(self, rule: KeepRule) -> Targets:
        """Return the labels of all pictures in pixels of the output, not mirrored, cut to what shows of each."""
        return self._upright(rule) if self.params.upright else self._warped(rule)

    @cached_property
    def _seen(self) -> list[tuple[Picture, UprightPlace]]:
        spots = (
            (picture, upright_place(place, picture.fitted, self.params, self.canvas, self.side))
            for picture, place in zip(self.pictures, self.places, strict=True)
        )
        return [(picture, spot) for picture, spot in spots if spot.visible]

    def _upright(self, rule: KeepRule) -> Targets:
        labels = [picture.targets for picture, _ in self._seen]
        moved = move_upright(labels, [spot.map(picture.ratio) for picture, spot in self._seen])
        windows = np.array([spot.window for _, spot in self._seen], np.float32).reshape(-1, 4)
        if len(moved.crowd):
            moved = clip_crowd(moved, _each(windows, [len(t.crowd) for t in labels]))
        return clip_targets(moved, _each(windows, [len(t) for t in labels]), rule)

    def _warped(self, rule: KeepRule) -> Targets:
        affine = canvas_to_output(self.params, self.canvas, self.side)
        output = torch.tensor((0.0, 0.0, self.side, self.side))
        parts, befores = [], [torch.zeros(0, 2)]
        for picture, place in zip(self.pictures, self.places, strict=True):
            ratio = picture.ratio
            laid = move_targets(
                picture.targets,
                Affine.from_rows([[ratio, 0.0, float(place.left)], [0.0, ratio, float(place.top)]]),
            )
            befores.append(extents(move_targets(laid, affine).boxes))
            window = torch.tensor(place.window, dtype=torch.float32)
            cut = clip_crowd(cut_targets(laid, window), window)
            parts.append(clip_crowd(move_targets(cut, affine), output))
        return clip_targets(Targets.concat(parts), output, rule, torch.cat(befores))


def _each(windows: npt.NDArray[np.float32], counts: list[int]) -> Tensor:
    """Return row i of ``windows`` (P, 4) ``counts[i]`` times."""
    return torch.from_numpy(windows.repeat(counts, 0))
