"""What is said of this machine's switches is what a fit would be told."""

from importlib.util import find_spec

import pytest
import torch

from lucid_train import REPLAY_SWITCHES, SPEED_SWITCHES, ConfigError, usable_switches

REPLAY = dict.fromkeys(REPLAY_SWITCHES, "needs a CUDA device, and this run is on cpu")


@pytest.fixture
def card(monkeypatch):
    """Pretend there is one CUDA device of a compute capability, with Triton or without."""

    def pretend(capability, triton=True):
        monkeypatch.setattr(torch.cuda, "is_available", lambda: True)
        monkeypatch.setattr(torch.cuda, "device_count", lambda: 1)
        monkeypatch.setattr(torch.cuda, "get_device_capability", lambda *_: capability)
        monkeypatch.setattr("lucid_train.replay.plan.CudaBackend", object)
        monkeypatch.setattr("lucid_train.available.find_spec", lambda name: object() if triton else None)

    return pretend


def refused(found):
    missing = set() if find_spec("numba") else {"fused_hsv"}
    return {name: why for name, why in found.items() if why is not None and name not in missing}


def test_on_a_cpu_loading_gets_faster_and_nothing_is_replayed():
    found = usable_switches("cpu")
    assert list(found) == [*REPLAY_SWITCHES, *SPEED_SWITCHES]
    assert refused(found) == REPLAY | {"fused_assignment": "needs an NVIDIA device and Triton"}


def test_on_a_new_card_every_switch_can_be_used(card):
    card((9, 0))
    assert refused(usable_switches()) == {}


def test_kernels_need_triton_and_those_of_the_assignment_a_newer_card(card):
    card((7, 5))
    assert refused(usable_switches("cuda")) == {
        "fused_assignment": "needs a device of compute capability 8.0 or newer"
    }
    card((9, 0), triton=False)
    assert refused(usable_switches("cuda")) == dict.fromkeys(
        ("compile_step", "fused_assignment"), "needs Triton, which is not installed"
    )


def test_a_device_that_is_not_here_is_refused(monkeypatch):
    monkeypatch.setattr(torch.backends.mps, "is_available", lambda: False)
    with pytest.raises(ConfigError, match=r"run\.device = 'mps': not available here"):
        usable_switches("mps")
