from dataclasses import replace

import pytest
import torch

from lucid_data import Targets
from lucid_data.composition import Composition, Picture
from lucid_data.transforms.affine import AffineParams
from lucid_data.transforms.flip import flip_image, flip_targets
from lucid_data.transforms.mosaic import MosaicParams, mosaic_places
from lucid_data.transforms.moving import move_targets
from lucid_geometry import Affine

MIRROR = Affine.from_rows([[-1.0, 0.0, 8.0], [0.0, 1.0, 0.0]])


def noise(height, width, seed=0):
    generator = torch.Generator().manual_seed(seed)
    return torch.randint(0, 256, (3, height, width), dtype=torch.uint8, generator=generator)


def one_box(*box, **fields):
    return Targets.of(torch.tensor([box], dtype=torch.float32), torch.tensor([0]), **fields)


@pytest.mark.parametrize("width", [10, 11])
def test_a_mirror_keeps_a_marked_column_inside_its_box_and_undoes_itself(width):
    image = torch.zeros(3, 4, width, dtype=torch.uint8)
    image[:, :, 2] = 255
    targets = one_box(2, 0, 3, 4)
    flipped = flip_image(image, across=True)
    moved = flip_targets(targets, (4, width), across=True)
    (column,) = torch.nonzero(flipped[0, 0])[:, 0].tolist()
    assert moved.boxes.tolist() == [[column, 0, column + 1, 4]]
    assert move_targets(Targets.concat([targets, targets]), MIRROR).boxes.is_contiguous()
    assert torch.equal(flip_image(flipped, across=True), image)
    assert torch.equal(flip_targets(moved, (4, width), across=True).boxes, targets.boxes)


def test_a_mirror_swaps_sided_keypoints_with_their_visibility():
    targets = one_box(0, 0, 10, 10, keypoints=torch.tensor([[[5.0, 1, 2], [2, 3, 1], [8, 3, 2], [0, 0, 0]]]))
    moved = flip_targets(targets, (10, 10), across=True, pairs=((1, 2),))
    assert moved.keypoints.tolist() == [[[5, 1, 2], [2, 3, 2], [8, 3, 1], [0, 0, 0]]]
    with pytest.raises(ValueError, match=r"\(1, 9\)"):
        flip_targets(targets, (10, 10), across=True, pairs=((1, 9),))


def test_labels_without_instances_have_no_keypoints_to_swap():
    assert len(flip_targets(Targets.empty(), (8, 8), across=True, pairs=((1, 2),))) == 0


def test_a_mirror_turns_rotated_boxes_the_other_way():
    targets = one_box(20, 30, 40, 50, rboxes=torch.tensor([[30.0, 40, 20, 10, 1.2]]))
    moved = flip_targets(targets, (80, 100), across=True)
    assert moved.rboxes[0].tolist() == pytest.approx([70, 40, 20, 10, 1.9416], abs=1e-4)


def test_a_vertical_mirror_reverses_rows():
    image = noise(6, 4)
    assert torch.equal(flip_image(image, down=True), image.flip(1))
    assert flip_targets(one_box(1, 0, 3, 2), (6, 4), down=True).boxes.tolist() == [[1, 4, 3, 6]]


@pytest.mark.parametrize(("across", "down"), [(True, False), (False, True), (True, True)])
@pytest.mark.parametrize("params", [AffineParams(zoom=z, translate_x=0.11) for z in (21, 32, 43)])
def test_parts_that_are_mirrored_on_their_way_make_the_mirrored_picture(params, across, down):
    sizes = [(48, 64), (64, 40), (30, 64), (64, 64)]
    pictures = [
        Picture(noise(*size, seed), one_box(1, 2, 30, 20), size, 1.0) for seed, size in enumerate(sizes)
    ]
    places = mosaic_places(sizes, 64, MosaicParams(55, 71))
    for moved in (params, replace(params, angle=0.2)):
        composition = Composition(pictures, places, moved, 128, 64)
        expected = composition.draw().flip([axis for axis, flips in ((2, across), (1, down)) if flips])
        assert torch.equal(composition.draw(across=across, down=down), expected)
        assert not torch.equal(composition.draw(), expected)
