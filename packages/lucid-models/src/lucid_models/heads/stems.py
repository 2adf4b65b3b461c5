"""Output stems: the small convolution stacks that turn a feature level into one kind of prediction."""

import math

from torch import nn

from lucid_models.blocks import ConvUnit, SeparableUnit

CLASS_PRIOR = 0.01
BOX_DISTANCE = 2.0
"""Initial left, top, right and bottom distances, in strides.

Fresh heads then predict squares of 4 strides: 32, 64 and 128 px, which straddle the 32 and 96 px borders
between COCO's small, medium and large objects, so that every candidate starts from a real box. The spread of
the untrained output is about 0.3, so practically no box starts inverted; at 1 stride some would.
"""


def box_width(n3: int) -> int:
    """Return the hidden width of box stems; ``n3`` is the neck's finest width."""
    return max(16, n3 // 4)


def class_width(n3: int, num_classes: int) -> int:
    """Return the hidden width of class stems."""
    return max(n3, min(num_classes, 100))


def coefficient_width(n3: int) -> int:
    """Return the hidden width of mask coefficient stems."""
    return max(32, n3 // 4)


def angle_width(n3: int) -> int:
    """Return the hidden width of angle stems."""
    return n3 // 4


def keypoint_width(n3: int, num_keypoints: int) -> int:
    """Return the hidden width of keypoint stems."""
    return max(n3 // 4, 5 * num_keypoints)


def class_prior_(conv: nn.Conv2d) -> nn.Conv2d:
    """Set the bias so that every class starts at probability 0.01, and return the convolution.

    Source: Lin et al., "Focal Loss", arXiv:1708.02002, section 4.1.
    """
    if conv.bias is None:
        raise ValueError("class_prior_: the class output needs a bias")
    nn.init.constant_(conv.bias, -math.log((1 - CLASS_PRIOR) / CLASS_PRIOR))
    return conv


def trunk(channels: int, hidden: int) -> tuple[ConvUnit, ConvUnit]:
    """Return the two 3x3 units, (B, channels, h, w) -> (B, hidden, h, w), that every stem but class's has."""
    return ConvUnit(channels, hidden, 3), ConvUnit(hidden, hidden, 3)


def plain_stem(channels: int, hidden: int, outputs: int) -> nn.Sequential:
    """Return (B, channels, h, w) -> (B, outputs, h, w)."""
    return nn.Sequential(*trunk(channels, hidden), nn.Conv2d(hidden, outputs, 1))


def box_stem(channels: int, hidden: int) -> nn.Sequential:
    """Return (B, channels, h, w) -> (B, 4, h, w), biased to real boxes."""
    output = nn.Conv2d(hidden, 4, 1)
    stem = nn.Sequential(*trunk(channels, hidden), output)
    if output.bias is not None:
        nn.init.constant_(output.bias, BOX_DISTANCE)
    return stem


def class_stem(channels: int, hidden: int, num_classes: int) -> nn.Sequential:
    """Return (B, channels, h, w) -> (B, num_classes, h, w), biased to the class prior."""
    return nn.Sequential(
        SeparableUnit(channels, hidden),
        SeparableUnit(hidden, hidden),
        class_prior_(nn.Conv2d(hidden, num_classes, 1)),
    )
