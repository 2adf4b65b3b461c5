"""Building blocks of the trunk: convolution units, CSP blocks, pyramid pooling and attention.

Every block maps (B, ci, h, w) to (B, co, h', w'). Padding is "same" for odd kernels; BatchNorm keeps torch's
defaults. Sources: Hidayatullah and Tubagus, "YOLOv8 to YOLO11", arXiv:2501.13400 (CSP lineage); the widths
and inner counts are inferred from the sizes published in Jocher et al., "YOLO26", arXiv:2606.03748.
"""

from collections.abc import Callable
from typing import cast

import torch
from torch import Tensor, nn


class ConvUnit(nn.Module):
    """Convolution, BatchNorm and, unless ``activation`` is false, SiLU.

    >>> ConvUnit(3, 16, 3, stride=2)(torch.zeros(1, 3, 32, 32)).shape
    torch.Size([1, 16, 16, 16])
    """

    def __init__(
        self, ci: int, co: int, kernel: int, stride: int = 1, groups: int = 1, activation: bool = True
    ) -> None:
        super().__init__()
        self.conv = nn.Conv2d(ci, co, kernel, stride, kernel // 2, groups=groups, bias=False)
        self.norm: nn.Module = nn.BatchNorm2d(co)
        # not in place while training: autograd would clone the input it has to keep
        self.activation: nn.Module = nn.SiLU() if activation else nn.Identity()

    def forward(self, x: Tensor) -> Tensor:
        """Return (B, co, h / stride, w / stride)."""
        return cast(Tensor, self.activation(self.norm(self.conv(x))))


class SeparableUnit(nn.Sequential):
    """Depthwise 3x3 unit followed by a pointwise unit, both with SiLU."""

    def __init__(self, ci: int, co: int) -> None:
        super().__init__(ConvUnit(ci, ci, 3, groups=ci), ConvUnit(ci, co, 1))


class Bottleneck(nn.Module):
    """Two 3x3 units with a shortcut around them; the hidden width is ``floor(width * expansion)``."""

    def __init__(self, width: int, expansion: float) -> None:
        super().__init__()
        hidden = int(width * expansion)
        self.reduce = ConvUnit(width, hidden, 3)
        self.expand = ConvUnit(hidden, width, 3)

    def forward(self, x: Tensor) -> Tensor:
        """Return (B, width, h, w)."""
        return x + cast(Tensor, self.expand(self.reduce(x)))


class CrossStage(nn.Module):
    """CSP block of three 1x1 units: a stream of two bottlenecks beside a plain one, half width each."""

    def __init__(self, width: int) -> None:
        super().__init__()
        half = width // 2
        self.refined = ConvUnit(width, half, 1)
        self.plain = ConvUnit(width, half, 1)
        self.bottlenecks = nn.Sequential(*(Bottleneck(half, 1.0) for _ in range(2)))
        self.merge = ConvUnit(2 * half, width, 1)

    def forward(self, x: Tensor) -> Tensor:
        """Return (B, width, h, w)."""
        refined = self.bottlenecks(self.refined(x))
        return cast(Tensor, self.merge(torch.cat((refined, self.plain(x)), 1)))


class Attention(nn.Module):
    """Multi-head self-attention over the h * w positions, with a depthwise 3x3 term on the values.

    Heads are 64 channels wide, queries and keys 32. Raises ValueError when ``width`` does not divide by the
    number of heads. Source: Vaswani et al., arXiv:1706.03762; placement as in arXiv:2501.13400.
    """

    def __init__(self, width: int) -> None:
        super().__init__()
        self.heads = max(1, width // 64)
        if width % self.heads:
            raise ValueError(f"Attention: width {width} does not divide by its {self.heads} heads of 64")
        self.value_width = width // self.heads
        self.key_width = self.value_width // 2
        self.qkv = ConvUnit(width, self.heads * (2 * self.key_width + self.value_width), 1, activation=False)
        self.local = ConvUnit(width, width, 3, groups=width, activation=False)
        self.project = ConvUnit(width, width, 1, activation=False)

    def forward(self, x: Tensor) -> Tensor:
        """Return (B, width, h, w)."""
        batch, width, height, columns = x.shape
        per_head = self.qkv(x).flatten(2).unflatten(1, (self.heads, -1))
        query, key, value = per_head.split((self.key_width, self.key_width, self.value_width), 2)
        # the scale goes on the (keys) side that is smaller than the (L, L) weights
        weights = ((query * self.key_width**-0.5).transpose(-2, -1) @ key).softmax(-1)
        mixed = (value @ weights.transpose(-2, -1)).reshape(batch, width, height, columns)
        return cast(Tensor, self.project(mixed + self.local(value.reshape(batch, width, height, columns))))


class AttentionBlock(nn.Module):
    """Attention and a two-layer 1x1 perceptron, each added to its input.

    With the closing BatchNorm affines at zero the block is the identity.
    """

    def __init__(self, width: int) -> None:
        super().__init__()
        self.attention = Attention(width)
        self.perceptron = nn.Sequential(
            ConvUnit(width, 2 * width, 1), ConvUnit(2 * width, width, 1, activation=False)
        )

    def forward(self, x: Tensor) -> Tensor:
        """Return (B, width, h, w)."""
        x = x + self.attention(x)
        return x + cast(Tensor, self.perceptron(x))


def plain_unit(width: int) -> nn.Module:
    """Return one bottleneck of half hidden width."""
    return Bottleneck(width, 0.5)


def attention_unit(width: int) -> nn.Module:
    """Return a bottleneck of half hidden width followed by an attention block."""
    return nn.Sequential(Bottleneck(width, 0.5), AttentionBlock(width))


class ChainedStage(nn.Module):
    """CSP block that concatenates a split input with every link of a chain of ``repeats`` inner units.

    ``inner`` builds one unit on ``floor(co * expansion)`` channels.
    """

    def __init__(
        self, ci: int, co: int, repeats: int, expansion: float, inner: Callable[[int], nn.Module]
    ) -> None:
        super().__init__()
        self.hidden = int(co * expansion)
        self.split = ConvUnit(ci, 2 * self.hidden, 1)
        self.units = nn.ModuleList(inner(self.hidden) for _ in range(repeats))
        self.merge = ConvUnit((2 + repeats) * self.hidden, co, 1)

    def forward(self, x: Tensor) -> Tensor:
        """Return (B, co, h, w)."""
        both = self.split(x)
        # one dense copy here spares every convolution below its own, forward and backward
        links = [both[:, self.hidden :].clone()]
        for unit in self.units:
            links.append(unit(links[-1]))
        return cast(Tensor, self.merge(torch.cat((both, *links[1:]), 1)))


class PyramidPooling(nn.Module):
    """Three chained 5x5 max-pools concatenated with their input, plus a shortcut around the block.

    Source: He et al., arXiv:1406.4729, in its chained form; shortcut as in arXiv:2602.14582 section 4.
    """

    def __init__(self, width: int) -> None:
        super().__init__()
        self.reduce = ConvUnit(width, width // 2, 1)
        self.pool = nn.MaxPool2d(5, 1, 2)
        self.merge = ConvUnit(4 * (width // 2), width, 1)

    def forward(self, x: Tensor) -> Tensor:
        """Return (B, width, h, w)."""
        levels = [self.reduce(x)]
        for _ in range(3):
            levels.append(self.pool(levels[-1]))
        return x + cast(Tensor, self.merge(torch.cat(levels, 1)))


class AttentionStage(nn.Module):
    """CSP block whose second half passes through ``repeats`` attention blocks."""

    def __init__(self, width: int, repeats: int) -> None:
        super().__init__()
        self.hidden = width // 2
        self.split = ConvUnit(width, 2 * self.hidden, 1)
        self.blocks = nn.Sequential(*(AttentionBlock(self.hidden) for _ in range(repeats)))
        self.merge = ConvUnit(2 * self.hidden, width, 1)

    def forward(self, x: Tensor) -> Tensor:
        """Return (B, width, h, w)."""
        both = self.split(x)
        refined = self.blocks(both[:, self.hidden :])
        return cast(Tensor, self.merge(torch.cat((both[:, : self.hidden], refined), 1)))
