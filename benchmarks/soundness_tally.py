"""What became of the comparisons: quantiles of error over bound for each subject, dtype and kind of output."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from conformance.pair import Pair
from conformance.run import Outcome
from conformance.verdict import Agrees, Diverges, Finding, Measure

OUTSIDE = "outside the ledger"
GROUPS = ("output", "weights", "gradients")
QUANTILES = {"50 %": 0.5, "99 %": 0.99, "max": 1.0}
Key = tuple[str, str, str]


@dataclass
class Cell:
    """One subject, dtype and kind of output. ``ratios`` holds the largest error/bound of each comparison that was
    judged and that the ledger does not account for."""

    ratios: list[float] = field(default_factory=list)
    known: int = 0  # comparisons with a finding that the ledger accounts for
    elements: int = 0
    not_judged: int = 0  # elements whose bound overflows

    @property
    def comparisons(self) -> int:
        return len(self.ratios) + self.known

    @property
    def share_not_judged(self) -> float:
        return self.not_judged / self.elements if self.elements else 0.0

    def as_data(self) -> dict[str, Any]:
        levels = (
            {name: float(np.quantile(self.ratios, q, method="higher")) for name, q in QUANTILES.items()}
            if self.ratios
            else {}
        )
        return {
            "comparisons": self.comparisons,
            "known": self.known,
            "not_judged": self.share_not_judged,
            "quantiles": levels,
        }


@dataclass
class Pairs:
    """What became of a subject's pairs, and the CPU seconds they took."""

    statuses: dict[str, int] = field(default_factory=dict)
    comparisons: int = 0
    seconds: float = 0.0

    def count(self, status: str) -> None:
        self.statuses[status] = self.statuses.get(status, 0) + 1


@dataclass
class Tally:
    """Everything counted so far."""

    cells: dict[Key, Cell] = field(default_factory=dict)
    subjects: dict[str, Pairs] = field(default_factory=dict)

    @property
    def comparisons(self) -> int:
        return sum(pairs.comparisons for pairs in self.subjects.values())

    def of(self, subject: str) -> Pairs:
        return self.subjects.setdefault(subject, Pairs())

    def add(self, pair: Pair, outcome: Outcome, status: str) -> None:
        """Count every comparison of a pair. What is found is known unless the pair is outside the ledger."""
        pairs, verdict = self.of(pair.subject), outcome.verdict
        pairs.count(status)
        pairs.seconds += sum(outcome.seconds.values())
        if not isinstance(verdict, Agrees | Diverges):
            return
        findings = verdict.findings if isinstance(verdict, Diverges) else ()
        known = set() if status == OUTSIDE else {finding.output for finding in findings}
        for measure in verdict.measures:
            self._measured(pair, measure, measure.output in known)

    def _measured(self, pair: Pair, measure: Measure, known: bool) -> None:
        """An output of which nothing could be judged is no comparison."""
        cell = self.cells.setdefault((pair.subject, pair.case.dtype, group_of(measure.output)), Cell())
        cell.elements += measure.elements
        cell.not_judged += measure.not_judged
        if measure.not_judged == measure.elements:
            return
        self.of(pair.subject).comparisons += 1
        if known:
            cell.known += 1
        else:
            cell.ratios.append(measure.max_ratio)

    def as_data(self) -> dict[str, Any]:
        """Plain values: the table's rows, and the subjects'."""
        rows = [
            {"subject": subject, "dtype": dtype, "outputs": group, **self.cells[subject, dtype, group].as_data()}
            for subject, dtype, group in sorted(self.cells, key=_place)
        ]
        subjects = {
            name: {"comparisons": pairs.comparisons, "pairs": pairs.statuses, "cpu_seconds": round(pairs.seconds, 1)}
            for name, pairs in self.subjects.items()
        }
        return {"comparisons": self.comparisons, "subjects": subjects, "quantiles": rows}


def group_of(output: str) -> str:
    """Which kind of output a comparison is of."""
    if output.endswith(".gradient"):
        return "gradients"
    return output.removeprefix("attn_")


def worst_of(findings: Iterable[Finding]) -> str:
    """The finding with the largest ratio, in words."""
    found = max(findings, key=lambda finding: finding.worst.ratio if finding.worst else float("inf"))
    ratio = f", error/bound {found.worst.ratio:.3g}" if found.worst else ""
    return f"{found.kind}: {found.message}{ratio}"


def table(data: dict[str, Any]) -> Iterator[str]:
    """The quantiles as lines of text."""
    columns = ("subject", "dtype", "outputs", "comparisons", "known", "not judged", *QUANTILES)
    rows = [columns, *(_cells(row) for row in data["quantiles"])]
    widths = [max(len(row[column]) for row in rows) for column in range(len(columns))]
    for row in rows:
        left = (cell.ljust(width) for cell, width in zip(row[:3], widths[:3], strict=True))
        right = (cell.rjust(width) for cell, width in zip(row[3:], widths[3:], strict=True))
        yield "  ".join([*left, *right])


def page_lines(data: dict[str, Any]) -> Iterator[str]:
    """The largest ratio of each subject, dtype and kind of output as a table in Markdown."""
    dtypes = list(dict.fromkeys(row["dtype"] for row in data["quantiles"]))
    largest = {
        (row["subject"], row["dtype"], row["outputs"]): f"{row['quantiles']['max']:.2f}"
        for row in data["quantiles"]
        if row["quantiles"]
    }
    yield f"| subject | comparisons | {' | '.join(dtypes)} |"
    yield "|---|---|" + "---|" * len(dtypes)
    for subject, pairs in sorted(data["subjects"].items()):
        cells = (" / ".join(largest.get((subject, dtype, group), "—") for group in GROUPS) for dtype in dtypes)
        yield f"| {subject} | {pairs['comparisons']:,} | {' | '.join(cells)} |"
    outside = sum(pairs["pairs"].get(OUTSIDE, 0) for pairs in data["subjects"].values())
    yield ""
    yield f"({data['comparisons']:,} comparisons; outside the ledger: {outside or 'none'}.)"


def _cells(row: dict[str, Any]) -> tuple[str, ...]:
    levels = (f"{row['quantiles'][name]:.3f}" if row["quantiles"] else "-" for name in QUANTILES)
    counts = (f"{row['comparisons']:,}", f"{row['known']:,}", f"{row['not_judged']:.1%}")
    return (row["subject"], row["dtype"], row["outputs"], *counts, *levels)


def _place(key: Key) -> tuple[str, str, int]:
    subject, dtype, group = key
    return subject, dtype, GROUPS.index(group)
