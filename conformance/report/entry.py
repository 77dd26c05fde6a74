"""One row of a run as the report speaks of it, and the words and signs for its status."""

from __future__ import annotations

import math
import re
from collections.abc import Mapping
from dataclasses import dataclass
from functools import cached_property

from conformance.store import Row, Status

SEVERITY: tuple[Status, ...] = ("new", "errored", "stale", "known", "agrees", "unsupported", "missing")
DIVERGING: tuple[Status, ...] = SEVERITY[:4]
SYMBOLS: Mapping[Status, str] = {
    "new": "✕",
    "errored": "!",
    "stale": "↻",
    "known": "≠",
    "agrees": "✓",
    "unsupported": "·",
    "missing": "○",
}
MEANINGS: Mapping[Status, str] = {
    "new": "diverges and the ledger does not know it",
    "errored": "the subject or the engine raised where an answer was due",
    "stale": "the ledger says it diverges; it no longer does, or does so differently",
    "known": "diverges exactly as the ledger says",
    "agrees": "every judged element lies within its bound, or the ill-formed call was refused",
    "unsupported": "a documented limit of the subject",
    "missing": "the framework is not installed",
}
_EXCEPTION = re.compile(r"[A-Za-z_][\w.]*(?=: )")


@dataclass(frozen=True)
class Entry:
    """One row with what is derived from it. ``number`` is its place in the run."""

    number: int
    row: Row
    ratio: float | None

    @cached_property
    def kinds(self) -> tuple[str, ...]:
        """Kinds of all findings, the first being the one to show; of an error, the name of the exception."""
        if self.row.findings:
            return tuple(dict.fromkeys(str(finding["kind"]) for finding in self.row.findings))
        match self.row.status:
            case "errored":
                found = _EXCEPTION.match(self.row.summary)
                return (found.group().rpartition(".")[2] if found else "errored",)
            case "known":  # an exception that the ledger knows, or a behaviour that it pins
                return ("raised" if self.row.traceback else "as-contract",)
            case "new" | "stale":
                return (self.row.status,)
            case _:
                return ()

    @property
    def kind(self) -> str:
        return self.kinds[0] if self.kinds else ""

    @property
    def found(self) -> str:
        """One line on what was found. The reason of a known divergence is said once, for its family."""
        if self.row.status == "known" and self.row.findings:
            return str(self.row.findings[0]["message"])
        return self.row.summary

    @property
    def mask(self) -> str:
        return str(self.row.facts.get("mask", "none"))

    @property
    def dtype(self) -> str:
        return str(self.row.facts.get("dtype", ""))

    @property
    def weight(self) -> float:
        """The ratio for ordering; a finding that has none (raised, wrong shape) weighs as much as any."""
        return math.inf if self.ratio is None else self.ratio
