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
    forward_launches: int
    backward_launches: int
    owned_bytes: int
    native: dict[str, int]
    retired_by: str | None


@dataclass(frozen=True)
class ReplayReport:
    """The counters of several regions, as a table for people and as JSON.

    >>> region = GuardedRegion("double", lambda x: 2 * x)
    >>> print(ReplayReport.of([region]).table())
    region  state  recorded  replayed  forward  backward  bytes  native
    double  idle          0         0        0         0      0  -
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
        header = ("region", "state", "recorded", "replayed", "forward", "backward", "bytes", "native")
        rows = [header, *(_cells(region) for region in self.regions)]
        widths = [max(len(row[column]) for row in rows) for column in range(len(header) - 1)]
        return "\n".join("  ".join((*_aligned(row[:-1], widths), row[-1])) for row in rows)


def _cells(region: RegionReport) -> tuple[str, ...]:
    numbers = (region.recorded, region.replayed, region.forward_launches, region.backward_launches)
    native = ", ".join(f"{count} {reason}" for reason, count in region.native.items()) or "-"
    return (region.name, region.state, *map(str, numbers), str(region.owned_bytes), native)


def _aligned(row: tuple[str, ...], widths: list[int]) -> list[str]:
    words = [f"{cell:<{width}}" for cell, width in zip(row[:2], widths[:2], strict=True)]
    return words + [f"{cell:>{width}}" for cell, width in zip(row[2:], widths[2:], strict=True)]


def _report(region: GuardedRegion) -> RegionReport:
    ran = (Reason.REPLAYED, Reason.RECORDED)
    return RegionReport(
        name=region.name,
        state=region.state.value,
        recorded=region.counts[Reason.RECORDED],
        # the call that records is served by the new recording too
        replayed=sum(region.counts[reason] for reason in ran),
        forward_launches=region.launches.forward,
        backward_launches=region.launches.backward,
        owned_bytes=region.owned_bytes(),
        native={r.name.lower(): n for r, n in region.counts.items() if r not in ran},
        retired_by=region.retired_by.name.lower() if region.retired_by else None,
    )
