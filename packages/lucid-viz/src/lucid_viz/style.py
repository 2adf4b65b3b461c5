"""Colours and options shared by every drawing."""

from dataclasses import dataclass

# Ten hues that stay apart for the common forms of colour blindness and on light and dark images alike
# (after Okabe and Ito's set, 2008, and Paul Tol's "bright" scheme, 2021).
PALETTE: tuple[str, ...] = (
    "#E69F00",
    "#56B4E9",
    "#009E73",
    "#F0E442",
    "#CC79A7",
    "#D55E00",
    "#66CCEE",
    "#AA3377",
    "#0072B2",
    "#BBBBBB",
)

CASING = 0.6
"""Opacity of the edge of the contrary lightness around a line."""


@dataclass(frozen=True)
class RenderOptions:
    """How predictions and labels are drawn; widths are in points of 1/72 inch.

    Args:
        confidence: predictions scoring at most this are left out.
        box_width: outline of a prediction.
        truth_width: outline of a label.
        show_labels: write class and score beside predictions.
        font_size: of that text.
        skeleton: pairs of keypoint indices to join by lines; None joins those of COCO's person and no others.
        bone_width: of those lines.
    """

    confidence: float = 0.25
    box_width: float = 1.6
    truth_width: float = 1.2
    show_labels: bool = True
    font_size: float = 8.0
    skeleton: tuple[tuple[int, int], ...] | None = None
    bone_width: float = 1.0

    def __post_init__(self) -> None:
        if not 0 <= self.confidence <= 1:
            raise ValueError(f"confidence = {self.confidence}: give a number from 0 to 1")
        for name in ("box_width", "truth_width", "font_size", "bone_width"):
            if not getattr(self, name) > 0:
                raise ValueError(f"{name} = {getattr(self, name)}: give a number above 0")


def class_color(label: int) -> str:
    """Return the hex colour of a class index, the same in every drawing.

    Example:
        >>> class_color(0) == class_color(10)
        True
    """
    return PALETTE[label % len(PALETTE)]


def rgb(color: str) -> tuple[int, int, int]:
    """Return a hex colour as three numbers from 0 to 255.

    Example:
        >>> rgb("#FF8000")
        (255, 128, 0)
    """
    return int(color[1:3], 16), int(color[3:5], 16), int(color[5:7], 16)


def text_color(background: str) -> str:
    """Return black or white, whichever reads on a background (luma above 0.6 takes black).

    Example:
        >>> text_color("#FFFFFF"), text_color("#000000")
        ('#000000', '#FFFFFF')
    """
    red, green, blue = rgb(background)
    return "#000000" if 0.299 * red + 0.587 * green + 0.114 * blue > 0.6 * 255 else "#FFFFFF"


def casing(color: str) -> str:
    """Return black or white, whichever keeps a line of two colours apart from the worst background there is for it.

    Against the background of luminance b that is worst for both, a hue of luminance L and black differ by the ratio
    sqrt((L + 0.05) / 0.05), a hue and white by sqrt(1.05 / (L + 0.05)) (contrast ratio of WCAG 2.2).

    Example:
        >>> casing("#F0E442"), casing("#0072B2")
        ('#000000', '#FFFFFF')
    """
    return "#000000" if (luminance(color) + 0.05) ** 2 > 1.05 * 0.05 else "#FFFFFF"


def casing_ink(color: str) -> str:
    """Return the colour of a casing of 60 % opacity over its own line, for pictures without transparency.

    Example:
        >>> casing_ink("#FFFFFF")
        '#666666'
    """
    return "#" + "".join(
        f"{round(CASING * edge + (1 - CASING) * line):02X}"
        for edge, line in zip(rgb(casing(color)), rgb(color), strict=True)
    )


def luminance(color: str) -> float:
    """Return the relative luminance of a hex colour, 0 to 1 (sRGB, IEC 61966-2-1).

    Example:
        >>> luminance("#FFFFFF")
        1.0
    """
    linear = [
        v / 12.92 if v <= 0.04045 else ((v + 0.055) / 1.055) ** 2.4 for v in (c / 255 for c in rgb(color))
    ]
    return 0.2126 * linear[0] + 0.7152 * linear[1] + 0.0722 * linear[2]
