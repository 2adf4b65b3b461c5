import json
import pickle

import pytest
import torch

from lucid_data import (
    Batch,
    EpochBatches,
    EvalPipeline,
    Sample,
    Targets,
    TrainPipeline,
    available_cpus,
    collate,
    default_workers,
    eval_loader,
    open_catalog,
    policy_for,
    train_loader,
)

FIELDS = ("images", "boxes", "labels", "valid", "indices", "sizes")


def equal(a, b):
    return all(torch.equal(getattr(a, name), getattr(b, name)) for name in FIELDS)


@pytest.fixture(scope="module")
def catalog(scenes):
    return open_catalog(scenes)


def loader(catalog, workers=0, **more):
    return train_loader(
        TrainPipeline(catalog, 64, policy_for("s"), 1, mosaic_epochs=1), 5, workers=workers, **more
    )


@pytest.fixture(scope="module")
def two_epochs(catalog):
    plain = loader(catalog)
    return [list(plain), list(plain)]


@pytest.mark.parametrize("workers", [1, 2])
def test_any_number_of_workers_gives_the_same_bytes(catalog, two_epochs, workers):
    other = loader(catalog, workers)
    for epoch in two_epochs:
        again = list(other)
        assert len(again) == len(epoch) == len(other) == 5
        assert all(equal(a, b) for a, b in zip(epoch, again, strict=True))


def test_epochs_differ_and_each_shows_every_picture_once(two_epochs):
    for epoch in two_epochs:
        assert sorted(torch.cat([b.indices for b in epoch]).tolist()) == list(range(24))
    assert not torch.equal(two_epochs[0][0].indices, two_epochs[1][0].indices)


@pytest.mark.parametrize("workers", [0, 1])
def test_a_resumed_loader_goes_on_with_the_very_next_batch(catalog, two_epochs, workers):
    first = loader(catalog, workers)
    first.set_epoch(1)
    iterator = iter(first)
    for _ in range(2):
        next(iterator)
    assert first.state_dict() == {"epoch": 1, "batch": 2}
    resumed = loader(catalog, workers)
    resumed.load_state_dict(first.state_dict())
    resumed.set_epoch(1)
    rest = list(resumed)
    assert len(rest) == 3
    assert all(equal(a, b) for a, b in zip(rest, two_epochs[1][2:], strict=True))
    assert resumed.state_dict() == {"epoch": 2, "batch": 0}


def test_an_abandoned_iteration_starts_over(catalog, two_epochs):
    again = loader(catalog)
    next(iter(again))
    assert equal(next(iter(again)), two_epochs[0][0])


def test_a_place_that_does_not_exist_is_refused(catalog):
    with pytest.raises(ValueError, match="no batch 5 of epoch 0"):
        loader(catalog).load_state_dict({"epoch": 0, "batch": 5})


def test_loading_draws_nothing_from_the_global_generator(catalog):
    before = torch.random.get_rng_state()
    next(iter(loader(catalog)))
    assert torch.equal(before, torch.random.get_rng_state())


def test_ranks_share_one_order_and_have_equally_many_batches():
    parts = [list(EpochBatches(11, 2, 0, rank, 3)) for rank in range(3)]
    assert len({len(p) for p in parts}) == 1
    seen = [index for part in parts for batch in part for _, index in batch]
    assert set(seen) == set(range(11))
    assert len(seen) == 12


@pytest.mark.parametrize(
    ("n", "batch", "sizes"), [(5, 2, [2, 2]), (6, 4, [4, 2]), (1, 4, [1]), (4, 4, [4]), (1, 1, [1])]
)
def test_a_last_batch_of_one_is_left_out_when_there_are_others(n, batch, sizes):
    batches = EpochBatches(n, batch, 0)
    assert [len(b) for b in batches] == sizes
    assert len(batches) == len(sizes)


def test_sampler_arguments_are_checked():
    with pytest.raises(ValueError, match="at least one"):
        EpochBatches(0, 1, 0)
    with pytest.raises(ValueError, match="rank"):
        EpochBatches(4, 1, 0, rank=2, world_size=2)


def sample(n, index=0, **fields):
    boxes = torch.arange(4 * n, dtype=torch.float32).view(n, 4)
    grey = torch.full((3, 32, 32), index, dtype=torch.uint8)
    return Sample(grey, Targets.of(boxes, torch.arange(1, n + 1), **fields), index, (10 + index, 20))


def test_collation_pads_to_the_largest_count():
    batch = collate([sample(1, 0), sample(0, 1), sample(3, 2)])
    assert batch.images.shape == (3, 3, 32, 32)
    assert batch.images.dtype == torch.uint8
    assert batch.valid.tolist() == [[True, False, False], [False] * 3, [True] * 3]
    assert batch.labels.tolist() == [[1, 0, 0], [0, 0, 0], [1, 2, 3]]
    assert batch.boxes[2, 2].tolist() == [8, 9, 10, 11]
    assert batch.boxes[~batch.valid].abs().sum() == 0
    assert batch.indices.tolist() == [0, 1, 2]
    assert batch.sizes.tolist() == [[10, 20], [11, 20], [12, 20]]
    assert batch.rboxes is None
    assert batch.keypoints is None
    assert len(batch) == 3


def test_collation_of_background_alone_has_no_columns():
    batch = collate([sample(0), sample(0)])
    assert batch.boxes.shape == (2, 0, 4)
    assert batch.valid.shape == (2, 0)


def test_collation_carries_keypoints_and_rotated_boxes():
    batch = collate([sample(0), sample(2, keypoints=torch.ones(2, 5, 3), rboxes=torch.ones(2, 5))])
    assert batch.keypoints.shape == (2, 2, 5, 3)
    assert batch.rboxes.shape == (2, 2, 5)
    assert batch.rboxes[0].abs().sum() == 0


def test_collation_refuses_nothing_and_mixed_sizes():
    with pytest.raises(ValueError, match="at least one"):
        collate([])
    other = Sample(torch.zeros(3, 64, 64, dtype=torch.uint8), Targets.empty(), 0, (1, 1))
    with pytest.raises(ValueError, match="one size"):
        collate([sample(0), other])


def test_a_batch_moves_and_pickles_whole():
    batch = collate([sample(2, keypoints=torch.ones(2, 5, 3))])
    assert isinstance(batch.to("cpu"), Batch)
    assert batch.to("meta").keypoints.device.type == "meta"
    assert equal(pickle.loads(pickle.dumps(batch)), batch)


@pytest.mark.parametrize("workers", [0, 1])
def test_evaluation_shows_every_picture_once_in_order(scenes, workers):
    pipeline = EvalPipeline(open_catalog(scenes, "val"), 64)
    batches = list(eval_loader(pipeline, 2, workers=workers))
    assert torch.cat([b.indices for b in batches]).tolist() == [0, 1, 2, 3, 4]
    assert batches[-1].images.shape[0] == 1


def test_worker_counts_are_sane_and_checked(catalog, monkeypatch):
    assert 1 <= default_workers(16, 640) <= max(1, available_cpus())
    assert default_workers(1, 640) == 1
    with pytest.raises(ValueError, match="0 or more"):
        loader(catalog, -1)
    monkeypatch.setattr("lucid_data.workers.memory_limit", lambda *_: 1)
    with pytest.warns(UserWarning, match="8 workers .* using 1"):
        assert loader(catalog, 8)._loader.num_workers == 1


def test_rectangular_evaluation_takes_the_smallest_canvas_and_leaves_no_picture_out(tmp_path, picture):
    sizes = {"a": (427, 640), "b": (640, 427), "c": (100, 640), "d": (427, 640), "e": (640, 640)}
    for name, (height, width) in sizes.items():
        picture(tmp_path / "images" / "train" / f"{name}.png", height, width)
    (tmp_path / "data.yaml").write_text("train: images/train\nnames: [x]\n")
    pipeline = EvalPipeline(open_catalog(tmp_path), 320, rect=True)
    # 427 x 640 becomes 214 x 320, which 224 x 320 holds
    wanted = [(224, 320), (320, 224), (64, 320), (224, 320), (320, 320)]
    assert [pipeline.canvas(i) for i in range(5)] == wanted
    seen = {}
    for batch in eval_loader(pipeline, 4, workers=0):
        for index in batch.indices.tolist():
            seen[index] = tuple(batch.images.shape[-2:])
    assert [seen[i] for i in range(5)] == wanted
    assert len(seen) == 5


def test_rectangular_canvases_go_by_the_pictures_not_by_what_is_stated(tmp_path, picture):
    picture(tmp_path / "train" / "a.png", 80, 320)
    (tmp_path / "annotations").mkdir()
    image = {"id": 1, "file_name": "a.png", "height": 320, "width": 80}
    document = {"images": [image], "annotations": [], "categories": [{"id": 1, "name": "x"}]}
    (tmp_path / "annotations" / "instances_train.json").write_text(json.dumps(document))
    assert EvalPipeline(open_catalog(tmp_path), 640, rect=True).canvas(0) == (160, 640)
