"""Labels under an affine map, clipped to a window, and which of them are still worth keeping."""

from __future__ import annotations

from dataclasses import dataclass

import torch
from lucid_geometry import Affine
from torch import Tensor

from lucid_data.targets import Outline, Targets

Window = tuple[float, float, float, float]


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
        before_area = before[:, 0] * before[:, 1]
        short, long = after.amin(1), after.amax(1)
        keep = (short >= self.min_size) & (before_area > 0)
        keep &= after[:, 0] * after[:, 1] >= self.min_visibility * before_area
        return keep & (long <= self.max_aspect * short)


def extents(boxes: Tensor) -> Tensor:
    """Return (N, 2) widths and heights of boxes (N, 4)."""
    return boxes[:, 2:] - boxes[:, :2]


def move_targets(targets: Targets, affine: Affine) -> Targets:
    """Return ``targets`` with every modality mapped by ``affine``; nothing is clipped or dropped.

    Boxes become the envelope of their mapped corners; areas scale with the determinant.
    """
    if not len(targets) and not len(targets.crowd):
        return targets
    (a, b, _), (c, d, _) = affine.matrix[:2].tolist()
    return Targets(
        boxes=affine.boxes(targets.boxes),
        labels=targets.labels,
        polygons=_move_polygons(targets.polygons, affine),
        rboxes=affine.rboxes(targets.rboxes) if len(targets.rboxes) else targets.rboxes,
        difficult=targets.difficult,
        keypoints=_move_keypoints(targets.keypoints, affine),
        crowd=affine.boxes(targets.crowd) if len(targets.crowd) else targets.crowd,
        mask_ok=targets.mask_ok,
        area=targets.area * abs(a * d - b * c),
    )


def clip_boxes_to(boxes: Tensor, window: Window) -> Tensor:
    """Return boxes (N, 4) cut to ``window`` x1 y1 x2 y2; one wholly outside collapses onto its border."""
    x1, y1, x2, y2 = window
    return torch.minimum(torch.maximum(boxes, boxes.new_tensor((x1, y1, x1, y1))), boxes.new_tensor((x2, y2, x2, y2)))


def clip_targets(targets: Targets, window: Window, rule: KeepRule, before: Tensor | None = None) -> Targets:
    """Return ``targets`` cut to ``window`` (x1 y1 x2 y2), without the instances that ``rule`` gives up.

    ``before`` (N, 2) states the extents to compare with when the boxes were cut once already. A keypoint
    outside the window gets v = 0 and keeps its place: there is no pixel to learn it from. Outlines and rotated
    boxes are carried as they are.
    """
    crowd = targets.crowd
    if len(crowd):
        crowd = clip_boxes_to(crowd, window)
        crowd = crowd[(extents(crowd) > 0).all(1)]
    if not len(targets):
        return targets if crowd is targets.crowd else targets.replace(crowd=crowd)
    boxes = clip_boxes_to(targets.boxes, window)
    keep = rule.mask(extents(targets.boxes) if before is None else before, extents(boxes))
    fields: dict[str, object] = {"boxes": boxes, "crowd": crowd}
    if len(targets.keypoints):
        fields["keypoints"] = hide_outside(targets.keypoints, window)
    return targets.replace(**fields).filter(keep)


def hide_outside(keypoints: Tensor, window: Window) -> Tensor:
    """Return keypoints (N, K, 3) with v = 0 wherever the point is not inside ``window``."""
    x, y, v = keypoints.unbind(-1)
    x1, y1, x2, y2 = window
    inside = (x >= x1) & (x < x2) & (y >= y1) & (y < y2)
    return torch.stack((x, y, torch.where(inside, v, 0.0)), -1)


def _move_keypoints(keypoints: Tensor, affine: Affine) -> Tensor:
    if not len(keypoints):
        return keypoints
    moved = torch.cat((affine.points(keypoints[..., :2]), keypoints[..., 2:]), -1)
    # unlabelled points stay where the source put them, at (0, 0)
    return torch.where(keypoints[..., 2:] > 0, moved, keypoints)


def _move_polygons(polygons: tuple[Outline, ...], affine: Affine) -> tuple[Outline, ...]:
    rings = [ring for outline in polygons for ring in outline]
    if not rings:
        return polygons
    moved = iter(affine.points(torch.cat(rings)).split([len(ring) for ring in rings]))
    return tuple(tuple(next(moved) for _ in outline) for outline in polygons)
