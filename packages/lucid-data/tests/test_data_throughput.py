import os
import pickle
from dataclasses import replace

import pytest
import torch

from lucid_data import (
    TrainPipeline,
    cache_pictures,
    collate,
    jitter_batch,
    open_catalog,
    policy_for,
    synthetic,
    train_loader,
)
from lucid_data.transforms.color import ColorParams, jitter_color
from lucid_data.workers import _left_to_group


@pytest.fixture(scope="module")
def catalog(scenes):
    return open_catalog(scenes)


def same(a, b):
    fields = ("boxes", "labels", "area", "difficult", "mask_ok", "crowd")
    return torch.equal(a.image, b.image) and all(
        torch.equal(getattr(a.targets, f), getattr(b.targets, f)) for f in fields
    )


@pytest.mark.parametrize("prepared", [None, 96])
@pytest.mark.parametrize("kind", ["coco", "yolo"])
def test_samples_are_the_same_with_a_cache(tmp_path, prepared, kind):
    root = getattr(synthetic, f"write_{kind}")(tmp_path, splits={"train": 9}, size=120)
    catalog = open_catalog(root)
    cache = cache_pictures(catalog, prepared)
    policy = replace(policy_for("m"), degrees=5.0)
    for p in (policy, policy_for("m")):
        plain, cached = TrainPipeline(catalog, 96, p, 1), TrainPipeline(catalog, 96, p, 1, cache=cache)
        for epoch, index in ((0, 0), (0, 4), (1, 8), (3, 2)):
            assert same(plain(epoch, index), cached(epoch, index))


def test_a_photograph_set_is_the_same_with_a_cache(shared_data):
    catalog = open_catalog(shared_data / "coco_subset", "val").subset(range(12))
    plain = TrainPipeline(catalog, 320, policy_for("s"), 1)
    for size in (None, 320):
        cached = TrainPipeline(catalog, 320, policy_for("s"), 1, cache=cache_pictures(catalog, size))
        assert all(same(plain(0, i), cached(0, i)) for i in range(6))


def test_a_cache_is_not_decoded_again_and_cannot_be_changed_through_a_sample(catalog, monkeypatch):
    cache = cache_pictures(catalog)
    first = cache.image(0)
    monkeypatch.setattr(type(catalog), "image", lambda self, i: pytest.fail("decoded"))
    TrainPipeline(catalog, 96, policy_for("n"), 1, cache=cache)(0, 3)
    first.zero_()
    assert cache.image(0).any()


def test_a_view_of_the_cache_is_its_picture_without_a_copy(catalog):
    cache = cache_pictures(catalog)
    assert torch.equal(cache.view(1), cache.image(1))
    assert cache.view(1).data_ptr() == cache.view(1).data_ptr() != cache.image(1).data_ptr()


@pytest.mark.parametrize("context", ["fork", "spawn"])
def test_workers_share_the_cache(catalog, context, monkeypatch):
    cache = cache_pictures(catalog, 96)
    pipeline = TrainPipeline(catalog, 96, policy_for("n"), 1, cache=cache)
    loader = train_loader(pipeline, 12, workers=1)
    loader._loader.multiprocessing_context = context
    plain = train_loader(TrainPipeline(catalog, 96, policy_for("n"), 1), 12, workers=0)
    for a, b in zip(loader, plain, strict=True):
        assert torch.equal(a.images, b.images)
        assert torch.equal(a.boxes, b.boxes)


def test_a_file_listed_twice_is_kept_once_and_the_bytes_are_stated(catalog):
    twice = catalog.subset([0, 0, 1])
    cache = cache_pictures(twice)
    assert cache.nbytes == 2 * 3 * 96 * 96
    assert cache.slots.tolist() == [0, 0, 1]
    assert torch.equal(cache.image(1), catalog.image(0))
    assert cache.path.stat().st_size == cache.nbytes


def test_a_cache_that_would_not_fit_is_refused_before_it_is_made(catalog, monkeypatch, tmp_path):
    monkeypatch.setattr("lucid_data.picture_cache.available_memory", lambda: 1 << 10)
    before = set(os.listdir("/dev/shm")) if os.path.isdir("/dev/shm") else set()
    with pytest.raises(MemoryError, match="GiB"):
        cache_pictures(catalog)
    assert {n for n in os.listdir("/dev/shm") if n.startswith("lucid-pictures-")} <= before


def test_a_preparation_that_fails_leaves_nothing_behind(tmp_path):
    root = synthetic.write_coco(tmp_path / "s", splits={"train": 3}, size=64)
    broken = root / "train" / "00002.png"
    broken.write_bytes(broken.read_bytes()[:200])
    catalog = open_catalog(root)
    with pytest.raises(OSError, match=r"00002\.png"):
        cache_pictures(catalog, directory=tmp_path / "cache")
    assert list((tmp_path / "cache").iterdir()) == []


def test_a_folder_cache_is_found_again_and_missed_when_a_picture_changes(tmp_path, picture, monkeypatch):
    root = synthetic.write_coco(tmp_path / "s", splits={"train": 3}, size=64)
    catalog = open_catalog(root)
    first = cache_pictures(catalog, directory=tmp_path / "cache")
    with monkeypatch.context() as patched:
        patched.setattr(type(catalog), "image", lambda self, i: pytest.fail("decoded"))
        assert cache_pictures(catalog, directory=tmp_path / "cache").path == first.path
    picture(root / "train" / "00002.png", 64, 64)
    second = cache_pictures(catalog, directory=tmp_path / "cache")
    assert second.path != first.path
    assert torch.equal(second.image(1), catalog.image(1))


def test_shared_memory_goes_with_the_cache(catalog):
    cache = cache_pictures(catalog)
    path = cache.path
    assert path.is_file()
    copy = pickle.loads(pickle.dumps(cache))
    assert torch.equal(copy.image(3), catalog.image(3))
    del copy
    assert path.is_file()
    del cache
    assert not path.exists()


def test_a_cache_of_something_else_is_refused(catalog):
    with pytest.raises(ValueError, match="canvas 64"):
        TrainPipeline(catalog, 96, policy_for("n"), 1, cache=cache_pictures(catalog, 64))
    with pytest.raises(ValueError, match="holds 2 pictures"):
        TrainPipeline(catalog, 96, policy_for("n"), 1, cache=cache_pictures(catalog.subset([0, 1])))


def test_colour_on_the_device_gives_the_workers_bytes(catalog):
    policy = replace(policy_for("s"), flip_horizontal=0.5, flip_vertical=0.5, mixup=0.5)
    worker = TrainPipeline(catalog, 96, policy, 1)
    bare = TrainPipeline(catalog, 96, policy, 1, device_color=True)
    pairs = [(worker(0, i), bare(0, i)) for i in range(8)]
    batch = collate([b for _, b in pairs])
    assert batch.color.dtype == torch.float64
    assert collate([a for a, _ in pairs]).color is None
    moved = jitter_batch(batch.images, batch.color)
    assert torch.equal(moved, torch.stack([a.image for a, _ in pairs]))
    # whether channels lie side by side is the worker's affair and ends here
    assert moved.is_contiguous()
    assert not torch.equal(batch.images, torch.stack([a.image for a, _ in pairs]))
    assert all(torch.equal(a.targets.boxes, b.targets.boxes) for a, b in pairs)


def test_every_code_agrees_with_the_worker_for_many_gains():
    g = torch.Generator().manual_seed(0)
    images = torch.randint(0, 256, (6, 3, 256, 256), generator=g, dtype=torch.uint8)
    images[0, :, :64] = images[0, :1, :64]  # grey
    gains = (torch.rand(6, 3, generator=g, dtype=torch.float64) - 0.5) * torch.tensor([1.0, 1.8, 1.8])
    gains[5] = 0
    expected = [jitter_color(i, ColorParams(*row)) for i, row in zip(images, gains.tolist(), strict=True)]
    moved = jitter_batch(images, gains)
    # a double rounding in ten million is the distance of fused float32 from float64
    assert (moved != torch.stack(expected)).sum() == 0
    assert torch.equal(moved[5], images[5])


def test_a_division_by_a_number_would_be_noticed():
    # what a device makes of x / 6 is x * (1 / 6): another float32 for a third of all codes
    codes = torch.arange(0, 1530, dtype=torch.float32)
    assert (codes / torch.tensor(6.0) != codes * (1.0 / 6.0)).sum() > 100


def test_gains_and_images_are_checked():
    with pytest.raises(ValueError, match="gains"):
        jitter_batch(torch.zeros(2, 3, 4, 4, dtype=torch.uint8), torch.zeros(1, 3, dtype=torch.float64))
    with pytest.raises(TypeError, match="float64"):
        jitter_batch(torch.zeros(1, 3, 4, 4, dtype=torch.uint8), torch.zeros(1, 3))


def test_epoch_prefetch_changes_no_batch_and_starts_early(catalog):
    pipeline = TrainPipeline(catalog, 64, policy_for("n"), 1, mosaic_epochs=1)
    early = train_loader(pipeline, 8, workers=1, epoch_prefetch=True)
    plain = train_loader(pipeline, 8, workers=0)
    for epoch in range(3):
        early.set_epoch(epoch)
        plain.set_epoch(epoch)
        for a, b in zip(early, plain, strict=True):
            assert torch.equal(a.images, b.images)
        assert early._ready[0] == epoch + 1
        assert early.state_dict() == plain.state_dict() == {"epoch": epoch + 1, "batch": 0}


def test_an_early_start_that_is_not_used_loses_nothing(catalog):
    pipeline = TrainPipeline(catalog, 64, policy_for("n"), 1)
    early = train_loader(pipeline, 8, workers=1, epoch_prefetch=True)
    list(early)
    early.load_state_dict({"epoch": 5, "batch": 1})
    resumed = [b.indices.tolist() for b in early]
    plain = train_loader(pipeline, 8, workers=0)
    plain.load_state_dict({"epoch": 5, "batch": 1})
    assert resumed == [b.indices.tolist() for b in plain]


def test_an_early_start_that_fails_surfaces_when_its_epoch_is_asked_for(catalog, monkeypatch):
    early = train_loader(TrainPipeline(catalog, 64, policy_for("n"), 1), 12, workers=1, epoch_prefetch=True)
    batches = iter(early)
    next(batches)

    def broken(self):
        raise RuntimeError("no worker")

    with monkeypatch.context() as patched:
        patched.setattr(type(early._loader), "__iter__", broken)
        assert len(list(batches)) == 1
    with pytest.raises(RuntimeError, match="no worker"):
        list(early)
    assert len(list(early)) == 2


def test_a_containers_memory_limit_is_what_is_free(tmp_path):
    assert _left_to_group(tmp_path) == []
    (tmp_path / "memory.current").write_text("300\n")
    for limit, left in (("max", []), ("1000", [700]), ("200", [0])):
        (tmp_path / "memory.max").write_text(f"{limit}\n")
        assert _left_to_group(tmp_path) == left
