"""Where captions stand: beside their objects, inside the picture and, where there is room, apart from each other.

Pictures have their origin at the left upper corner; units are those of the plates. N plates, K places for each.
"""

import numpy as np
import numpy.typing as npt

Floats = npt.NDArray[np.float64]


def outlines(boxes: npt.ArrayLike) -> Floats:
    """Return the corners (N, 4, 2) of boxes (N, 4) x1, y1, x2, y2.

    Example:
        >>> outlines([[1, 2, 3, 4]]).tolist()
        [[[1.0, 2.0], [3.0, 2.0], [3.0, 4.0], [1.0, 4.0]]]
    """
    return np.asarray(boxes, np.float64).reshape(-1, 4)[:, [0, 1, 2, 1, 2, 3, 0, 3]].reshape(-1, 4, 2)


def beside(corners: Floats, sizes: Floats) -> Floats:
    """Return the left upper corners (N, 10, 2) of the places for plates beside objects, the best one first.

    Above the object, inside its top, below it, inside its bottom; the same flush with its right end; right and left of
    it. An oriented box has its highest, lowest and outermost corners for ends.

    Args:
        corners: (N, 4, 2) of the objects, x and y.
        sizes: (N, 2) of the plates, width and height.

    Example:
        >>> beside(outlines([[10, 20, 50, 60]]), np.array([[30.0, 8.0]]))[0, :3].tolist()
        [[10.0, 12.0], [10.0, 20.0], [10.0, 60.0]]
    """
    x, y = corners[..., 0], corners[..., 1]

    def end(first: Floats, second: Floats) -> tuple[Floats, Floats]:
        chosen = np.lexsort((second, first), axis=-1)[:, :1]
        at = np.take_along_axis(corners, chosen[..., None], 1)[:, 0]
        return at[:, 0], at[:, 1]

    width, height = sizes[:, 0], sizes[:, 1]
    left_top, top = end(y, x)
    right_top, _ = end(y, -x)
    left_bottom, bottom = end(-y, x)
    right_bottom, _ = end(-y, -x)
    right, right_y = end(-x, y)
    left, left_y = end(x, y)
    places = (
        (left_top, top - height),
        (left_top, top),
        (left_bottom, bottom),
        (left_bottom, bottom - height),
        (right_top - width, top - height),
        (right_top - width, top),
        (right_bottom - width, bottom),
        (right_bottom - width, bottom - height),
        (right, right_y),
        (left - width, left_y),
    )
    return np.array(places, np.float64).transpose(2, 0, 1)


def place(sizes: Floats, places: Floats, picture: tuple[float, float]) -> Floats:
    """Return the left upper corners (N, 2) where plates stand, chosen one after the other.

    Every place is first shifted into the picture; of a plate larger than that the beginning is inside. A plate takes
    its first place that covers no plate before it, else the one that covers least of them.

    Args:
        sizes: (N, 2) of the plates, width and height, the most important first.
        places: (N, K, 2) left upper corners, the best first.
        picture: width and height.

    Example:
        >>> twice = np.array([[[0.0, 5.0], [0.0, 9.0]]] * 2)
        >>> place(np.full((2, 2), 4.0), twice, (20, 20)).tolist()
        [[0.0, 5.0], [0.0, 9.0]]
    """
    room = np.maximum(np.asarray(picture, np.float64) - sizes, 0.0)
    starts = np.clip(places, 0.0, room[:, None])
    ends = starts + sizes[:, None]
    first, last = starts.min(1), ends.max(1)
    taken, until = np.empty_like(sizes), np.empty_like(sizes)
    # the places of one plate are looked at together; plates depend on those before them
    for n in range(len(sizes)):
        near = ((taken[:n] < last[n]) & (until[:n] > first[n])).all(1).nonzero()[0]
        shared = np.minimum(ends[n, :, None], until[near]) - np.maximum(starts[n, :, None], taken[near])
        best = np.maximum(shared, 0.0).prod(-1).sum(-1).argmin()
        taken[n], until[n] = starts[n, best], ends[n, best]
    return taken
