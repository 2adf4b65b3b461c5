import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.extra.numpy import arrays
from pycocotools import mask as coco_mask

from lucid_data.formats.rle import decode_rle, encode_rle
from lucid_data.formats.trace import trace_mask
from lucid_data.raster import fill_rings

masks = st.tuples(st.integers(1, 14), st.integers(1, 14)).flatmap(lambda shape: arrays(np.bool_, shape))


@given(masks)
@settings(deadline=None, max_examples=200)
def test_filling_the_traced_rings_gives_the_mask_back(mask):
    assert np.array_equal(fill_rings(trace_mask(mask), *mask.shape), mask)


@given(masks)
@settings(deadline=None, max_examples=100)
def test_there_is_one_ring_per_part_joined_by_sides(mask):
    seen, parts = np.zeros_like(mask), 0
    for start in zip(*np.nonzero(mask), strict=True):
        parts += not seen[start]
        todo = [start]
        while todo:
            r, c = todo.pop()
            if 0 <= r < mask.shape[0] and 0 <= c < mask.shape[1] and mask[r, c] and not seen[r, c]:
                seen[r, c] = True
                todo += [(r - 1, c), (r + 1, c), (r, c - 1), (r, c + 1)]
    assert len(trace_mask(mask)) == parts


def test_a_ring_shaped_mask_is_one_ring_with_a_slit():
    mask = np.ones((3, 3), bool)
    mask[1, 1] = False
    (ring,) = trace_mask(mask)
    outer, slit, hole = ring[:4], ring[4], ring[5:]
    assert {tuple(p) for p in outer} == {(0, 0), (3, 0), (3, 3), (0, 3)}
    assert tuple(slit) == tuple(outer[0])
    assert {tuple(p) for p in hole} == {(1, 1), (2, 1), (2, 2), (1, 2)}
    assert tuple(hole[0]) == tuple(hole[-1])


def test_no_point_lies_on_a_straight_line_between_its_neighbours():
    (ring,) = trace_mask(np.ones((4, 9), bool))
    assert len(ring) == 4


def test_the_run_lengths_of_the_format_document():
    mask = np.zeros((4, 5), bool)
    mask[1:3, 2:4] = True
    assert encode_rle(mask) == {"size": [4, 5], "counts": [9, 2, 2, 2, 5]}
    for counts in ([9, 2, 2, 2, 5], "92203", b"92203"):
        assert np.array_equal(decode_rle({"size": [4, 5], "counts": counts}), mask)


@given(masks)
@settings(deadline=None, max_examples=100)
def test_both_encodings_agree_with_pycocotools(mask):
    theirs = coco_mask.encode(np.asfortranarray(mask.astype(np.uint8)))
    assert np.array_equal(decode_rle(theirs), mask)
    assert coco_mask.frPyObjects(encode_rle(mask), *mask.shape) == theirs


@pytest.mark.parametrize(
    ("encoded", "words"),
    [
        ({"size": [4, 5], "counts": [9, 2]}, "cover 11 of 20"),
        ({"size": [4, 5], "counts": [-1, 21]}, "negative"),
        ({"size": [4, 5], "counts": "9"}, "cover 9 of 20"),
        ({"size": [4, 5], "counts": "é"}, "foreign character"),
        ({"size": [4, 5], "counts": "oooooooooo"}, "too soon"),
        ({"size": [4, 5], "counts": "oooooooooo0"}, "longer than any picture"),
        ({"size": [5, 4], "counts": [20]}, "swapped"),
        ({"size": [9, 9], "counts": [81]}, "run lengths for 9 x 9"),
        ({"counts": [20]}, "without a size"),
        ({"size": [4, 5], "counts": [1.5]}, "whole numbers"),
        ({"size": [4, 5]}, "need 'counts'"),
        ([1, 2], "a list is no"),
    ],
)
def test_defective_run_lengths_are_refused_with_the_reason(encoded, words):
    with pytest.raises(ValueError, match=words):
        decode_rle(encoded, (4, 5))
