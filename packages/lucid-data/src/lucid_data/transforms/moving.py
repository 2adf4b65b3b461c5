"""Labels under an affine map, clipped to a window, and which of them are still worth keeping.

A sample has a few dozen boxes, and a call on a small tensor costs more than its arithmetic: boxes are moved, cut and
judged through NumPy views of the same memory. They are float32 on the CPU without gradients, as in ``Targets``.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt
import torch
from torch import Tensor

from lucid_data.targets import Outline, Targets, derived
from lucid_data.transforms.quads import clip_rboxes_to
from lucid_data.transforms.rings import clip_outlines, outline_boxes
from lucid_geometry import Affine, rboxes_to_boxes


@dataclass(frozen=True)
class KeepRule:
    """When an instance is still worth learning from; lengths in output pixels."""

    min_size: float = 2.0
    min_visibility: float = 0.1
    max_aspect: float = 100.0

    def mask(self, before: Tensor, after: Tensor) -> Tensor:
        """Return (N,) bool from the extents (N, 2), width and height, before and after clipping.

        Kept: both sides at least ``min_size``, at least ``min_visibility`` of the area left (an area of zero
        counts as invisible), and an aspect ratio of at most ``max_aspect``.

        >>> KeepRule().mask(torch.tensor([[10.0, 10.0]]), torch.tensor([[10.0, 1.0]]))
        tensor([False])
        """
        width, height = after.numpy().T
        before_width, before_height = before.numpy().T
        before_area = before_width * before_height
        short, long = np.minimum(width, height), np.maximum(width, height)
        keep = (short >= self.min_size) & (before_area > 0)
        keep &= width * height >= self.min_visibility * before_area
        keep &= long <= self.max_aspect * short
        return torch.from_numpy(keep)


def extents(boxes: Tensor) -> Tensor:
    """Return (N, 2) widths and heights of boxes (N, 4)."""
    corners = boxes.numpy()
    return torch.from_numpy(corners[:, 2:] - corners[:, :2])


def move_targets(targets: Targets, affine: Affine) -> Targets:
    """Return ``targets`` with every modality mapped by ``affine``; nothing is clipped or dropped.

    Boxes become the envelope of their mapped corners, under a turn that of the mapped outline or rotated box, which is
    tighter; areas scale with the determinant.
    """
    if not len(targets) and not targets.crowd.shape[0]:
        return targets
    (a, b, _), (c, d, _) = affine.matrix[:2].tolist()
    boxes = move_boxes(targets.boxes, affine)
    polygons, rboxes = targets.polygons, targets.rboxes
    turned = b != 0 or c != 0
    if polygons:
        polygons = _move_polygons(polygons, affine)
        boxes = outline_boxes(polygons, boxes) if turned else boxes
    if rboxes.shape[0]:
        rboxes = affine.rboxes(rboxes)
        boxes = rboxes_to_boxes(rboxes) if turned else boxes
    return derived(
        targets,
        boxes=boxes,
        polygons=polygons,
        rboxes=rboxes,
        keypoints=_move_keypoints(targets.keypoints, affine),
        crowd=move_boxes(targets.crowd, affine),
        area=targets.area * abs(a * d - b * c),
    )


def move_upright(items: Sequence[Targets], maps: Sequence[tuple[float, float, float]]) -> Targets:
    """Return all ``items``, each mapped by its (scale, left, top): x' = scale x + left, y' = scale y + top.

    What ``move_targets`` gives one by one and ``Targets.concat`` joins. Where there are only boxes, which is most
    of the time, four pictures are moved by as many calls as one.
    """
    if any(t.polygons or len(t.rboxes) or len(t.keypoints) for t in items):
        rows = ([[s, 0.0, left], [0.0, s, top]] for s, left, top in maps)
        return Targets.concat(
            [move_targets(t, Affine.from_rows(two)) for t, two in zip(items, rows, strict=True)]
        )
    joined = Targets.concat(items)
    each = np.array([(s, left, top, left, top) for s, left, top in maps])
    moved: dict[str, object] = {}
    if len(joined.crowd):
        moved["crowd"] = _scaled(joined.crowd, each.repeat([len(t.crowd) for t in items], 0))
    if len(joined):
        each = each.repeat([len(t) for t in items], 0)
        scales = each[:, 0]
        moved["boxes"] = _scaled(joined.boxes, each)
        moved["area"] = torch.from_numpy(joined.area.numpy() * (scales * scales).astype(np.float32))
    return derived(joined, **moved)


def _scaled(boxes: Tensor, each: npt.NDArray[np.float64]) -> Tensor:
    """Return boxes (N, 4) moved by row of ``each`` (N, 5): scale, then left, top, left, top."""
    return torch.from_numpy((boxes.numpy() * each[:, :1] + each[:, 1:]).astype(np.float32))


def move_boxes(boxes: Tensor, affine: Affine) -> Tensor:
    """Return (N, 4) float32 envelopes of the mapped boxes (N, 4)."""
    if not boxes.shape[0]:
        return boxes
    (a, b, tx), (c, d, ty) = affine.matrix[:2].tolist()
    if b != 0 or c != 0:
        return affine.boxes(boxes)
    # corners stay corners, though a mirror makes the left one the right one
    moved = boxes.numpy() * np.array((a, d, a, d)) + np.array((tx, ty, tx, ty))
    if a < 0 or d < 0:
        moved = moved[:, [2 * (a < 0), 1 + 2 * (d < 0), 2 * (a >= 0), 1 + 2 * (d >= 0)]]
    return torch.from_numpy(moved.astype(np.float32, order="C"))


def clip_boxes_to(boxes: Tensor, window: Tensor) -> Tensor:
    """Return boxes (N, 4) cut to ``window`` (4,) or (N, 4); one wholly outside collapses onto its border."""
    edges = window.numpy()
    corners = boxes.numpy().reshape(-1, 2, 2)
    cut = np.minimum(np.maximum(corners, edges[..., None, :2]), edges[..., None, 2:])
    return torch.from_numpy(cut.reshape(boxes.shape))


def clip_targets(targets: Targets, window: Tensor, rule: KeepRule, before: Tensor | None = None) -> Targets:
    """Return ``targets`` cut to ``window``, (4,) or one per instance (N, 4), without those ``rule`` gives up.

    ``before`` (N, 2) states the extents to compare with when the boxes were cut once already. A keypoint
    outside the window gets v = 0 and keeps its place: there is no pixel to learn it from. Outlines are cut, and
    rotated boxes refitted at their angle; boxes then bound what is left of them. Crowd regions are carried as they
    are.
    """
    if not len(targets):
        return targets
    whole = extents(targets.boxes) if before is None else before
    cut = cut_targets(targets, window)
    keep = rule.mask(whole, extents(cut.boxes))
    if targets.keypoints.shape[0]:
        cut = derived(cut, keypoints=hide_outside(targets.keypoints, window))
    return cut.filter(keep)


def cut_targets(targets: Targets, window: Tensor) -> Targets:
    """Return ``targets`` with boxes, outlines and rotated boxes cut to ``window`` (4,) or (N, 4), none dropped."""
    fields: dict[str, object] = {}
    if targets.rboxes.shape[0]:
        fields["rboxes"], fields["boxes"] = clip_rboxes_to(targets.rboxes, window)
        return derived(targets, **fields)
    boxes = clip_boxes_to(targets.boxes, window)
    if targets.polygons:
        polygons = clip_outlines(targets.polygons, window)
        boxes = outline_boxes(polygons, boxes)
        some = torch.tensor([bool(rings) for rings in polygons])
        gone = targets.mask_ok & ~some
        # an outline that is cut away takes its instance with it
        boxes = torch.where(gone[:, None], boxes[:, [0, 1, 0, 1]], boxes)
        fields |= {"polygons": polygons, "mask_ok": targets.mask_ok & some}
    return derived(targets, boxes=boxes, **fields)


def clip_crowd(targets: Targets, window: Tensor) -> Targets:
    """Return ``targets`` with its Q crowd regions cut to ``window`` (4,) or (Q, 4), the empty ones dropped."""
    if not targets.crowd.shape[0]:
        return targets
    crowd = clip_boxes_to(targets.crowd, window)
    return derived(targets, crowd=crowd[(extents(crowd) > 0).all(1)])


def hide_outside(keypoints: Tensor, window: Tensor) -> Tensor:
    """Return keypoints (N, K, 3) with v = 0 wherever the point is outside ``window`` (4,) or (N, 4)."""
    point, v = keypoints[..., :2], keypoints[..., 2]
    inside = (point >= window[..., None, :2]) & (point < window[..., None, 2:])
    return torch.cat((point, torch.where(inside.all(-1), v, 0.0)[..., None]), -1)


def _move_keypoints(keypoints: Tensor, affine: Affine) -> Tensor:
    if not keypoints.shape[0]:
        return keypoints
    moved = torch.cat((affine.points(keypoints[..., :2]), keypoints[..., 2:]), -1)
    # unlabelled points stay where the source put them, at (0, 0)
    return torch.where(keypoints[..., 2:] > 0, moved, keypoints)


def _move_polygons(polygons: tuple[Outline, ...], affine: Affine) -> tuple[Outline, ...]:
    rings = [ring for outline in polygons for ring in outline]
    if not rings:
        return polygons
    moved = iter(torch.split(affine.points(torch.cat(rings)), [len(ring) for ring in rings]))
    return tuple(tuple(next(moved) for _ in outline) for outline in polygons)
