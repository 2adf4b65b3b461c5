"""MuSGD, a hybrid of Muon and SGD, for any torch model."""

from lucid_optim.ema import ModelEMA
from lucid_optim.explain import explain
from lucid_optim.groups import param_groups
from lucid_optim.musgd import MuSGD
from lucid_optim.newton_schulz import newton_schulz, newton_schulz_batch
from lucid_optim.presets import PRESETS, Preset
from lucid_optim.schedule import progressive_weight, warmup_linear_decay

__all__ = [
    "PRESETS",
    "ModelEMA",
    "MuSGD",
    "Preset",
    "explain",
    "newton_schulz",
    "newton_schulz_batch",
    "param_groups",
    "progressive_weight",
    "warmup_linear_decay",
]
