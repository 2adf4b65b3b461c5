"""Why one call of a region went the way it went, and what each reason leads to."""

from collections.abc import Mapping
from enum import Enum
from types import MappingProxyType


class Outcome(Enum):
    """What happens to one call: replayed, recorded first, run natively once or for good, or failed."""

    REPLAY = "replay"
    RECORD = "record"
    NATIVE_ONCE = "native once"
    DROP = "native once, and the recordings are dropped; the next calls may record again"
    RETIRE = "retire"
    RAISE = "raise"


class Reason(Enum):
    """The first fact that decided one call of a region."""

    REPLAYED = "all guards hold and a recording exists"
    RECORDED = "all guards hold and there was no recording yet"
    FIRST_SIGHTING = "the signature has not been seen often enough to be worth recording"
    SIGNATURE = "the arguments do not match the recording and there is no room for another"
    HELD = "a backward pass of the last replay is outstanding"
    GRAD_MODE = "gradients are enabled for a pure region or disabled for a differentiable one"
    MODE = "inference, anomaly, tracing or dispatch mode, or a training flag other than the recorded one"
    IN_CAPTURE = "another recording is under way"
    GLOBAL_HOOKS = "global module hooks are installed"
    STREAM = "the current stream is not the recorded one"
    ALIASED = "two tensors of the call share memory"
    DECLINED = "the region's own condition on its arguments does not hold"
    PAUSED = "the region is paused"
    UNSUPPORTED = "the back-end does not take these tensors, or several processes train together"
    STORAGE = "a parameter or buffer lives elsewhere or has another layout"
    TRAINABLE = "the set of parameters that require gradients changed"
    STRUCTURE = "a module was replaced or its forward overridden"
    HOOKS = "a recorded module or parameter has hooks"
    PRECISION = "a precision, autocast or determinism setting changed"
    CONTRACT = "a declared constant or a module's host scalar changed"
    RECORDING_FAILED = "recording raised an error"
    RETIRED = "the region was retired by an earlier call"
    CLOSED = "the region is closed"


POLICY: Mapping[Reason, Outcome] = MappingProxyType(
    {
        Reason.REPLAYED: Outcome.REPLAY,
        Reason.RECORDED: Outcome.RECORD,
        Reason.FIRST_SIGHTING: Outcome.NATIVE_ONCE,
        Reason.SIGNATURE: Outcome.NATIVE_ONCE,
        Reason.HELD: Outcome.NATIVE_ONCE,
        Reason.GRAD_MODE: Outcome.NATIVE_ONCE,
        Reason.MODE: Outcome.NATIVE_ONCE,
        Reason.IN_CAPTURE: Outcome.NATIVE_ONCE,
        Reason.GLOBAL_HOOKS: Outcome.NATIVE_ONCE,
        Reason.STREAM: Outcome.NATIVE_ONCE,
        Reason.ALIASED: Outcome.NATIVE_ONCE,
        Reason.DECLINED: Outcome.NATIVE_ONCE,
        Reason.PAUSED: Outcome.NATIVE_ONCE,
        Reason.UNSUPPORTED: Outcome.RETIRE,
        Reason.STORAGE: Outcome.RETIRE,
        Reason.TRAINABLE: Outcome.RETIRE,
        Reason.STRUCTURE: Outcome.RETIRE,
        Reason.HOOKS: Outcome.RETIRE,
        Reason.PRECISION: Outcome.RETIRE,
        Reason.CONTRACT: Outcome.RETIRE,
        Reason.RECORDING_FAILED: Outcome.RAISE,
        Reason.RETIRED: Outcome.NATIVE_ONCE,
        Reason.CLOSED: Outcome.NATIVE_ONCE,
    }
)
