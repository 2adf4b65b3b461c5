"""What goes wrong when work is recorded and replayed, and what stands against each of it here."""

from __future__ import annotations

from enum import Enum


class Hazard(Enum):
    """A way in which a replay can silently differ from native execution.

    >>> Hazard.H3.title
    'gradient buffers reused by the next backward'
    >>> len(Hazard)
    25
    """

    H1 = (
        "static input reused",
        "stale images, labels or targets are scored",
        "live inputs are copied into the fixed buffers before every launch, one launch per dtype",
    )
    H2 = (
        "outputs overwritten by the next forward",
        "losses and outputs that were kept change their value",
        "results are copied to memory of the caller after the launch",
    )
    H3 = (
        "gradient buffers reused by the next backward",
        "two micro-batches of derivative 1 and 3 sum to 6 instead of 4",
        "gradients leave the recording's memory right after the backward launch",
    )
    H4 = (
        "gradient memory reused by the next forward",
        "live gradients are corrupted even without accumulation",
        "gradients leave the recording's memory right after the backward launch",
    )
    H5 = (
        "frozen control flow and host scalars",
        "a changed gain, rate, flag or branch is ignored",
        "arguments are keyed by type and bits, module attributes and declared constants are compared on every call",
    )
    H6 = (
        "parameter or buffer storage replaced",
        "the replay trains tensors that nobody holds any more",
        "address, layout and identity of every parameter and buffer are compared on every call",
    )
    H7 = (
        "side effects of warm-up",
        "normalisation statistics and random numbers differ from the first step on",
        "buffers and random generators are put back after recording",
    )
    H8 = (
        "failed warm-up with queued work",
        "restoring races with writes that have not landed",
        "the back-end is waited for before anything is put back, on success and failure",
    )
    H9 = (
        "absent and zero gradients",
        "the optimizer advances state of parameters that native training skips",
        "which output reaches which parameter is measured, and what no used output reaches gets None",
    )
    H10 = (
        "input gradients summed inside one recording",
        "another order of addition gives other last bits",
        "`verify` compares bytes and names the tensor; record the consumers apart then",
    )
    H11 = (
        "hooks that are not called",
        "observers see nothing",
        "module, tensor and global hooks and observers below autograd make calls native",
    )
    H12 = (
        "precision, determinism or matmul settings changed",
        "the replay keeps the old kernels",
        "the settings are facts of the recording",
    )
    H13 = (
        "second forward while a backward is outstanding",
        "saved values of the first are overwritten",
        "the region is held until the backward ran; calls in between are native",
    )
    H14 = (
        "skipped backward",
        "the hold is never released and replay is off for good",
        "a hold dies with its graph, and a new batch releases it",
    )
    H15 = (
        "partial batch, changed layout or requires_grad",
        "a wrong shape, or a wrong set of gradients",
        "the signature covers shape, stride, dtype, device and requires_grad",
    )
    H16 = (
        "other stream, nested capture, tracing, inference or anomaly mode",
        "an illegal launch, or a silently wrong one",
        "such calls are native; captures of one process do not nest",
    )
    H17 = (
        "copies and pickles",
        "graph state is written out, or shared between modules",
        "copies and pickles of regions, groups and steps start without recordings",
    )
    H18 = (
        "garbage collection frees a graph during a capture",
        "the capture fails",
        "garbage is collected before a recording and collection is off until its first replay",
    )
    H19 = (
        "padding takes part in selection or normalisation",
        "wrong assignments, wrong means",
        "`padded` gives a mask of the real rows and zeros in the others; the work has to use it",
    )
    H20 = (
        "stale padding rows after a smaller batch",
        "ghost targets",
        "every call clears every row that is not valid",
    )
    H21 = (
        "learning rate or clip limit baked in",
        "the schedule is ignored",
        "they are 0-d tensors at fixed addresses that are filled between replays",
    )
    H22 = (
        "recordings that outlive a run or an exception",
        "memory is lost, or another model is replayed",
        "a group closes its regions on success and failure; a failed recording publishes nothing",
    )
    H23 = (
        "tensors that share memory",
        "updates are doubled or lost",
        "overlapping state is not recorded, an argument that shares memory with state makes the call native, "
        "and work that writes its arguments is refused",
    )
    H24 = (
        "numeric keys that collapse: 5 and 5.0, 0.0 and -0.0, True and 1",
        "an error is suppressed, or a sign lost",
        "host scalars are keyed by type and bits",
    )
    H25 = (
        "division by a host scalar against division by a device scalar",
        "last bits differ between a plain loop and a step whose scalars are tensors",
        "scalars are float64, and clipping multiplies by the reciprocal as torch does for a host number",
    )

    @property
    def title(self) -> str:
        """What it is."""
        return self.value[0]

    @property
    def consequence(self) -> str:
        """What happens when nothing stands against it."""
        return self.value[1]

    @property
    def handling(self) -> str:
        """What stands against it."""
        return self.value[2]
