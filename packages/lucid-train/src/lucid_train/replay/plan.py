"""What a configuration has replayed, and on which back-end; impossible wishes are refused before a run begins."""

import logging
from dataclasses import dataclass

from lucid_capture import CudaBackend, RecorderBackend, TapeBackend
from lucid_train.config import ConfigError, FitConfig, Setting
from lucid_train.device import chosen_device
from lucid_train.replay.table import REPLAY_SWITCHES

log = logging.getLogger("lucid")


@dataclass(frozen=True)
class ReplayPlan:
    """The switches that are on, their back-end (None with no switch), and whether to keep only what is faster."""

    mode: str
    switches: tuple[str, ...] = ()
    backend: RecorderBackend | None = None
    measured: bool = False

    def has(self, switch: str) -> bool:
        """Return whether a switch is on."""
        return switch in self.switches


def replay_plan(config: FitConfig) -> ReplayPlan:
    """Return what to replay.

    ``replay.mode`` ``step`` turns on every switch that fits the run and is not off, but for those that want their name;
    ``auto`` does so where there is a CUDA device (or the tape is asked for), and the run then keeps the faster of
    native and replayed steps.

    Raises:
        ConfigError: a switch that was asked for cannot be had; one line with the remedy.

    Example:
        >>> replay_plan(FitConfig()).switches
        ()
    """
    settings = config.replay
    asked = tuple(name for name in REPLAY_SWITCHES if getattr(settings, name))
    for name in asked:
        if (problem := _problem(name, config)) is not None:
            raise ConfigError(Setting(f"replay.{name}"), " ", *problem)
    if settings.mode == "none" and not asked:
        return ReplayPlan("none")
    who = Setting(f"replay.{asked[0]}") if asked else Setting("replay.mode", settings.mode)
    device = chosen_device(config.run.device)
    recordable = settings.backend == "tape" or device == "cuda"
    if settings.mode == "auto" and not asked and not recordable:
        log.info("replay: there is no CUDA device in this run, so every step is native")
        return ReplayPlan("auto")
    if not recordable:
        raise ConfigError(
            who,
            f" needs a CUDA device, and this run is on {device}; leave it out, or add --replay-backend tape, "
            "which follows recordings on a CPU and is slower",
        )
    if settings.backend == "tape" and device != "cpu":
        raise ConfigError(
            Setting("replay.backend", settings.backend),
            f" follows work on a CPU, and this run is on {device}; use cuda",
        )
    excluded = {other for name in asked for other in REPLAY_SWITCHES[name].excludes}
    allowed = tuple(
        name
        for name, switch in REPLAY_SWITCHES.items()
        if (name in asked or not (switch.by_name or getattr(settings, name) is False or name in excluded))
        and _problem(name, config) is None
    )
    if config.run.devices > 1:
        # the regions count each call; nobody has to find out from them
        log.warning("%s: several processes train together, so every step is native", who)
    backend: RecorderBackend = TapeBackend() if settings.backend == "tape" else CudaBackend()
    on = asked if settings.mode == "none" else allowed
    return ReplayPlan(
        settings.mode, on, backend, measured=settings.mode == "auto" and config.run.devices == 1
    )


def _problem(name: str, config: FitConfig) -> tuple[str | Setting, ...] | None:
    """Return why a switch cannot be on, and what to do, as pieces of a message; None when it can."""
    switch = REPLAY_SWITCHES[name]
    if config.model.task not in switch.tasks:
        return (f"belongs to {', '.join(switch.tasks)}, and the task is {config.model.task}; leave it out",)
    if config.run.precision not in switch.precisions:
        wanted = " or ".join(switch.precisions)
        return (
            f"keeps the native bytes in {wanted} only; use --precision {switch.precisions[0]}, or leave it out",
        )
    if clash := [other for other in switch.excludes if getattr(config.replay, other)]:
        return "covers what ", Setting(f"replay.{clash[0]}"), " records; leave one of them out"
    if config.model.freeze and switch.every_stage:
        return (
            "records the backward pass of every stage, and ",
            Setting("model.freeze"),
            " leaves some out; leave one of them out",
        )
    if config.data.multi_scale and switch.one_canvas:
        return (
            "records one canvas, and ",
            Setting("data.multi_scale"),
            " has several; leave one of them out",
        )
    if name == "capture_gradient_norm" and config.optimizer.clip_norm is None:
        return (
            "replays the norm for clipping, and ",
            Setting("optimizer.clip_norm"),
            " is null; set it, or leave the switch out",
        )
    return None
