"""Which of the opt-in switches this machine can use, and why not the others."""

from importlib.util import find_spec
from typing import Any

import torch

from lucid_train.config import ConfigError, load_config
from lucid_train.device import chosen_device
from lucid_train.proof import SPEED_SWITCHES
from lucid_train.replay import REPLAY_SWITCHES, replay_plan
from lucid_train.switches import check_switches

# what runs Triton kernels besides a CUDA device, and the oldest of those that the assignment's kernels know
_TRITON = ("fused_assignment", "compile_step")
_OLDEST = {"fused_assignment": (8, 0)}


def usable_switches(device: str = "auto") -> dict[str, str | None]:
    """Return every switch by name: None where a fit here could have it on, else the reason in words.

    Each switch is asked of a task and a precision that it is for. Nothing is run.

    Args:
        device: where the fit would be: ``auto``, ``cpu``, ``cuda`` or ``mps``.

    Raises:
        ConfigError: there is no such device here.

    Example:
        >>> usable_switches("cpu")["device_hsv"] is None
        True
        >>> usable_switches("cpu")["capture_network"]
        'needs a CUDA device, and this run is on cpu'
    """
    chosen_device(device)
    return {name: _refusal(name, device) for name in (*REPLAY_SWITCHES, *SPEED_SWITCHES)}


def _refusal(name: str, device: str) -> str | None:
    wanted: dict[str, Any] = {"run.device": device}
    task = "detect"
    if name in REPLAY_SWITCHES:
        switch = REPLAY_SWITCHES[name]
        task = switch.tasks[0]
        wanted |= {f"replay.{name}": True, "run.precision": switch.precisions[0]}
    else:
        wanted |= SPEED_SWITCHES[name]
    config = load_config(task, wanted)
    try:
        check_switches(config)
        replay_plan(config)
    except ConfigError as refused:
        # "section.key <what is the case>; <what to do>"
        return str(refused).partition(" ")[2].partition(";")[0]
    if name in _TRITON and find_spec("triton") is None:
        return "needs Triton, which is not installed"
    if name in _OLDEST and torch.cuda.get_device_capability() < _OLDEST[name]:
        return f"needs a device of compute capability {'.'.join(map(str, _OLDEST[name]))} or newer"
    return None
