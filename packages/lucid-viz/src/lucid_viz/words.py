"""What is written beside objects, and where there are none."""

from collections.abc import Sequence
from decimal import ROUND_FLOOR, Context
from unicodedata import category

from lucid_models import Predictions

CROWD = 12
"""Among more objects than this the name of the only class is left out: it says nothing and hides small objects."""


def plain_name(name: str) -> str:
    r"""Return a name as one line that every font machinery takes: names are data and may hold anything.

    White space, control characters and halves of surrogate pairs become single spaces, and none is at the ends.

    Example:
        >>> plain_name("traffic\nlight\x00")
        'traffic light'
    """
    return " ".join("".join(" " if category(one) in ("Cc", "Cs") else one for one in name).split())


def caption(names: tuple[str, ...], label: int, score: float | None = None, among: int = 1) -> str:
    """Return the text beside one of ``among`` objects: class name and score with two decimals.

    A class without a name, or with a blank one, goes by its index.

    Example:
        >>> caption(("cell",), 0, 0.5), caption(("cell",), 0, 0.5, among=40)
        ('cell 0.50', '0.50')
    """
    name = plain_name(names[label]) if label < len(names) else ""
    name = name or str(label)
    if len(names) == 1 and among > CROWD:
        name = ""
    return name if score is None else f"{name} {score:.2f}".lstrip()


def captions_of(predictions: Predictions, shown: Sequence[int]) -> list[str]:
    """Return the captions of the predictions of these indices."""
    scores, labels = predictions.scores.tolist(), predictions.labels.tolist()
    return [caption(predictions.names, labels[n], scores[n], among=len(shown)) for n in shown]


def note(predictions: Predictions, confidence: float) -> str:
    """Return the words for an image without a prediction above the confidence, empty for one that has some.

    Where nobody has said how high the highest score was, it is that of the predictions, if there are any.
    """
    if (predictions.scores > confidence).any():
        return ""
    highest = predictions.highest_score
    if highest is None and len(predictions):
        highest = float(predictions.scores.max())
    return nothing_above(confidence, highest)


def nothing_above(confidence: float, highest: float | None) -> str:
    """Return the words for an image that shows no prediction above a confidence.

    Args:
        confidence: what scores have to exceed.
        highest: the best score before any was dropped; None where that is not known. One above the confidence has been
            dropped for another reason, and then that is said instead.

    Returns:
        The words, the highest score with two digits; rounding does not lift it to the confidence.

    Example:
        >>> nothing_above(0.25, 0.0712), nothing_above(0.25, None)
        ('nothing above 0.25; highest 0.071', 'nothing above 0.25')
        >>> nothing_above(0.3, 0.299), nothing_above(0.25, 0.4)
        ('nothing above 0.3; highest 0.29', 'nothing kept; highest 0.4')
    """
    if highest is None:
        return f"nothing above {confidence:g}"
    if highest > confidence:
        return f"nothing kept; highest {highest:.2g}"
    said = float(f"{highest:.2g}")
    if said >= confidence and said > highest:
        said = float(Context(prec=2, rounding=ROUND_FLOOR).create_decimal_from_float(highest))
    return f"nothing above {confidence:g}; highest {said:.2g}"
