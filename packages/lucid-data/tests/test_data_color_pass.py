"""The compiled pass over a picture's pixels computes the bytes of the torch expressions, where it is asked for."""

import os
import subprocess
import sys
from dataclasses import fields, replace

import pytest
import torch

from lucid_data import TrainPipeline, collate, jitter_batch, open_catalog, policy_for, synthetic
from lucid_data.transforms.color import ColorParams, jitter_color


@pytest.fixture(scope="module")
def catalog(tmp_path_factory):
    root = synthetic.write_coco(tmp_path_factory.mktemp("scenes"), splits={"train": 6}, size=64)
    return open_catalog(root)


@pytest.fixture
def numba():
    return pytest.importorskip("numba", reason="Numba is not installed")


@pytest.fixture
def without_numba(monkeypatch):
    monkeypatch.setitem(sys.modules, "numba", None)
    monkeypatch.delitem(sys.modules, "lucid_data.kernels.numba_hsv", raising=False)


def all_colours():
    codes = torch.arange(1 << 24)
    return torch.stack([(codes >> shift & 255).to(torch.uint8) for shift in (16, 8, 0)]).view(3, 4096, 4096)


@pytest.mark.parametrize(
    "gains",
    [
        (-0.5, -1.0, 1.0),
        (0.0, 0.7, 0.0),
        # taken to float32 before they are scaled or increased, these would give other codes
        (-0.2449309742605783, -0.009129825816118098, -0.10101787042252375),
        (0.262280082457942, -0.9957878932977786, -0.10922561189039715),
        (0.22154003234078257, -0.5424755574590947, 0.8905413911078446),
    ],
)
@pytest.mark.usefixtures("numba")
def test_every_colour_there_is_comes_out_the_same(gains):
    colours = all_colours()
    params = ColorParams(*gains)
    assert torch.equal(jitter_color(colours, params, fused=True), jitter_color(colours, params))


@pytest.mark.usefixtures("numba")
def test_neither_the_memory_layout_nor_the_size_matters():
    g = torch.Generator().manual_seed(0)
    params = ColorParams(-0.01, 0.4, 0.2)
    for height, width in ((1, 1), (7, 13), (37, 129), (0, 5)):
        image = torch.randint(0, 256, (height, width, 3), generator=g, dtype=torch.uint8).permute(2, 0, 1)
        for one in (image, image.contiguous(), image.flip(2)):
            moved = jitter_color(one, params, fused=True)
            assert torch.equal(moved, jitter_color(one, params))
            assert moved.is_contiguous()
    assert torch.equal(jitter_color(image, ColorParams(), fused=True), image)


@pytest.mark.parametrize("form", [torch.contiguous_format, torch.channels_last])
@pytest.mark.usefixtures("numba")
def test_a_batch_on_the_cpu_comes_out_the_same_and_a_picture_without_gains_untouched(form):
    g = torch.Generator().manual_seed(1)
    images = torch.randint(0, 256, (4, 3, 33, 65), generator=g, dtype=torch.uint8).contiguous(
        memory_format=form
    )
    gains = (torch.rand(4, 3, generator=g, dtype=torch.float64) - 0.5) * torch.tensor([1.0, 1.8, 1.8])
    gains[2] = 0
    moved = jitter_batch(images, gains, fused=True)
    assert moved.is_contiguous()
    assert torch.equal(moved, jitter_batch(images, gains))
    assert torch.equal(moved[2], images[2])
    assert jitter_batch(images[:0], gains[:0], fused=True).shape == (0, 3, 33, 65)


@pytest.mark.usefixtures("numba")
def test_samples_are_the_same_and_each_is_coloured_by_the_compiled_pass(catalog, monkeypatch):
    from lucid_data.kernels import numba_hsv

    run, calls = numba_hsv.jitter_picture, []
    monkeypatch.setattr(numba_hsv, "jitter_picture", lambda *given: calls.append(given) or run(*given))
    policy = replace(policy_for("x"), degrees=5.0, mixup=0.5, flip_vertical=0.5)
    for given in (policy, policy_for("n")):
        plain = TrainPipeline(catalog, 64, given, 1)
        fused = TrainPipeline(catalog, 64, given, 1, fused_color=True)
        before = len(calls)
        for index in range(6):
            expected, sample = plain(0, index), fused(0, index)
            assert torch.equal(sample.image, expected.image)
            for field in fields(sample.targets):
                one, other = getattr(sample.targets, field.name), getattr(expected.targets, field.name)
                assert torch.equal(one, other) if isinstance(one, torch.Tensor) else len(one) == len(other)
        assert len(calls) - before == 6


COLOURED = """
import torch
from lucid_data import jitter_batch
from lucid_data.transforms.color import ColorParams, jitter_color

codes = torch.arange(0, 1 << 24, 29)
colours = torch.stack([(codes >> shift & 255).to(torch.uint8) for shift in (16, 8, 0)])[:, None]
for gains in ((0.0, 0.0, 0.1), (0.01, 0.4, -0.3)):
    expected = jitter_color(colours, ColorParams(*gains))
    batch = colours[None], torch.tensor([gains], dtype=torch.float64)
    assert torch.equal(jitter_batch(*batch)[0], expected)
    assert torch.equal(jitter_color(colours, ColorParams(*gains), fused=True), expected)
total = int(expected.sum())
"""


@pytest.mark.usefixtures("numba")
def test_a_processor_that_multiplies_and_adds_in_two_steps_makes_the_same_colours():
    found = {}
    exec(COLOURED, found)
    done = subprocess.run(
        [sys.executable, "-c", COLOURED + "print(total)"],
        env=os.environ | {"ATEN_CPU_CAPABILITY": "default"},
        capture_output=True,
        text=True,
    )
    assert done.returncode == 0, done.stderr
    assert int(done.stdout) == found["total"]


def test_a_worker_that_leaves_colour_to_the_device_needs_no_numba(catalog, without_numba):
    pipeline = TrainPipeline(catalog, 64, policy_for("n"), 1, device_color=True, fused_color=True)
    assert collate([pipeline(0, 0)]).color is not None


def test_without_numba_it_is_refused_with_the_remedy_before_a_sample_is_made(catalog, without_numba):
    with pytest.raises(ImportError, match=r"needs Numba .*extra 'numba'"):
        TrainPipeline(catalog, 64, policy_for("n"), 1, fused_color=True)
    images = torch.zeros(1, 3, 4, 4, dtype=torch.uint8)
    with pytest.raises(ImportError, match=r"needs Numba .*extra 'numba'"):
        jitter_batch(images, torch.ones(1, 3, dtype=torch.float64), fused=True)


def test_a_numba_that_cannot_be_imported_is_refused_with_the_cause(catalog, tmp_path, monkeypatch):
    (tmp_path / "numba.py").write_text("raise SystemError('initialization of _internal failed')")
    monkeypatch.syspath_prepend(tmp_path)
    for name in ("numba", "lucid_data.kernels.numba_hsv"):
        monkeypatch.delitem(sys.modules, name, raising=False)
    with pytest.raises(ImportError, match=r"needs Numba .*initialization of _internal failed"):
        TrainPipeline(catalog, 64, policy_for("n"), 1, fused_color=True)


@pytest.mark.parametrize(
    "fault", [RuntimeError("no locator available"), OSError(28, "No space left on device"), EOFError()]
)
def test_where_nothing_can_be_cached_it_is_compiled_all_the_same(numba, monkeypatch, fault):
    from lucid_data.kernels import numba_hsv

    compile_it, asked = numba.njit, []

    def nowhere(*given, cache=False, **options):
        asked.append(cache)
        if cache:
            raise fault
        return compile_it(*given, **options)

    monkeypatch.setattr(numba, "njit", nowhere)
    monkeypatch.setattr(numba_hsv, "_run", numba_hsv._compiled())
    assert asked == [True, False]
    image, params = all_colours()[:, ::640, ::640], ColorParams(0.01, 0.2, 0.3)
    assert torch.equal(jitter_color(image, params, fused=True), jitter_color(image, params))
