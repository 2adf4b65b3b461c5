"""Replay of a fit's fixed-shape work: which parts, on what, and how each is declared."""

from lucid_train.replay.compiled import CompiledStep
from lucid_train.replay.loss import ReplayedDetection
from lucid_train.replay.network import NetworkRoute
from lucid_train.replay.plan import ReplayPlan, replay_plan
from lucid_train.replay.table import REPLAY_SWITCHES, ReplaySwitch
from lucid_train.replay.whole import ReplayedStep

__all__ = [
    "REPLAY_SWITCHES",
    "CompiledStep",
    "NetworkRoute",
    "ReplayPlan",
    "ReplaySwitch",
    "ReplayedDetection",
    "ReplayedStep",
    "replay_plan",
]
