"""What happens around the training step, one concern a file."""

from lucid_train.callbacks.buffers import SharedBuffers
from lucid_train.callbacks.checkpoints import Checkpoints, Interrupted
from lucid_train.callbacks.early_stop import EarlyStop
from lucid_train.callbacks.ema import EmaCallback
from lucid_train.callbacks.history import History
from lucid_train.callbacks.loader import LoaderEpoch, ValidateLast
from lucid_train.callbacks.observe import Observe, Observer, Progress
from lucid_train.callbacks.progressive import ProgressiveWeight
from lucid_train.callbacks.replay import Replay

__all__ = [
    "Checkpoints",
    "EarlyStop",
    "EmaCallback",
    "History",
    "Interrupted",
    "LoaderEpoch",
    "Observe",
    "Observer",
    "Progress",
    "ProgressiveWeight",
    "Replay",
    "SharedBuffers",
    "ValidateLast",
]
