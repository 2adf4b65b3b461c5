import math
import pickle
from dataclasses import replace

import numpy as np
import pytest
import torch

from lucid_data import (
    NO_AUGMENTATION,
    AugmentPolicy,
    EvalPipeline,
    Targets,
    TrainPipeline,
    open_catalog,
    policy_for,
    synthetic,
)
from lucid_data.composition import Composition, Picture
from lucid_data.randomness import Stream
from lucid_data.transforms.affine import AffineParams
from lucid_data.transforms.letterbox import letterbox_image
from lucid_data.transforms.mosaic import MosaicParams, mosaic_places
from lucid_data.transforms.moving import KeepRule
from lucid_geometry import Letterbox


def same(a, b):
    return torch.equal(a.image, b.image) and torch.equal(a.targets.boxes, b.targets.boxes)


@pytest.fixture(scope="module")
def catalog(scenes):
    return open_catalog(scenes)


def make(catalog, policy=None, **more):
    return TrainPipeline(
        catalog, more.pop("size", 96), policy or policy_for("s"), more.pop("seed", 1), **more
    )


def test_a_sample_depends_on_seed_epoch_and_index_alone(catalog):
    first, second = make(catalog), make(catalog)
    forward = [first(0, i) for i in range(10)]
    backward = [second(0, i) for i in reversed(range(10))][::-1]
    assert all(same(a, b) for a, b in zip(forward, backward, strict=True))
    assert not same(first(0, 3), first(1, 3))
    assert not same(first(0, 3), make(catalog, seed=2)(0, 3))


def test_what_is_at_hand_does_not_change_a_sample(catalog, monkeypatch):
    warm = make(catalog)
    samples = [warm(0, i) for i in range(6)]
    monkeypatch.setattr("lucid_data.pipeline._AT_HAND_BYTES", 0)
    for i, sample in enumerate(samples):
        assert same(make(catalog)(0, i), sample)


def test_the_global_generators_are_left_alone(catalog):
    torch.manual_seed(5)
    np.random.seed(5)
    before = torch.random.get_rng_state(), np.random.get_state()[1].copy()
    make(catalog)(0, 0)
    assert torch.equal(before[0], torch.random.get_rng_state())
    assert np.array_equal(before[1], np.random.get_state()[1])


def test_a_picture_is_decoded_about_once_per_epoch(catalog, monkeypatch):
    decoded = []
    pipeline = make(catalog, replace(policy_for("n"), mosaic_pool=8))
    read = type(catalog).image
    monkeypatch.setattr(type(catalog), "image", lambda self, i: decoded.append(i) or read(self, i))
    for index in pipeline.order(0).tolist():
        pipeline(0, index)
    assert len(decoded) == len(catalog)


def test_mosaic_partners_are_neighbours_of_the_epochs_order(catalog):
    pipeline = make(catalog, replace(policy_for("n"), mosaic_pool=8))
    order = pipeline.order(0).tolist()
    pipeline(0, order[10])
    assert set(pipeline._at_hand) <= set(order[8:16])


def test_without_augmentation_a_training_sample_is_the_letterbox(catalog, shared_data):
    photos = open_catalog(shared_data / "coco_subset", "val")
    for source in (catalog, photos):
        for index in (0, 3):
            sample = make(source, NO_AUGMENTATION, size=160)(0, index)
            expected = EvalPipeline(source, 160)(index)
            assert torch.equal(sample.image, expected.image)
            limit = torch.tensor(160.0)
            clipped = torch.minimum(expected.targets.boxes.clamp(min=0), limit)
            kept = (clipped[:, 2:] - clipped[:, :2] >= 2).all(1)
            assert torch.allclose(sample.targets.boxes, clipped[kept], atol=1e-4)
            assert sample.size == expected.size


def test_an_evaluation_sample_is_one_resize_and_the_letterbox_geometry(shared_data):
    photos = open_catalog(shared_data / "coco_subset", "val")
    sample = EvalPipeline(photos, 320)(0)
    box = Letterbox(*sample.size, 320, 320)
    assert torch.equal(sample.image, letterbox_image(photos.image(0), box))
    assert torch.allclose(sample.targets.boxes, box.forward_boxes(photos.targets(0).boxes), atol=1e-4)


def test_mosaic_and_mixup_stop_at_their_epoch(catalog):
    policy = replace(NO_AUGMENTATION, mosaic=1.0, mixup=1.0)
    pipeline = make(catalog, policy, mosaic_epochs=2)
    plain = make(catalog, NO_AUGMENTATION)
    assert not torch.equal(pipeline(1, 4).image, plain(1, 4).image)
    assert torch.equal(pipeline(2, 4).image, plain(2, 4).image)


def test_objects_in_a_mosaic_are_as_large_as_alone(catalog):
    policy = AugmentPolicy(scale=0.0, translate=0.0, hue=0, saturation=0, value=0, min_visibility=0.999)
    # boxes left whole by the mosaic's cuts, against the same objects alone
    alone = make(catalog, replace(policy, mosaic=0.0))
    mosaic = make(catalog, policy)
    sides = {}
    for name, pipeline in (("alone", alone), ("mosaic", mosaic)):
        seen = set()
        for epoch in range(4):
            for index in range(len(catalog)):
                boxes = pipeline(epoch, index).targets.boxes
                seen |= {tuple(round(float(v), 2) for v in b[2:] - b[:2]) for b in boxes}
        sides[name] = seen
    # every whole object of a mosaic has exactly the extent that it has alone
    widths = np.array(sorted(sides["alone"]))
    for extent in sides["mosaic"]:
        assert np.abs(widths - np.array(extent)).max(1).min() < 0.15


def test_the_mean_scale_of_mosaic_samples_is_that_of_single_ones(catalog):
    policy = AugmentPolicy(hue=0, saturation=0, value=0, scale=0.5, min_size=0, min_visibility=0.0)

    # 1008 samples each
    def mean_scale(pipeline):
        scales = []
        for epoch in range(42):
            for index in range(len(catalog)):
                sample = pipeline(epoch, index)
                scales.append(float(sample.targets.area.sqrt().mean()) if len(sample.targets) else np.nan)
        return np.nanmean(scales)

    # area scales with the zoom alone, whatever was cut off
    ratio = mean_scale(make(catalog, policy, size=64)) / mean_scale(
        make(catalog, replace(policy, mosaic=0.0), size=64)
    )
    assert abs(ratio - 1) < 0.05


def test_labels_stay_on_the_canvas_and_above_the_least_size(catalog):
    pipeline = make(catalog)
    for index in range(len(catalog)):
        boxes = pipeline(0, index).targets.boxes
        assert (boxes >= 0).all()
        assert (boxes <= 96).all()
        assert (boxes[:, 2:] - boxes[:, :2] >= 2).all()


def test_drawn_boxes_still_fit_their_shapes_after_everything(tmp_path):
    # bright squares on black: label and pixels can be compared directly
    from PIL import Image

    (tmp_path / "images").mkdir()
    rows = []
    for number in range(6):
        picture = Image.new("RGB", (120, 90))
        x, y = 10 + 9 * number, 20 + 5 * number
        picture.paste((255, 255, 255), (x, y, x + 30, y + 24))
        picture.save(tmp_path / "images" / f"{number}.png")
        rows.append(
            {
                "id": number + 1,
                "image_id": number,
                "category_id": 1,
                "bbox": [x, y, 30, 24],
                "area": 720,
                "iscrowd": 0,
            }
        )
    import json

    document = {
        "images": [{"id": i, "file_name": f"{i}.png", "height": 90, "width": 120} for i in range(6)],
        "annotations": rows,
        "categories": [{"id": 1, "name": "square"}],
    }
    (tmp_path / "annotations.json").write_text(json.dumps(document))
    squares = open_catalog(tmp_path, "all")
    for policy in (policy_for("n"), replace(policy_for("n"), degrees=8)):
        pipeline = make(squares, replace(policy, hue=0, saturation=0, value=0), size=128)
        checked = 0
        for epoch in range(3):
            for index in range(6):
                sample = pipeline(epoch, index)
                bright = sample.image[0] > 200
                for x1, y1, x2, y2 in sample.targets.boxes.tolist():
                    core = bright[math.ceil(y1) + 1 : int(y2) - 1, math.ceil(x1) + 1 : int(x2) - 1]
                    checked += core.numel() > 0
                    # a turned square fills less of its envelope
                    assert not core.numel() or core.float().mean() > (0.98 if policy.degrees == 0 else 0.4)
                outside = bright.clone()
                for x1, y1, x2, y2 in sample.targets.boxes.tolist():
                    outside[max(0, int(y1) - 1) : int(y2) + 2, max(0, int(x1) - 1) : int(x2) + 2] = False
                # what no label covers is at most the slivers that the keep rule drops
                assert outside.sum() < 0.02 * 128 * 128
        assert checked > 20


def test_pose_samples_mirror_points_with_their_sides(tmp_path):
    root = synthetic.write_coco(tmp_path, splits={"train": 3}, size=64, task="pose", shapes=2)
    poses = open_catalog(root, task="pose")
    mirrored = make(poses, replace(NO_AUGMENTATION, flip_horizontal=1.0), size=64)(0, 0).targets
    plain = make(poses, NO_AUGMENTATION, size=64)(0, 0).targets
    names = poses.keypoint_names
    left, right = names.index("flank_left"), names.index("flank_right")
    assert torch.allclose(64 - plain.keypoints[:, left, 0], mirrored.keypoints[:, right, 0], atol=1e-4)


@pytest.mark.parametrize(
    "more", [{"mixup": 1.0}, {"copy_paste": 1.0}, {"copy_paste": 1.0, "copy_paste_source": "self"}]
)
@pytest.mark.parametrize("axis", ["horizontal", "vertical"])
def test_a_picture_made_of_two_is_mirrored_with_its_labels(tmp_path, more, axis):
    root = synthetic.write_coco(tmp_path, splits={"train": 4}, size=64, task="segment")
    outlined = open_catalog(root, task="segment")
    policy = replace(NO_AUGMENTATION, **more)
    mirrored = replace(policy, **{f"flip_{axis}": 1.0})
    for index in range(4):
        plain, flipped = (make(outlined, one, size=64)(0, index) for one in (policy, mirrored))
        assert torch.equal(flipped.image, plain.image.flip(2 if axis == "horizontal" else 1))
        sides = [0, 2] if axis == "horizontal" else [1, 3]
        assert torch.allclose(
            flipped.targets.boxes[:, sides], 64 - plain.targets.boxes[:, sides[::-1]], atol=1e-4
        )


def test_a_mirror_that_never_happens_draws_nothing(catalog):
    # the first number after colour decides about the vertical mirror, where there is no horizontal one
    policy = replace(NO_AUGMENTATION, flip_vertical=0.5)
    plain, mirrored = make(catalog, NO_AUGMENTATION), make(catalog, policy)
    for index in range(12):
        stream = Stream.of(1, 0, index)
        for _ in range(2):  # mosaic, mixup
            stream.unit()
        expected = plain(0, index).image
        expected = expected.flip(1) if stream.unit() < 0.5 else expected
        assert torch.equal(mirrored(0, index).image, expected)


def test_crowd_regions_of_a_mosaic_are_cut_to_what_shows_of_their_picture():
    crowd = torch.tensor([[0.0, 0.0, 64.0, 64.0], [60.0, 0.0, 64.0, 10.0]])
    labels = replace(Targets.empty(), crowd=crowd)
    picture = Picture(torch.zeros(3, 64, 64, dtype=torch.uint8), labels, (64, 64), 1.0)
    places = mosaic_places([(64, 64)] * 4, 64, MosaicParams(64, 64))
    cut = Composition([picture] * 4, places, AffineParams(zoom=48), 128, 64).labels(KeepRule()).crowd
    # each picture shows a quarter of the output: its regions lie inside, and what shows nothing is gone
    assert cut.tolist() == [
        [0, 0, 32, 32],
        [32, 0, 64, 32],
        [0, 32, 32, 64],
        [26, 32, 32, 47],
        [32, 32, 64, 64],
    ]


@pytest.mark.parametrize("size", [0, -32, 100])
def test_a_canvas_that_the_strides_do_not_divide_is_refused(catalog, size):
    with pytest.raises(ValueError, match="multiple of 32"):
        make(catalog, size=size)
    with pytest.raises(ValueError, match="multiple of 32"):
        EvalPipeline(catalog, size)


def test_a_single_picture_makes_mosaics_of_itself(catalog):
    assert make(catalog.subset([0]))(0, 0).image.shape == (3, 96, 96)


def test_a_pipeline_survives_pickling_without_its_pictures(catalog):
    pipeline = make(catalog)
    sample = pipeline(0, 0)
    data = pickle.dumps(pipeline)
    assert len(data) < 200_000
    assert same(pickle.loads(data)(0, 0), sample)


@pytest.mark.parametrize(
    ("size", "scale", "mixup"),
    [("n", 0.5, 0), ("s", 0.9, 0.05), ("m", 0.9, 0.1), ("l", 0.9, 0.1), ("x", 0.9, 0.2)],
)
def test_policies_by_model_size(size, scale, mixup):
    policy = policy_for(size)
    assert (policy.scale, policy.mixup) == (scale, mixup)
    assert (policy.mosaic, policy.translate, policy.flip_horizontal) == (1.0, 0.1, 0.5)
    assert (policy.hue, policy.saturation, policy.value) == (0.015, 0.7, 0.4)


def test_policy_words_and_ranges_are_checked():
    assert policy_for("n", "obb").flip_vertical == 0.5
    with pytest.raises(ValueError, match="n, s, m, l, x"):
        policy_for("xl")
    with pytest.raises(ValueError, match=r"AugmentPolicy\.mixup"):
        AugmentPolicy(mixup=1.5)
    with pytest.raises(ValueError, match=r"AugmentPolicy\.scale"):
        AugmentPolicy(scale=1.0)
