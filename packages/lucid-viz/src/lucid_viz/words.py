"""What is written beside objects, and where there are none."""

from collections.abc import Sequence

from lucid_models import Predictions

CROWD = 12
"""Among more objects than this the name of the only class is left out: it says nothing and hides small objects."""


def caption(names: tuple[str, ...], label: int, score: float | None = None, among: int = 1) -> str:
    """Return the text beside one of ``among`` objects: class name (or index) and score with two decimals.

    Example:
        >>> caption(("cell",), 0, 0.5), caption(("cell",), 0, 0.5, among=40)
        ('cell 0.50', '0.50')
    """
    name = names[label] if label < len(names) else str(label)
    if len(names) == 1 and among > CROWD:
        name = ""
    return name if score is None else f"{name} {score:.2f}".lstrip()


def captions_of(predictions: Predictions, shown: Sequence[int]) -> list[str]:
    """Return the captions of the predictions of these indices."""
    scores, labels = predictions.scores.tolist(), predictions.labels.tolist()
    return [caption(predictions.names, labels[n], scores[n], among=len(shown)) for n in shown]


def note(predictions: Predictions, confidence: float) -> str:
    """Return the words for an image without a prediction above the confidence, empty for one that has some."""
    if (predictions.scores > confidence).any():
        return ""
    highest = predictions.highest_score
    if highest is None and len(predictions):
        highest = float(predictions.scores.max())
    return nothing_above(confidence, highest)


def nothing_above(confidence: float, highest: float | None) -> str:
    """Return the words for an image whose highest score is not above the confidence; None where that is not known.

    Example:
        >>> nothing_above(0.25, 0.0712), nothing_above(0.25, None)
        ('nothing above 0.25; highest 0.071', 'nothing above 0.25')
    """
    return f"nothing above {confidence:g}" + ("" if highest is None else f"; highest {highest:.2g}")
