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


@dataclass(frozen=True)
class RenderOptions:
    """How predictions and labels are drawn; widths are in points of 1/72 inch.

    Args:
        confidence: predictions scoring at most this are left out.
        box_width: outline of a prediction.
        truth_width: outline of a label.
        show_labels: write class and score beside predictions.
        font_size: of that text.
    """

    confidence: float = 0.25
    box_width: float = 1.6
    truth_width: float = 1.2
    show_labels: bool = True
    font_size: float = 8.0

    def __post_init__(self) -> None:
        if not 0 <= self.confidence <= 1:
            raise ValueError(f"confidence = {self.confidence}: give a number from 0 to 1")


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


def caption(names: tuple[str, ...], label: int, score: float | None = None) -> str:
    """Return the text beside a box: class name (or index) and score with two decimals."""
    name = names[label] if label < len(names) else str(label)
    return name if score is None else f"{name} {score:.2f}"
