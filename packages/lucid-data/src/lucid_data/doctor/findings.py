"""One problem, and the list that problems are collected in."""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass
from pathlib import Path
from typing import Literal

Severity = Literal["error", "warning", "note"]

# a broken exporter repeats itself; this many findings of one code and file say enough
MOST_PER_FILE = 25


@dataclass(frozen=True)
class Finding:
    """One fact about a data set.

    Attributes:
        code: a stable name of the kind of problem, such as ``coco-unknown-category``.
        severity: ``error`` (cannot be read as meant), ``warning`` (read, but labels are lost or doubtful) or ``note``.
        file: the file it is in.
        where: the place within: a line, an annotation, an object; or ``""``.
        message: what is the case.
        remedy: what to do about it.
    """

    code: str
    severity: Severity
    file: str
    where: str
    message: str
    remedy: str


class Findings:
    """Collects findings; beyond 25 of one code in one file only their number is kept."""

    def __init__(self) -> None:
        self._list: list[Finding] = []
        self._seen: Counter[tuple[str, str]] = Counter()

    def add(
        self, code: str, severity: Severity, file: Path | str, where: str, message: str, remedy: str
    ) -> None:
        """Add one finding."""
        self._seen[code, str(file)] += 1
        if self._seen[code, str(file)] <= MOST_PER_FILE:
            self._list.append(Finding(code, severity, str(file), where, message, remedy))

    def all(self) -> list[Finding]:
        """Return the findings, errors first, in the order of discovery otherwise."""
        out = list(self._list)
        severity = {(f.code, f.file): f.severity for f in out}
        for (code, file), count in self._seen.items():
            if count > MOST_PER_FILE:
                message = f"{count - MOST_PER_FILE} more of this kind"
                out.append(Finding(code, severity[code, file], file, "", message, "as above"))
        rank = {"error": 0, "warning": 1, "note": 2}
        return sorted(out, key=lambda finding: rank[finding.severity])
