"""The matrix of switches: what a row claims, and that rows come from fits that really ran."""

import pytest

import lucid_train.proof
from lucid_capture import GuardedRegion, Reason
from lucid_train import REPLAY_SWITCHES, SPEED_SWITCHES, ConfigError, FitConfig, ProofRow, prove


def test_a_switch_is_proved_by_equal_bytes_and_exact_launches(tmp_path):
    native, norm = prove(tmp_path, ["detect"], ["capture_gradient_norm"])
    assert (native.switch, native.equal) == ("native", True)
    # two epochs of two optimizer steps: the first is a first sighting
    assert norm == ProofRow("detect", "capture_gradient_norm", True, launches=3, eager=1)
    assert norm.proved


def test_a_fit_whose_replay_is_turned_into_native_calls_is_no_proof(tmp_path, monkeypatch):
    monkeypatch.setattr(GuardedRegion, "__call__", lambda self, *args: self._native(Reason.REPLAYED, args))
    _, row = prove(tmp_path, ["detect"], ["capture_gradient_norm"])
    assert row.equal
    assert not row.proved


def test_bytes_that_differ_are_no_proof_and_what_cannot_be_had_is_none_against_it():
    assert not ProofRow("detect", "device_hsv", False).proved
    assert ProofRow("detect", "fused_assignment", None).proved
    assert ProofRow("detect", "device_hsv", True).proved


@pytest.mark.parametrize(("tasks", "switches"), [(["boxes"], None), (["detect"], ["capture_everything"])])
def test_unknown_tasks_and_switches_are_refused(tmp_path, tasks, switches):
    with pytest.raises(ConfigError, match="is none of"):
        next(prove(tmp_path, tasks, switches))


def test_every_switch_of_the_configuration_is_in_the_matrix():
    config = FitConfig()
    flags = set(type(config.replay).model_fields) - {"mode", "backend"}
    flags |= {name for name, value in config.data if value is False}
    assert flags | {"fused_assignment"} == {*REPLAY_SWITCHES, *SPEED_SWITCHES}


@pytest.mark.parametrize("fault", [None, "not here"])
def test_all_together_has_what_can_be_had_here(fault, monkeypatch):
    monkeypatch.setattr(lucid_train.proof, "numba_fault", lambda: fault)
    together = lucid_train.proof._settings("detect", "all", "cpu")
    assert together.get("data.fused_hsv", False) is (fault is None)
    assert "data.cache_train_images" not in together
    assert together["data.device_hsv"]


def test_a_recording_that_was_never_launched_proves_nothing_beside_one_that_was():
    assert not ProofRow("pose", "capture_network", True, launches=3, idle=("capture_network: heads",)).proved
