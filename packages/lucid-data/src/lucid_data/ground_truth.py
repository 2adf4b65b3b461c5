"""COCO ground truth as the reader understood it: what it left out and what it put right, once more for scoring.

What a catalogue trains on and what its predictions are scored against must be the same objects, so an annotation that
the reader passes over may not come back as one that scoring stumbles on.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from lucid_data.formats.coco_values import finite_number, has_finite_box, id_key, usable_rings
from lucid_data.formats.rle import decode_rle

Size = tuple[int, int]
Outline = list[list[float]] | dict[str, Any]


def usable_outline(segmentation: object, size: Size) -> Outline | None:
    """Return what of a ``segmentation`` can be filled in a picture of ``size`` (height, width), None if nothing can.

    Of polygons these are the rings of three points or more; run lengths are taken whole, when they are stated for
    that size, cover it exactly and mark a pixel.

    >>> usable_outline([[], [0, 0, 4, 0, 4, 4]], (8, 8))
    [[0.0, 0.0, 4.0, 0.0, 4.0, 4.0]]
    """
    try:
        if not isinstance(segmentation, dict):
            return usable_rings(segmentation) or None
        # the reader traces the pixels; whether there are any is known sooner
        return segmentation | {"size": list(size)} if decode_rle(segmentation, size).any() else None
    except (ValueError, OverflowError):
        return None


def part_that_was_read(
    document: Mapping[str, Any], sizes: Mapping[str, Size], classes: Mapping[int, str], *, masks: bool
) -> dict[str, Any]:
    """Return the images, annotations and categories of a COCO document that a reader took, each as it is stated.

    Args:
        document: as ``load_document`` gives it.
        sizes: height and width of the images that were read, by ``id_key`` of their id; they fill in sizes that
            are missing or zero.
        classes: the names by category id; those that the document lacks are added, for what another split has.
        masks: whether masks are learnt, and instances whose outline is unusable are left out.
    """
    listed = {id_key(category["id"]) for category in document["categories"]}
    images = [_sized(i, sizes[id_key(i["id"])]) for i in document["images"] if id_key(i["id"]) in sizes]

    def taken(annotation: Mapping[str, Any]) -> bool:
        size = sizes.get(id_key(annotation.get("image_id")))
        if size is None or not has_finite_box(annotation):
            return False
        outline = annotation.get("segmentation")
        if not masks or outline is None or annotation.get("iscrowd"):
            return True
        return usable_outline(outline, size) is not None

    return {
        **document,
        "images": images,
        "annotations": [annotation for annotation in document["annotations"] if taken(annotation)],
        "categories": document["categories"]
        + [{"id": i, "name": name} for i, name in classes.items() if id_key(i) not in listed],
    }


def _sized(image: dict[str, Any], size: Size) -> dict[str, Any]:
    stated = (image.get("height"), image.get("width"))
    known = all(side is not None and finite_number(side, "image size") >= 1 for side in stated)
    return image if known else image | {"height": size[0], "width": size[1]}
