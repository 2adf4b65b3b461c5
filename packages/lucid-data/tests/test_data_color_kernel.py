"""The fused colour kernels compute the bytes of the torch expressions."""

import os
import subprocess
import sys

import pytest
import torch

from lucid_data import jitter_batch

INTERPRETED = """
import torch
from lucid_data import jitter_batch

g = torch.Generator().manual_seed(0)
images = torch.randint(0, 256, (5, 3, 96, 67), generator=g, dtype=torch.uint8)
images[0, :, :16] = images[0, :1, :16]  # grey
images[1, :, :8] = 0
images[1, :, 8:16] = 255
gains = (torch.rand(5, 3, generator=g, dtype=torch.float64) - 0.5) * torch.tensor([1.0, 1.8, 1.8])
gains[2] = torch.tensor([0.5, -1.0, 1.0])
gains[4] = 0
for form in (torch.contiguous_format, torch.channels_last):
    moved = jitter_batch(images.contiguous(memory_format=form), gains, fused=True)
    assert moved.is_contiguous()
    assert torch.equal(moved, jitter_batch(images, gains)), form
assert jitter_batch(images[:0], gains[:0], fused=True).shape == (0, 3, 96, 67)
print("equal")
"""


def test_interpreted_it_gives_the_same_bytes_from_either_memory_format():
    pytest.importorskip("triton", reason="Triton is not installed")
    environment = os.environ | {"TRITON_INTERPRET": "1"}
    done = subprocess.run(
        [sys.executable, "-c", INTERPRETED], env=environment, capture_output=True, text=True, check=False
    )
    assert done.stdout == "equal\n", done.stderr


def test_without_triton_it_is_refused_with_the_remedy(monkeypatch):
    monkeypatch.setitem(sys.modules, "triton", None)
    monkeypatch.delitem(sys.modules, "lucid_data.kernels.triton_hsv", raising=False)
    monkeypatch.setenv("TRITON_INTERPRET", "1")
    with pytest.raises(ImportError, match="extra 'triton'"):
        jitter_batch(
            torch.zeros(1, 3, 4, 4, dtype=torch.uint8), torch.zeros(1, 3, dtype=torch.float64), fused=True
        )


def test_on_a_device_without_a_kernel_it_is_refused_with_the_reason():
    images = torch.zeros(1, 3, 4, 4, dtype=torch.uint8, device="meta")
    with pytest.raises(ValueError, match="needs images on a CUDA device or a CPU; these are on meta"):
        jitter_batch(images, torch.zeros(1, 3, dtype=torch.float64), fused=True)


@pytest.mark.gpu
@pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a CUDA device")
def test_on_a_device_it_gives_the_same_bytes():
    g = torch.Generator().manual_seed(0)
    images = torch.randint(0, 256, (16, 3, 640, 640), generator=g, dtype=torch.uint8)
    gains = (torch.rand(16, 3, generator=g, dtype=torch.float64) - 0.5) * torch.tensor([1.0, 1.8, 1.8])
    expected = jitter_batch(images, gains)
    for form in (torch.contiguous_format, torch.channels_last):
        on_device = images.cuda().contiguous(memory_format=form)
        assert torch.equal(jitter_batch(on_device, gains.cuda(), fused=True).cpu(), expected)
