"""What pairs of fits amount to: medians, ranges, paired reductions, bytes, and one sentence that says no more."""

import statistics
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

Pair = Mapping[str, Mapping[str, Any]]
CLAIM = 8.0
"""Per cent of complete fit time that a claim needs."""
CLAIM_PAIRS = 5
"""Pairs that a claim needs."""
QUANTITIES = {
    "fit_s": ("complete fit, s", "fit, s", 2),
    "process_s": ("whole process, s", "process, s", 2),
    "step_ms": ("steady step, ms", "step, ms", 1),
    "cpu_s": ("processor time, s", "CPU, s", 2),
    "rss_mib": ("peak RSS, MiB", "RSS, MiB", 0),
    "child_rss_mib": ("peak RSS of a child, MiB", "child, MiB", 0),
    "allocated_mib": ("peak allocated on the device, MiB", "device, MiB", 0),
    "reserved_mib": ("peak reserved on the device, MiB", "reserved, MiB", 0),
}
"""What every run measured: its title, a short one, and the digits shown."""


@dataclass(frozen=True)
class Bytes:
    """Whether runs of one seed learned the same: parts of the digest in which they differ, empty where none.

    ``baseline``: among the baseline's runs. ``candidate``: between the first baseline and any candidate.
    """

    baseline: tuple[str, ...]
    candidate: tuple[str, ...]


def compared_bytes(pairs: Sequence[Pair]) -> Bytes:
    """Return in which parts of the digest the runs differ."""
    first = pairs[0]["baseline"]["fingerprint"]

    def differing(arm: str) -> tuple[str, ...]:
        others = [pair[arm]["fingerprint"] for pair in pairs]
        return tuple(
            part
            for part in first
            if part != "all" and any(other.get(part) != first[part] for other in others)
        )

    return Bytes(differing("baseline"), differing("candidate"))


def reduction(baseline: float, candidate: float) -> float:
    """Return by how many per cent the candidate is below the baseline; negative where it is above.

    Example:
        >>> reduction(200.0, 150.0)
        25.0
    """
    return 100 * (baseline - candidate) / baseline


def reductions(pairs: Sequence[Pair], quantity: str) -> list[float]:
    """Return the reduction within each pair."""
    return [reduction(pair["baseline"][quantity], pair["candidate"][quantity]) for pair in pairs]


def summary(pairs: Sequence[Pair]) -> list[dict[str, Any]]:
    """Return a row per quantity that every run measured: medians and ranges of both arms, and of the reductions."""
    rows = []
    for key, (title, _, digits) in QUANTITIES.items():
        runs = [pair[arm].get(key) for pair in pairs for arm in ("baseline", "candidate")]
        if any(not value for value in runs):
            continue
        row: dict[str, Any] = {"quantity": title}
        for arm in ("baseline", "candidate"):
            row[arm] = middle_and_span([pair[arm][key] for pair in pairs], digits)
        rows.append(row | {"reduction in a pair, %": middle_and_span(reductions(pairs, key), 2)})
    return rows


def runs_table(pairs: Sequence[Pair], orders: Sequence[Sequence[str]]) -> list[dict[str, Any]]:
    """Return a row per run in the order in which they were made."""
    return [
        {"pair": number, "arm": arm}
        | {
            title: rounded(pair[arm][key], digits) if pair[arm].get(key) else ""
            for key, (_, title, digits) in QUANTITIES.items()
            if any(one.get(key) for other in pairs for one in other.values())
        }
        | {"digest": pair[arm]["fingerprint"]["all"][:12]}
        for number, (pair, order) in enumerate(zip(pairs, orders, strict=True), 1)
        for arm in order
    ]


def bytes_table(pairs: Sequence[Pair], found: Bytes) -> list[dict[str, Any]]:
    """Return a row per part of the digest."""
    parts = [part for part in pairs[0]["baseline"]["fingerprint"] if part != "all"]
    return [
        {
            "part": part,
            "the baseline repeats itself": "not tested by one pair"
            if len(pairs) == 1
            else "yes"
            if part not in found.baseline
            else "no",
            "the candidate's bytes are the baseline's": "yes" if part not in found.candidate else "no",
        }
        for part in parts
    ]


def verdict(pairs: Sequence[Pair], screen: Pair | str, scope: str, screen_batch: int) -> str:
    """Return the sentence: a claim with its scope, or why there is none; always with the larger batch."""
    if isinstance(screen, str):
        tail = f" At batch {screen_batch}: not run ({screen})."
    else:
        larger = reduction(screen["baseline"]["fit_s"], screen["candidate"]["fit_s"])
        tail = f" At batch {screen_batch}: {_faster(larger)} (one pair, no claim)."
    same = compared_bytes(pairs)
    if same.baseline:
        return (
            f"no claim: the baseline does not repeat itself ({', '.join(same.baseline)} differ between its runs), "
            f"so nothing can be said of the candidate.{tail}"
        )
    learned = (
        "the same bytes learned"
        if not same.candidate
        else f"OTHER bytes learned ({', '.join(same.candidate)})"
    )
    found = reductions(pairs, "fit_s")
    middle = statistics.median(found)
    figures = f"{_faster(middle)} complete fit time (median of {len(found)} pairs, {span(found, 2)} %)"
    if len(found) < CLAIM_PAIRS:
        reason = f"{len(found)} of the {CLAIM_PAIRS} pairs that a claim needs"
    elif min(found) <= 0 <= max(found):
        reason = "the pairs do not agree on which is faster"
    elif abs(middle) < CLAIM:
        reason = f"a claim needs {CLAIM:g} %"
    else:
        return f"the candidate takes {figures}, {learned}: {scope}.{tail}"
    return f"no claim ({reason}): {figures}, {learned}: {scope}.{tail}"


def span(values: Sequence[float], digits: int) -> str:
    """Return least and greatest as text.

    Example:
        >>> span([2.0, 1.25, 3.0], 1)
        '1.2 to 3.0'
    """
    return f"{min(values):.{digits}f} to {max(values):.{digits}f}"


def middle_and_span(values: Sequence[float], digits: int) -> str:
    """Return the median, with least and greatest in brackets.

    Example:
        >>> middle_and_span([2.0, 1.25, 3.0], 2)
        '2.00 (1.25 to 3.00)'
    """
    return f"{statistics.median(values):.{digits}f} ({span(values, digits)})"


def rounded(value: float, digits: int) -> float | int:
    """Return a figure as it is shown; whole numbers have no point."""
    return round(value, digits) if digits else round(value)


def _faster(per_cent: float) -> str:
    return f"{abs(per_cent):.2f} % {'less' if per_cent >= 0 else 'MORE'}"
