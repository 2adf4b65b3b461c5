"""Colour on the device, prefetched epochs and both caches change nothing that is learned."""

import sys
from importlib.util import find_spec

import pytest

import lucid_train.datamodule
from lucid_train import ConfigError, DetectionDataModule, DetectionLitModule, fit, usable_switches
from lucid_train.config import LossConfig
from lucid_train.switches import numba_fault

SWITCHES = {
    "device_hsv": {},
    **({"fused_hsv": {}} if find_spec("numba") else {}),
    "epoch_prefetch": {"data.workers": 2},
    "cache_train_images": {},
    "cache_prepared_train_images": {},
}


@pytest.fixture(scope="module")
def short(scenes, tmp_path_factory):
    """Return a function that runs two epochs of two steps with settings replaced, and gives its result."""
    from lucid_train import load_config

    root = tmp_path_factory.mktemp("switches")
    settings = {
        "data.path": str(scenes),
        "data.train_split": "val",
        "data.image_size": 32,
        "data.batch": 4,
        "data.workers": 0,
        "run.epochs": 2,
        "run.device": "cpu",
        "run.fingerprint": True,
    }

    def build(name, **overrides):
        return load_config("detect", settings | {"run.output": str(root / name)} | overrides)

    return build


@pytest.fixture(scope="module")
def plain(short):
    return fit(short("plain")).fingerprint


@pytest.mark.parametrize("switch", SWITCHES)
def test_a_fit_learns_the_same_bytes_with(switch, short, plain):
    assert fit(short(switch, **{f"data.{switch}": True}, **SWITCHES[switch])).fingerprint == plain


def test_a_fit_learns_the_same_bytes_with_all_of_them_that_go_together(short, plain):
    on = {f"data.{name}": True for name in SWITCHES if name != "cache_train_images"}
    assert fit(short("all", **on, **{"data.workers": 2})).fingerprint == plain


def test_colour_that_the_device_does_not_apply_is_noticed(short, plain, monkeypatch):
    monkeypatch.setattr(lucid_train.datamodule, "jitter_batch", lambda images, gains, fused: images)
    assert fit(short("grey", **{"data.device_hsv": True})).fingerprint != plain


def test_colour_is_compiled_in_workers_and_on_a_cpu_where_the_device_applies_it(short, monkeypatch):
    pytest.importorskip("numba", reason="Numba is not installed")
    asked = []
    jitter = lucid_train.datamodule.jitter_batch

    def watched(images, gains, fused):
        asked.append(fused)
        return jitter(images, gains, fused=fused)

    monkeypatch.setattr(lucid_train.datamodule, "jitter_batch", watched)
    for fused in (False, True):
        switched = {"data.fused_hsv": fused}
        assert DetectionDataModule(short("in", **switched)).train_pipeline().fused_color is fused
        data = DetectionDataModule(short("on", **switched, **{"data.device_hsv": True}))
        data.on_after_batch_transfer(next(iter(data.train_dataloader())), 0)
    assert asked == [False, True]


def test_compiled_colour_without_its_compiler_is_refused_and_left_out_of_what_can_be_used(short, monkeypatch):
    monkeypatch.setitem(sys.modules, "numba", None)
    monkeypatch.delitem(sys.modules, "lucid_data.kernels.numba_hsv", raising=False)
    numba_fault.cache_clear()
    try:
        with pytest.raises(
            ConfigError, match=r"data\.fused_hsv needs Numba \(.*\); install .*--no-fused-hsv$"
        ):
            fit(short("bare", **{"data.fused_hsv": True}))
        assert not (short("bare").run.output).exists()
        assert usable_switches("cpu")["fused_hsv"].startswith("needs Numba (")
    finally:
        numba_fault.cache_clear()


@pytest.mark.parametrize(
    ("switch", "canvas"), [("cache_train_images", None), ("cache_prepared_train_images", 32)]
)
def test_a_cache_serves_every_training_picture(short, switch, canvas):
    pipeline = DetectionDataModule(short("cached", **{f"data.{switch}": True})).train_pipeline()
    assert pipeline.cache.image_size == canvas
    assert all(index in pipeline.cache for index in range(6))


def test_two_caches_at_once_are_refused(short):
    both = {"data.cache_train_images": True, "data.cache_prepared_train_images": True}
    with pytest.raises(ConfigError, match=r"cache_prepared_train_images.*leave data\.cache_train_images out"):
        fit(short("both", **both))


def test_prefetched_epochs_without_workers_are_refused(short):
    with pytest.raises(ConfigError, match=r"data\.epoch_prefetch.*--workers"):
        fit(short("alone", **{"data.epoch_prefetch": True}))


def test_fused_assignment_is_refused_without_its_device_and_reaches_the_loss_with_it(short):
    with pytest.raises(ConfigError, match=r"loss\.fused_assignment needs an NVIDIA device.*leave it out"):
        fit(short("fused", **{"loss.fused_assignment": True}))
    for wanted in (False, True):
        module = DetectionLitModule("obb", "n", 2, loss=LossConfig(fused_assignment=wanted))
        assert module.criterion.detection.fused_assignment is wanted


def test_a_run_is_resumed_with_other_data_switches(short):
    from lucid_train.run_folder import require_same

    require_same(short("one"), short("one", **{f"data.{name}": True for name in SWITCHES}))
