"""The regions of one training run, owned by whatever drives it and gone when it ends."""

from __future__ import annotations

import weakref
from collections.abc import Iterator
from types import TracebackType
from typing import Any

from lucid_capture.region import GuardedRegion
from lucid_capture.report import ReplayReport


class RegionGroup:
    """Regions that live and end together; a training loop's callback holds one per run.

    ``owner``, for instance a trainer, is referred to weakly: hooks that receive another owner ask
    `belongs_to` and do nothing. As a context manager it closes the regions on success and on failure and
    never hides the error of the block. Copies and pickles have no owner, and their regions no recordings.

    >>> group = RegionGroup()
    >>> region = group.add(GuardedRegion("double", lambda x: 2 * x))
    >>> with group:
    ...     group.begin_batch()
    >>> region.state.value
    'closed'
    """

    def __init__(self, owner: object | None = None) -> None:
        self._owner = None if owner is None else weakref.ref(owner)
        self._regions: list[GuardedRegion] = []

    def add(self, region: GuardedRegion) -> GuardedRegion:
        """Take ``region`` in and return it."""
        self._regions.append(region)
        return region

    def belongs_to(self, owner: object) -> bool:
        """Return whether ``owner`` is the living owner of this group."""
        return self._owner is not None and self._owner() is owner

    def begin_batch(self) -> None:
        """Give up the backward passes that the last batch skipped."""
        for region in self._regions:
            region.release()

    def begin_epoch(self) -> None:
        """Let every region's next call take its certificate's full walk."""
        for region in self._regions:
            region.refresh()

    def drop(self) -> None:
        """Forget every recording; for instance after weights or optimizer state were loaded."""
        for region in self._regions:
            region.drop()

    def close(self) -> None:
        """Close every region, also when closing one of them fails; the first failure is raised at the end."""
        failure: Exception | None = None
        for region in self._regions:
            try:
                region.close()
            except Exception as error:
                failure = failure or error
        if failure is not None:
            raise failure

    def report(self) -> ReplayReport:
        """Return the counters of every region as they stand."""
        return ReplayReport.of(self._regions)

    def __iter__(self) -> Iterator[GuardedRegion]:
        return iter(self._regions)

    def __enter__(self) -> RegionGroup:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        try:
            self.close()
        except Exception:
            # the block's own error is the one to tell
            if error is None:
                raise

    def __getstate__(self) -> dict[str, Any]:
        return {**self.__dict__, "_owner": None}
