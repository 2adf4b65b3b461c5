"""What every region did: calls replayed, calls native and why."""

from __future__ import annotations

import json
from collections.abc import Iterable
from dataclasses import asdict, dataclass

from lucid_capture.reason import Reason
from lucid_capture.region import GuardedRegion


@dataclass(frozen=True)
class RegionReport:
    """The counters of one region at one moment."""

    name: str
    state: str
    recorded: int
    replayed: int
    native: dict[str, int]
    retired_by: str | None


@dataclass(frozen=True)
class ReplayReport:
    """The counters of several regions, as a table for people and as JSON.

    >>> region = GuardedRegion("double", lambda x: 2 * x)
    >>> print(ReplayReport.of([region]).table())
    region  state  recorded  replayed  native
    double  idle          0         0  -
    """

    regions: tuple[RegionReport, ...]

    @classmethod
    def of(cls, regions: Iterable[GuardedRegion]) -> ReplayReport:
        """Return the report of ``regions`` as they stand."""
        return cls(tuple(_report(region) for region in regions))

    def to_json(self) -> str:
        """Return a JSON list with one object per region; reasons by their names in lower case."""
        return json.dumps([asdict(region) for region in self.regions], indent=2)

    def table(self) -> str:
        """Return one line per region; native calls are listed by reason."""
        rows = [("region", "state", "recorded", "replayed", "native")]
        for r in self.regions:
            native = ", ".join(f"{count} {reason}" for reason, count in r.native.items()) or "-"
            rows.append((r.name, r.state, str(r.recorded), str(r.replayed), native))
        widths = [max(len(row[column]) for row in rows) for column in range(4)]
        return "\n".join(
            f"{name:<{widths[0]}}  {state:<{widths[1]}}  {made:>{widths[2]}}  {used:>{widths[3]}}  {native}"
            for name, state, made, used, native in rows
        )


def _report(region: GuardedRegion) -> RegionReport:
    ran = (Reason.REPLAYED, Reason.RECORDED)
    return RegionReport(
        name=region.name,
        state=region.state.value,
        recorded=region.counts[Reason.RECORDED],
        # the call that records is served by the new recording too
        replayed=sum(region.counts[reason] for reason in ran),
        native={r.name.lower(): n for r, n in region.counts.items() if r not in ran},
        retired_by=region.retired_by.name.lower() if region.retired_by else None,
    )
