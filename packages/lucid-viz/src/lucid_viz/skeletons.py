"""Which keypoints are joined by a line."""

from collections.abc import Sequence

from lucid_data import Catalog

Edges = tuple[tuple[int, int], ...]

COCO_POINTS: tuple[str, ...] = (
    "nose",
    "left_eye",
    "right_eye",
    "left_ear",
    "right_ear",
    "left_shoulder",
    "right_shoulder",
    "left_elbow",
    "right_elbow",
    "left_wrist",
    "right_wrist",
    "left_hip",
    "right_hip",
    "left_knee",
    "right_knee",
    "left_ankle",
    "right_ankle",
)

# the category "person" of COCO's keypoint annotations (cocodataset.org/#format-data), counted from 0
COCO_PERSON: Edges = (
    (15, 13),
    (13, 11),
    (16, 14),
    (14, 12),
    (11, 12),
    (5, 11),
    (6, 12),
    (5, 6),
    (5, 7),
    (6, 8),
    (7, 9),
    (8, 10),
    (1, 2),
    (0, 1),
    (0, 2),
    (1, 3),
    (2, 4),
    (3, 5),
    (4, 6),
)
"""The 19 lines of COCO's person, as pairs of point indices."""


def skeleton_of(catalog: Catalog) -> Edges | None:
    """Return the pairs of points that a data set joins, () where it says none; None for a task without points.

    A COCO file states them beside the names of its points; other formats do not, and COCO's person is known by its
    point names.

    Raises:
        ValueError: a stated edge that names no point.
    """
    if catalog.num_keypoints is None:
        return None
    if catalog.keypoint_names == COCO_POINTS:
        return COCO_PERSON
    if catalog.layout != "coco":
        return ()
    categories = catalog.subset(()).to_coco()["categories"]
    stated: list[list[int]] = next(
        (category["skeleton"] for category in categories if category.get("skeleton")), []
    )
    edges = tuple((int(first) - 1, int(second) - 1) for first, second in stated)
    check_edges(edges, catalog.num_keypoints)
    return edges


def edges_to_draw(
    wanted: Sequence[tuple[int, int]] | None, names: Sequence[str], points: int
) -> Sequence[tuple[int, int]]:
    """Return the edges asked for; for None those of COCO's person where its 17 points and only class are.

    Raises:
        ValueError: an edge that names no point.
    """
    if wanted is None:
        return COCO_PERSON if points == len(COCO_POINTS) and tuple(names) == ("person",) else ()
    check_edges(wanted, points)
    return wanted


def check_edges(edges: Sequence[tuple[int, int]], points: int) -> None:
    """Raise ValueError where an edge names a point that does not exist."""
    for edge in edges:
        if not all(0 <= end < points for end in edge):
            raise ValueError(f"skeleton edge {edge}: points are numbered from 0 to {points - 1}")
