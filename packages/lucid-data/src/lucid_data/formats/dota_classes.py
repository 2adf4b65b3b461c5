"""The class lists of DOTA, and how their names are spelled (captain-whu.github.io/DOTA)."""

from __future__ import annotations

import re
from collections.abc import Iterable
from typing import Final, Literal, get_args

DotaVersion = Literal["1.0", "1.5", "2.0"]

_FIRST: Final = (
    "plane", "ship", "storage tank", "baseball diamond", "tennis court", "basketball court", "ground track field",
    "harbor", "bridge", "large vehicle", "small vehicle", "helicopter", "roundabout", "soccer ball field",
    "swimming pool",
)  # fmt: skip
DOTA_CLASSES: Final[dict[DotaVersion, tuple[str, ...]]] = {
    "1.0": _FIRST,
    "1.5": (*_FIRST, "container crane"),
    "2.0": (*_FIRST, "container crane", "airport", "helipad"),
}


def spelled(name: str) -> str:
    """Return a class name in one spelling: lower case, single spaces for hyphens and underscores.

    >>> spelled("Storage_tank"), spelled("ground-track--field")
    ('storage tank', 'ground track field')
    """
    return re.sub(r"[-_\s]+", " ", name).strip().lower()


def as_version(version: str | None) -> DotaVersion | None:
    """Return ``version`` checked; ValueError names the known ones."""
    for known in get_args(DotaVersion):
        if version == known:
            return known  # type: ignore[no-any-return]
    if version is not None:
        raise ValueError(f"unknown DOTA version {version!r}; choose one of {', '.join(DOTA_CLASSES)}")
    return None


def class_list(found: Iterable[str], version: str | None = None) -> tuple[str, ...]:
    """Return the classes in label order for the names ``found`` in label files.

    With a ``version``, its list. Without, where at least half of the names are DOTA's, the first list that holds
    all of DOTA's names found; else the data set has classes of its own, which are sorted as they are spelled.

    >>> class_list(["Car", "Person"])
    ('Car', 'Person')
    >>> len(class_list(["ship", "container-crane"]))
    16
    """
    stated = as_version(version)
    if stated is not None:
        return DOTA_CLASSES[stated]
    names = set(found)
    known = {name for name in names if spelled(name) in DOTA_CLASSES["2.0"]}
    if 2 * len(known) < len(names):
        return tuple(sorted(names))
    return next(c for c in DOTA_CLASSES.values() if {spelled(name) for name in known} <= set(c))


def label_of(name: str, classes: tuple[str, ...]) -> int | None:
    """Return the label of ``name``, None when ``classes`` lacks it; DOTA's own lists take every spelling.

    >>> label_of("Storage_Tank", DOTA_CLASSES["1.0"]), label_of("car", ("Car",))
    (2, None)
    """
    wanted = spelled(name) if classes in DOTA_CLASSES.values() else name
    return classes.index(wanted) if wanted in classes else None
