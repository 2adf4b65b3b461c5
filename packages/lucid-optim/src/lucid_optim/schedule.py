"""Schedules as functions of a step or an epoch: the learning-rate factor and the two-branch loss weight."""


def warmup_linear_decay(step: int, total_steps: int, warmup_steps: int, final_factor: float) -> float:
    """Return the factor on the learning rate at optimizer step ``step``, counted from 0.

    Climbs as (step + 1) / warmup_steps, is 1 at the last warm-up and the first decay step, then falls in a
    straight line to ``final_factor`` at ``total_steps`` and stays there. Raises ValueError for a negative
    count.

    >>> [warmup_linear_decay(s, total_steps=10, warmup_steps=2, final_factor=0.0) for s in (0, 1, 2, 6, 10)]
    [0.5, 1.0, 1.0, 0.5, 0.0]
    """
    for name, value in (("step", step), ("total_steps", total_steps), ("warmup_steps", warmup_steps)):
        if value < 0:
            raise ValueError(f"{name} must not be negative, got {value}")
    if step < warmup_steps:
        return (step + 1) / warmup_steps
    progress = min(1.0, (step - warmup_steps) / max(1, max(1, total_steps) - warmup_steps))
    return 1.0 - (1.0 - final_factor) * progress


def progressive_weight(epoch: int, epochs: int, initial: float = 0.8, final: float = 0.1) -> float:
    """Return the weight of the one-to-many branch in epoch ``epoch`` of ``epochs``, counted from 0.

    A straight line from ``initial`` in the first epoch to ``final`` in the last; the one-to-one branch gets
    one minus it. A single epoch gets ``initial``. Raises ValueError for a negative epoch or fewer than one
    epoch.

    >>> [round(progressive_weight(e, 50), 6) for e in (0, 1, 25, 49)]
    [0.8, 0.785714, 0.442857, 0.1]
    """
    if epoch < 0 or epochs < 1:
        raise ValueError(f"epoch must be at least 0 and epochs at least 1, got epoch {epoch} of {epochs}")
    return max(1.0 - epoch / max(epochs - 1, 1), 0.0) * (initial - final) + final
