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


def class_prior_(conv: nn.Conv2d) -> nn.Conv2d:
    """Set the bias so that every class starts at probability 0.01, and return the convolution.

    Source: Lin et al., "Focal Loss", arXiv:1708.02002, section 4.1.
    """
    if conv.bias is None:
        raise ValueError("class_prior_: the class output needs a bias")
    nn.init.constant_(conv.bias, -math.log((1 - CLASS_PRIOR) / CLASS_PRIOR))
    return conv


def box_stem(channels: int, hidden: int) -> nn.Sequential:
    """Return (B, channels, h, w) -> (B, 4, h, w)."""
    output = nn.Conv2d(hidden, 4, 1)
    stem = nn.Sequential(ConvUnit(channels, hidden, 3), ConvUnit(hidden, hidden, 3), output)
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
