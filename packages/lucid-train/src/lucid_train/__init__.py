"""Trains lucid detectors: configuration, loop, checkpoints, exact resume."""

from lucid_train.auto import RunLength, augment_policy, resolve
from lucid_train.available import usable_switches
from lucid_train.callbacks import Interrupted, Observer, Progress
from lucid_train.config import ConfigError, FitConfig, Setting, load_config, recipes
from lucid_train.datamodule import DetectionDataModule
from lucid_train.device import chosen_device
from lucid_train.evaluate import PathName, default_split, evaluate
from lucid_train.files import write_json, write_text
from lucid_train.fingerprint import fingerprint
from lucid_train.fit import FitResult, fit
from lucid_train.module import DetectionLitModule
from lucid_train.processes import is_main_process
from lucid_train.proof import SPEED_SWITCHES, ProofRow, prove
from lucid_train.replay import REPLAY_SWITCHES, ReplaySwitch
from lucid_train.results import ResultCollector
from lucid_train.run_folder import find_run, stored_config
from lucid_train.tasks import TASK_TABLE, TaskRow, task_row

__all__ = [
    "REPLAY_SWITCHES",
    "SPEED_SWITCHES",
    "TASK_TABLE",
    "ConfigError",
    "DetectionDataModule",
    "DetectionLitModule",
    "FitConfig",
    "FitResult",
    "Interrupted",
    "Observer",
    "PathName",
    "Progress",
    "ProofRow",
    "ReplaySwitch",
    "ResultCollector",
    "RunLength",
    "Setting",
    "TaskRow",
    "augment_policy",
    "chosen_device",
    "default_split",
    "evaluate",
    "find_run",
    "fingerprint",
    "fit",
    "is_main_process",
    "load_config",
    "prove",
    "recipes",
    "resolve",
    "stored_config",
    "task_row",
    "usable_switches",
    "write_json",
    "write_text",
]
