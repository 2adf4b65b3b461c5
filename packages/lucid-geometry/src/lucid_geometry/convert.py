"""Rotated boxes in the forms of other libraries and formats."""

import math

import torch
from torch import Tensor

from lucid_geometry._checks import working
from lucid_geometry.fit import polygons_to_rboxes
from lucid_geometry.rotated import canonicalize_rboxes, rboxes_to_polygons


def rboxes_to_torchvision(rboxes: Tensor) -> Tensor:
    """Return (..., 5) boxes in torchvision's ``cxcywhr`` form: degrees, counter-clockwise on screen.

    Shapes: rboxes ``Real[Tensor, "*batch 5"]`` -> ``Float[Tensor, "*batch 5"]``.

    >>> rboxes_to_torchvision(torch.tensor([5.0, 5.0, 4.0, 2.0, 0.5235988])).round()
    tensor([  5.,   5.,   4.,   2., -30.])
    """
    return _with_angle(rboxes, -180.0 / math.pi)


def torchvision_to_rboxes(boxes: Tensor) -> Tensor:
    """Return canonical rotated boxes (..., 5) of torchvision's ``cxcywhr`` form.

    Shapes: boxes ``Real[Tensor, "*batch 5"]`` -> ``Float[Tensor, "*batch 5"]``.

    >>> torchvision_to_rboxes(torch.tensor([5.0, 5.0, 4.0, 2.0, -30.0]))
    tensor([5.0000, 5.0000, 4.0000, 2.0000, 0.5236])
    """
    return canonicalize_rboxes(_with_angle(boxes, -math.pi / 180.0))


def rboxes_to_opencv(rboxes: Tensor) -> Tensor:
    """Return (..., 5) boxes as OpenCV's ``minAreaRect`` (4.5.1 and later) gives them: degrees in (0, 90].

    Shapes: rboxes ``Real[Tensor, "*batch 5"]`` -> ``Float[Tensor, "*batch 5"]``.

    The angle is that of the w edge, clockwise on screen; extents are swapped where that is needed.

    >>> rboxes_to_opencv(torch.tensor([5.0, 5.0, 4.0, 2.0, 0.0]))
    tensor([ 5.,  5.,  2.,  4., 90.])
    """
    cx, cy, w, h, degrees = _with_angle(canonicalize_rboxes(rboxes), 180.0 / math.pi).unbind(-1)
    quarters = torch.ceil(degrees / 90.0) - 1
    swap = torch.remainder(quarters, 2) == 1
    turned = degrees - 90.0 * quarters
    return torch.stack((cx, cy, torch.where(swap, h, w), torch.where(swap, w, h), turned), -1)


def opencv_to_rboxes(boxes: Tensor) -> Tensor:
    """Return canonical rotated boxes (..., 5) of OpenCV's (cx, cy, w, h, degrees clockwise).

    Shapes: boxes ``Real[Tensor, "*batch 5"]`` -> ``Float[Tensor, "*batch 5"]``.

    >>> opencv_to_rboxes(torch.tensor([5.0, 5.0, 2.0, 4.0, 90.0]))[:4]
    tensor([5., 5., 4., 2.])
    """
    return canonicalize_rboxes(_with_angle(boxes, math.pi / 180.0))


def rboxes_to_dota(rboxes: Tensor) -> Tensor:
    """Return (..., 8) corner coordinates x1 y1 ... x4 y4, clockwise on screen, as DOTA files list them.

    Shapes: rboxes ``Real[Tensor, "*batch 5"]`` -> ``Float[Tensor, "*batch 8"]``.

    >>> rboxes_to_dota(torch.tensor([5.0, 2.5, 6.0, 3.0, 0.0]))
    tensor([2., 1., 8., 1., 8., 4., 2., 4.])
    """
    return rboxes_to_polygons(rboxes).flatten(-2)


def dota_to_rboxes(corners: Tensor) -> Tensor:
    """Return canonical rotated boxes (..., 5) fitted to DOTA's (..., 8) corner coordinates.

    Shapes: corners ``Real[Tensor, "*batch 8"]`` -> ``Float[Tensor, "*batch 5"]``.

    >>> dota_to_rboxes(torch.tensor([2.0, 1.0, 8.0, 1.0, 8.0, 4.0, 2.0, 4.0]))
    tensor([5.0000, 2.5000, 6.0000, 3.0000, 0.0000])
    """
    values = working(corners, 8, "corners")
    return polygons_to_rboxes(values.reshape(*values.shape[:-1], 4, 2))


def _with_angle(boxes: Tensor, factor: float) -> Tensor:
    values = working(boxes, 5, "boxes")
    return torch.cat((values[..., :4], values[..., 4:] * factor), -1)
