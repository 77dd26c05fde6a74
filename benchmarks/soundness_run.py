"""The loop of ``benchmarks/soundness.py``: draw a case, let every subject answer, hold the answers to the ledger."""

from __future__ import annotations

import time
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from fnmatch import fnmatchcase
from itertools import count
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

from benchmarks.soundness_draws import POOL, drawn_case
from benchmarks.soundness_ledger import judged
from benchmarks.soundness_tally import OUTSIDE, Tally, worst_of
from conformance.adapter import announced
from conformance.facts import facts_of
from conformance.ledger import Entry
from conformance.ledgerfile import ledger_of
from conformance.pair import Conclusion, Pair, conclude
from conformance.plugin import CASES
from conformance.verdict import Diverges

MOST_DRAWS = 50  # without a single comparison, for each that is asked for: then no subject can answer


@dataclass(frozen=True)
class Violation:
    """A pair outside the ledger, and where its case was written."""

    pair: str
    text: str
    file: Path

    def lines(self) -> Iterator[str]:
        yield f"VIOLATION {self.pair}"
        yield f"  {self.text}"
        yield f"  written to {self.file}"
        yield f"  reproduce: python -m conformance repro '{self.pair}' --cases {self.file.parent}"


@dataclass
class Session:
    """One run. ``free`` subjects answer forms of any kind; ``pooled`` ones, which compile each form, share a few."""

    free: tuple[str, ...]
    pooled: tuple[str, ...]
    ledger: tuple[Entry, ...]
    into: Path
    seed: int
    tally: Tally = field(default_factory=Tally)
    violations: list[Violation] = field(default_factory=list)
    draws: int = 0
    impossible: int = 0  # draws whose numbers cannot be made
    seconds: float = 0.0

    @classmethod
    def of(cls, pattern: str, cases: Path, into: Path, seed: int) -> Session:
        """A session of the subjects like ``pattern`` whose framework is installed."""
        found = [(name, one) for name, one in announced() if fnmatchcase(name, pattern) and not one.missing]
        free = tuple(name for name, one in found if name not in one.slow)
        pooled = tuple(name for name, one in found if name in one.slow)
        return cls(free, pooled, ledger_of(cases.absolute(), Path.cwd()), into, seed)

    def introduction(self) -> Iterator[str]:
        if self.free:
            yield f"subjects: {', '.join(self.free)}"
        if self.pooled:
            yield f"subjects that compile, with {POOL} forms and ever new data: {', '.join(self.pooled)}"

    def run(self, comparisons: int, seconds: float | None = None) -> None:
        """Draw until there are so many comparisons, or the time is over. Every subject gets the same number of draws;
        how many comparisons they make depends on what it supports and returns."""
        start = time.monotonic()
        with TemporaryDirectory() as folder:
            for number in count():
                self.seconds = time.monotonic() - start
                late = seconds is not None and self.seconds >= seconds
                idle = not self.tally.comparisons and number >= MOST_DRAWS
                if self.tally.comparisons >= comparisons or late or idle:
                    return
                for subjects, pooled in ((self.free, False), (self.pooled, True)):
                    if subjects:
                        self._draw(number, Path(folder), subjects, pooled)

    def _draw(self, number: int, folder: Path, subjects: Sequence[str], pooled: bool) -> None:
        self.draws += 1
        drawn = drawn_case(self.seed, number, folder, pooled=pooled)
        if drawn is None:
            self.impossible += 1
            return
        case, text = drawn
        facts, adapters = facts_of(case), dict(announced())
        for place, subject in enumerate(subjects):
            pair = Pair(case, facts, subject, adapters[subject], (number, place))
            conclusion = conclude(pair, self.ledger)
            status = judged(pair, conclusion, self.ledger)
            self.tally.add(pair, conclusion.outcome, status)
            if status == OUTSIDE:
                self._violates(pair, conclusion, text)

    def _violates(self, pair: Pair, conclusion: Conclusion, text: str) -> None:
        file = self.into / CASES / f"{pair.case.suite}.yaml"
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_text(text, encoding="utf-8")
        verdict = conclusion.outcome.verdict
        worst = f" (worst is {worst_of(verdict.findings)})" if isinstance(verdict, Diverges) else ""
        self.violations.append(Violation(pair.id, conclusion.row.summary + worst, file))
        print("\n".join(self.violations[-1].lines()), flush=True)

    def as_data(self) -> dict[str, Any]:
        """All counts and quantiles as plain values."""
        return {"seed": self.seed, "draws": self.draws, "violations": len(self.violations)} | self.tally.as_data()

    def summary(self) -> Iterator[str]:
        for name, pairs in self.tally.subjects.items():
            statuses = ", ".join(f"{number:,} {status}" for status, number in sorted(pairs.statuses.items()))
            yield f"{name}: {pairs.comparisons:,} comparisons, {pairs.seconds:.0f} s of CPU; pairs: {statuses}"
        yield f"{self.draws:,} draws, {self.impossible:,} of them with numbers that cannot be made"
        done = f"{self.tally.comparisons:,} comparisons in {self.seconds:.0f} s"
        yield f"{done}, {len(self.violations)} pairs outside the ledger"
