"""One rule for what a device's name means, held to what torch says is here."""

import pytest
import torch

from lucid_train import ConfigError, FitConfig, chosen_device
from lucid_train.device import check_hardware


@pytest.fixture
def machine(monkeypatch):
    """Make torch say how many CUDA devices there are, and whether mps is one."""

    def pretend(cuda, mps=False):
        monkeypatch.setattr(torch.cuda, "is_available", lambda: cuda > 0)
        monkeypatch.setattr(torch.cuda, "device_count", lambda: cuda)
        monkeypatch.setattr(torch.backends.mps, "is_available", lambda: mps)

    return pretend


@pytest.mark.parametrize(
    ("name", "device"),
    [
        ("auto", "cuda"),
        ("cuda", "cuda"),
        ("cuda:0", "cuda:0"),
        ("cuda:1", "cuda:1"),
        ("cuda:01", "cuda:1"),
        ("mps", "mps"),
        ("mps:0", "mps"),
        ("cpu", "cpu"),
        ("cpu:0", "cpu"),
    ],
)
def test_a_kind_may_have_a_number_and_cuda_keeps_it(machine, name, device):
    machine(cuda=2, mps=True)
    assert chosen_device(name) == device
    torch.device(chosen_device(name))


@pytest.mark.parametrize(
    "name", ["cuda:2", "cuda:", "cuda:-1", "cuda:x", "cuda:1:1", "mps", "cpu:1", "meta", "tpu:0", "", ":0"]
)
def test_what_is_not_here_is_refused_with_what_is(machine, name):
    machine(cuda=2)
    with pytest.raises(ConfigError) as refused:
        chosen_device(name)
    assert str(refused.value) == f"run.device = {name!r}: not available here; choose auto, cuda, cpu"


@pytest.mark.parametrize(("cuda", "mps", "auto"), [(1, True, "cuda"), (0, True, "mps"), (0, False, "cpu")])
def test_auto_takes_the_fastest_kind_there_is(machine, cuda, mps, auto):
    machine(cuda, mps)
    assert chosen_device("auto") == auto


def test_a_fit_counts_the_devices_of_its_kind(machine):
    machine(cuda=2)
    check_hardware(FitConfig().updated(run={"device": "cuda", "devices": 2}))
    with pytest.raises(ConfigError, match=r"run\.devices = 3: there is room for 2 here on cuda"):
        check_hardware(FitConfig().updated(run={"device": "auto", "devices": 3}))


def test_a_fit_names_a_kind_without_a_number():
    with pytest.raises(ConfigError, match=r"run\.device = 'cuda:1'"):
        FitConfig().updated(run={"device": "cuda:1"})
