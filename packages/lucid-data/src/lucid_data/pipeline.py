"""Samples: one picture composed, moved and coloured for training, or letterboxed for evaluation.

A training sample is a pure function of (seed, epoch, index). Its draws, in order: mosaic or not, the three partners,
the mosaic centre, the affine, mixup or not and all of the above again for its second picture, its weight, copy-paste
or not and all of the above again for its source, what is pasted, the colour gains, the flips. Mosaic partners are
neighbours in the epoch's order, so that decoded pictures are met again while they are still at hand; what is at hand
never changes a sample.
"""

from __future__ import annotations

from collections import OrderedDict
from dataclasses import dataclass
from typing import Any

import numpy.typing as npt
from torch import Tensor

from lucid_data.catalog import Catalog
from lucid_data.composition import Composition, Picture
from lucid_data.images import image_size
from lucid_data.masks import grid_masks
from lucid_data.picture_cache import PictureCache
from lucid_data.policy import AugmentPolicy
from lucid_data.randomness import Stream, epoch_order
from lucid_data.targets import Targets
from lucid_data.tasks import TASK_NEEDS
from lucid_data.transforms.affine import sample_affine
from lucid_data.transforms.color import jitter_color, picture_kernel, sample_color
from lucid_data.transforms.copy_paste import copy_paste, paste_candidates, sample_copy_paste
from lucid_data.transforms.flip import flip_image, flip_targets
from lucid_data.transforms.letterbox import (
    fit_long_side,
    interleaved,
    letterbox_image,
    letterbox_targets,
)
from lucid_data.transforms.mixup import mixup_image, mixup_targets
from lucid_data.transforms.mosaic import mosaic_places, sample_mosaic, single_place
from lucid_data.transforms.moving import KeepRule
from lucid_geometry import Letterbox

# S must be a multiple of the coarsest stride of the network
STRIDE = 32
_AT_HAND_BYTES = 256 << 20
# a set whose pictures take no more than this, fitted to S, draws mosaic partners from all of itself
_WHOLE_SET_BYTES = 256 << 20
_POOL = 16


@dataclass(frozen=True, eq=False)
class Sample:
    """One picture ready for collation.

    Attributes:
        image: (3, S, S) uint8 RGB; with ``color`` its channels may lie side by side in memory.
        targets: labels in pixels of the S x S canvas.
        index: the catalogue index it was made for.
        size: (H, W) of the original picture.
        masks: (N, S / 4, S / 4) bool for segment, else None.
        color: hue, saturation and value gains still to be applied, None when there are none.
    """

    image: Tensor
    targets: Targets
    index: int
    size: tuple[int, int]
    masks: Tensor | None = None
    color: tuple[float, float, float] | None = None


class TrainPipeline:
    """Makes training samples: ``pipeline(epoch, index) -> Sample``.

    Args:
        catalog: the split to draw from.
        image_size: S, a positive multiple of 32.
        policy: how much augmentation.
        seed: of every draw.
        mosaic_epochs: mosaic, mixup and copy-paste stop at this epoch (0-based); None never stops them.
        cache: pictures of this catalogue by ``cache_pictures``; samples are the same with it.
        device_color: leave colour to ``jitter_batch``: the gains are drawn as ever and travel with the sample.
        fused_color: colour in one compiled pass, which needs the extra ``numba``; samples are the same with it.

    Raises ValueError for a cache of another canvas or length and for an image size that is not a positive multiple
    of 32, ImportError for ``fused_color`` without Numba, unless colour is left to the device.

    >>> from lucid_data import open_catalog, policy_for
    >>> sample = TrainPipeline(open_catalog("scenes"), 64, policy_for("n"), seed=0)(0, 3)
    >>> sample.image.shape, sample.image.dtype
    (torch.Size([3, 64, 64]), torch.uint8)
    """

    def __init__(
        self,
        catalog: Catalog,
        image_size: int,
        policy: AugmentPolicy,
        seed: int,
        mosaic_epochs: int | None = None,
        *,
        cache: PictureCache | None = None,
        device_color: bool = False,
        fused_color: bool = False,
    ) -> None:
        check_image_size(image_size)
        if fused_color and not device_color:
            picture_kernel()  # compiled here, before there are workers
        if cache is not None and (
            len(cache.slots) != len(catalog) or cache.image_size not in (None, image_size)
        ):
            raise ValueError(
                f"the cache holds {len(cache.slots)} pictures for canvas {cache.image_size}, "
                f"not {len(catalog)} for {image_size}; make one of this catalogue and size"
            )
        self.catalog = catalog
        self.cache = cache
        self.device_color = device_color
        self.fused_color = fused_color
        self.image_size = image_size
        self.policy = policy
        self.seed = seed
        self.mosaic_epochs = mosaic_epochs
        self._rule = KeepRule(policy.min_size, policy.min_visibility, policy.max_aspect)
        self._at_hand: OrderedDict[int, Picture] = OrderedDict()
        self._order: tuple[int, npt.NDArray[Any], npt.NDArray[Any]] | None = None

    def __len__(self) -> int:
        return len(self.catalog)

    def __getstate__(self) -> dict[str, Any]:
        return self.__dict__ | {"_at_hand": OrderedDict(), "_order": None}

    @property
    def pool(self) -> int:
        """How many neighbours in the epoch's order mosaic partners are drawn among."""
        chosen = self.policy.mosaic_pool
        if chosen is None:
            whole = 3 * self.image_size**2 * len(self.catalog) <= _WHOLE_SET_BYTES
            chosen = len(self.catalog) if whole else _POOL
        return min(chosen, len(self.catalog))

    def order(self, epoch: int) -> npt.NDArray[Any]:
        """Return the indices in the order in which ``epoch`` visits them."""
        return self._ordered(epoch)[0]

    def __call__(self, epoch: int, index: int) -> Sample:
        """Return the sample of ``index`` in ``epoch``."""
        stream, policy, side = Stream.of(self.seed, epoch, index), self.policy, self.image_size
        composing = self.mosaic_epochs is None or epoch < self.mosaic_epochs
        composed = self._composed(stream, epoch, index, composing)
        image, targets = None, composed.labels(self._rule)
        if stream.unit() < policy.mixup and composing:
            partner = self._neighbours(stream, epoch, index, 1)[0]
            other = self._composed(stream, epoch, partner, composing)
            image = mixup_image(composed.draw(), other.draw(), stream.beta(policy.mixup_shape))
            targets = mixup_targets(targets, other.labels(self._rule))
        if policy.copy_paste and stream.unit() < policy.copy_paste and composing:
            image = composed.draw() if image is None else image
            image, targets = self._pasted(stream, epoch, index, image, targets)
        color = sample_color(stream, policy)
        across = bool(policy.flip_horizontal) and stream.unit() < policy.flip_horizontal
        down = bool(policy.flip_vertical) and stream.unit() < policy.flip_vertical
        if image is None:
            image = composed.draw(across=across, down=down)
        else:
            image = flip_image(image, across=across, down=down)
        if not self.device_color:
            image = jitter_color(image, color, fused=self.fused_color)
        pairs = self.catalog.keypoint_flip_pairs
        targets = flip_targets(targets, (side, side), across=across, down=down, pairs=pairs)
        masks = grid_masks(targets, side) if TASK_NEEDS[self.catalog.task].masks else None
        gains = (color.hue, color.saturation, color.value) if self.device_color else None
        return Sample(image, targets, index, self._picture(index).size, masks, gains)

    def _pasted(
        self, stream: Stream, epoch: int, index: int, image: Tensor, targets: Targets
    ) -> tuple[Tensor, Targets]:
        if self.catalog.task == "obb":
            return image, targets
        if self.policy.copy_paste_source == "self":
            size = (self.image_size, self.image_size)
            pairs = self.catalog.keypoint_flip_pairs
            other = flip_image(image, across=True)
            source = flip_targets(targets, size, across=True, pairs=pairs)
        else:
            partner = self._neighbours(stream, epoch, index, 1)[0]
            composed = self._composed(stream, epoch, partner, composing=True)
            other, source = composed.draw(), composed.labels(self._rule)
        chosen = sample_copy_paste(stream, paste_candidates(source, self.image_size))
        return copy_paste(image, targets, other, source, chosen)

    def _composed(self, stream: Stream, epoch: int, index: int, composing: bool) -> Composition:
        side = self.image_size
        if stream.unit() < self.policy.mosaic and composing:
            indices = [index, *self._neighbours(stream, epoch, index, 3)]
            pictures = [self._picture(i) for i in indices]
            places = mosaic_places([p.fitted for p in pictures], side, sample_mosaic(stream, side))
            canvas = 2 * side
        else:
            pictures = [self._picture(index)]
            places = [single_place(pictures[0].fitted, side)]
            canvas = side
        params = sample_affine(stream, self.policy)
        return Composition(pictures, places, params, canvas, side, planar=not self.device_color)

    def _picture(self, index: int) -> Picture:
        held = self._at_hand.get(index)
        if held is not None:
            self._at_hand.move_to_end(index)
            return held
        picture = self._loaded(index)
        self._at_hand[index] = picture
        most = min(self.pool + 16, max(8, _AT_HAND_BYTES // (3 * self.image_size**2)))
        while len(self._at_hand) > most:
            self._at_hand.popitem(last=False)
        return picture

    def _loaded(self, index: int) -> Picture:
        if self.cache is None or index not in self.cache:
            image, targets, _ = self.catalog.sample(index)
            size = (image.shape[1], image.shape[2])
        else:
            image, size = self.cache.view(index), self.cache.original_size(index)
            targets = self.catalog.records.targets(index, size, self.catalog.min_side)
            if self.cache.image_size is not None:
                return self._fitted(image, targets, size)
        return self._fitted(interleaved(fit_long_side(image, self.image_size))[0], targets, size)

    def _fitted(self, image: Tensor, targets: Targets, size: tuple[int, int]) -> Picture:
        return Picture(image, targets, size, Letterbox(*size, self.image_size, self.image_size).ratio)

    def _neighbours(self, stream: Stream, epoch: int, index: int, count: int) -> list[int]:
        """Return ``count`` other indices of the pool that ``index`` falls in, distinct where there are enough."""
        order, position = self._ordered(epoch)
        n = len(order)
        pool = self.pool
        start = min(int(position[index]) // pool * pool, n - pool)
        others = [int(i) for i in order[start : start + pool] if i != index]
        if len(others) < count:
            others = others or [index]
            return [others[stream.integer(len(others))] for _ in range(count)]
        return [others.pop(stream.integer(len(others))) for _ in range(count)]

    def _ordered(self, epoch: int) -> tuple[npt.NDArray[Any], npt.NDArray[Any]]:
        if self._order is None or self._order[0] != epoch:
            order = epoch_order(len(self.catalog), self.seed, epoch)
            self._order = (epoch, order, order.argsort(kind="stable"))
        return self._order[1], self._order[2]


class EvalPipeline:
    """Makes evaluation samples: ``pipeline(index) -> Sample``, a letterbox and nothing else.

    Labels are in canvas pixels, unclipped; the grey border and the single antialiased resize are the predictor's.
    With ``rect`` the canvas is the smallest multiple of 32 that holds the resized picture, for fewer grey pixels.
    Raises ValueError for an image size that is not a positive multiple of 32.

    >>> from lucid_data import open_catalog
    >>> EvalPipeline(open_catalog("scenes"), 96)(0).image.shape
    torch.Size([3, 96, 96])
    """

    def __init__(self, catalog: Catalog, image_size: int, *, rect: bool = False) -> None:
        check_image_size(image_size)
        self.catalog = catalog
        self.image_size = image_size
        self.rect = rect

    def __len__(self) -> int:
        return len(self.catalog)

    def canvas(self, index: int) -> tuple[int, int]:
        """Return height and width of the canvas of picture ``index``; with ``rect`` its header is read."""
        if not self.rect:
            return self.image_size, self.image_size
        try:
            # not the stated size: one that is wrong would shrink the picture into a canvas of another shape
            height, width = image_size(self.catalog.image_path(index), self.catalog.exif)
        except OSError:
            height, width = self.catalog.sizes[index].tolist()
        box = Letterbox(height, width, self.image_size, self.image_size)
        return -(-box.new_height // STRIDE) * STRIDE, -(-box.new_width // STRIDE) * STRIDE

    def __call__(self, index: int) -> Sample:
        """Return the letterboxed picture ``index``."""
        image, targets, used = self.catalog.sample(index)
        height, width = image.shape[1:]
        box = Letterbox(height, width, *self.canvas(index))
        moved = letterbox_targets(targets, box)
        masks = (
            grid_masks(moved, box.canvas_height, box.canvas_width)
            if TASK_NEEDS[self.catalog.task].masks
            else None
        )
        return Sample(letterbox_image(image, box), moved, used, (height, width), masks)


def check_image_size(image_size: int) -> None:
    """Raise ValueError unless ``image_size`` is a positive multiple of 32."""
    if image_size < STRIDE or image_size % STRIDE:
        raise ValueError(f"image_size must be a positive multiple of {STRIDE}, got {image_size!r}")
