"""Which keypoints change places in a mirror, from their names."""

from __future__ import annotations

import re
from collections.abc import Sequence

_SIDED = re.compile(r"^(?P<before>left|right)_(?P<stem>.+)$|^(?P<stem2>.+)_(?P<after>left|right)$", re.I)


def keypoint_flip_pairs(names: Sequence[str], where: str = "keypoints") -> tuple[tuple[int, int], ...]:
    """Return (left, right) index pairs of ``names``, ascending; () when no name has a side.

    A side is a ``left_``/``right_`` prefix or a ``_left``/``_right`` suffix in any case. Raises ValueError
    naming ``where`` for repeated names and for a side without its partner.

    >>> keypoint_flip_pairs(["nose", "left_eye", "right_eye"])
    ((1, 2),)
    """
    if len({name.lower() for name in names}) != len(names):
        raise ValueError(f"{where}: keypoint names repeat in {list(names)}")
    sides: dict[str, dict[str, int]] = {}
    for index, name in enumerate(names):
        match = _SIDED.match(name)
        if match:
            side = (match["before"] or match["after"]).lower()
            stem = (match["stem"] or match["stem2"]).lower()
            if side in sides.setdefault(stem, {}):
                raise ValueError(f"{where}: two keypoints are the {side} {stem!r}")
            sides[stem][side] = index
    lone = sorted(stem for stem, pair in sides.items() if len(pair) != 2)
    if lone:
        raise ValueError(f"{where}: keypoints with one side only: {', '.join(lone)}")
    return tuple(sorted((pair["left"], pair["right"]) for pair in sides.values()))
