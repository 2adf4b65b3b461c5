"""Which splits a data set is trained and scored on when none are named: one rule for fit and eval."""

from pathlib import Path


def default_splits(present: tuple[str, ...]) -> tuple[str | None, str | None]:
    """Return the training and the validation split of a tree, None where it has none.

    A tree that offers ``trainval`` and ``test`` (Pascal VOC) is trained on the first and scored on the second;
    any other on ``train`` and on the first of ``val``, ``valid`` and ``test``.

    Example:
        >>> default_splits(("train", "val", "trainval", "test"))
        ('trainval', 'test')
        >>> default_splits(("train", "valid"))
        ('train', 'valid')
    """
    if {"trainval", "test"} <= set(present):
        return "trainval", "test"
    train = "train" if "train" in present else None
    return train, next((name for name in ("val", "valid", "test") if name in present), None)


def missing_split(data: Path, role: str, present: tuple[str, ...], remedy: str) -> ValueError:
    """Return the error of a tree without a split for a role."""
    if not present:
        return ValueError(
            f"{data}: no labelled data set of a known format; `lucid data check` says what is missing"
        )
    return ValueError(f"{data}: no {role} split among {', '.join(present)}; name one with {remedy}")
