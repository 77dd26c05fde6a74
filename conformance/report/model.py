"""Run → what the report shows: counts, matrix, families of divergences, refusals, agreement by file.

A *group* is what diverging rows share: status, subject, kind, mask and dtype. A *family* is the groups of one status,
subject and kind, which is what one fault usually looks like. Everything is ordered by severity, then by worst ratio.
"""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property

from conformance.report.alike import Cluster, clusters
from conformance.report.changes import Comparison
from conformance.report.costs import Cost, costs_of
from conformance.report.elements import row_ratio
from conformance.report.entry import DIVERGING, SEVERITY, Entry
from conformance.report.patterns import Pattern, patterns_of
from conformance.report.text import plural
from conformance.store import Run, Status


@dataclass(frozen=True)
class Group:
    """Rows that share status, subject, kind, mask and dtype; the worst first."""

    mask: str
    dtype: str
    entries: tuple[Entry, ...]

    @property
    def worst(self) -> Entry:
        return self.entries[0]


@dataclass(frozen=True)
class Family:
    """Groups that share status, subject and kind; the group with the worst row first."""

    status: Status
    subject: str
    kind: str
    groups: tuple[Group, ...]

    @property
    def worst(self) -> Entry:
        return self.groups[0].worst

    @property
    def count(self) -> int:
        return sum(len(group.entries) for group in self.groups)

    @cached_property
    def masks(self) -> tuple[tuple[str, int], ...]:
        """Masks with the number of their rows, most first."""
        return _tally(group.mask for group in self.groups for _ in group.entries)

    @cached_property
    def dtypes(self) -> tuple[tuple[str, int], ...]:
        return _tally(group.dtype for group in self.groups for _ in group.entries)


@dataclass(frozen=True)
class Cell:
    """One case file × one subject: the most severe status, and the worst ratio among rows of that status."""

    file: str
    subject: str
    counts: Mapping[Status, int]
    status: Status
    ratio: float | None

    @property
    def title(self) -> str:
        """``3 known, 40 agrees`` in order of severity."""
        return ", ".join(f"{self.counts[status]:,} {status}" for status in SEVERITY if status in self.counts)


@dataclass(frozen=True)
class Refusal:
    """Rows of one subject left unanswered for one reason."""

    status: Status
    subject: str
    reason: str
    count: int


@dataclass(frozen=True)
class Agreement:
    """The agreeing rows of one case file."""

    file: str
    count: int
    closest: Entry  # the row that came closest to its bound


@dataclass(frozen=True)
class View:
    run: Run
    entries: tuple[Entry, ...]
    counts: Mapping[Status, int]
    files: tuple[str, ...]
    subjects: tuple[str, ...]
    matrix: Mapping[tuple[str, str], Cell]
    families: tuple[Family, ...]
    refusals: tuple[Refusal, ...]
    agreements: tuple[Agreement, ...]
    clustered: tuple[tuple[Cluster, ...], ...]  # of each case
    patterns: tuple[Pattern, ...]
    comparison: Comparison | None

    @property
    def diverging(self) -> tuple[Entry, ...]:
        """Every diverging row, in the order in which the families show them."""
        return tuple(entry for family in self.families for group in family.groups for entry in group.entries)

    @property
    def first_of_groups(self) -> tuple[Entry, ...]:
        return tuple(group.worst for family in self.families for group in family.groups)

    @property
    def costs_of_subjects(self) -> tuple[Cost, ...]:
        return costs_of(self.run.rows, "subject")

    @property
    def costs_of_suites(self) -> tuple[Cost, ...]:
        return costs_of(self.run.rows, "suite")

    @property
    def verdict(self) -> str:
        """One sentence that says whether the run gives cause for action."""
        counts = self.counts
        if not self.entries:
            return "Nothing was compared."
        causes = {"new": "new divergence", "errored": "error", "stale": "stale ledger entry"}
        found = [plural(counts[status], causes[status]) for status in DIVERGING if status in causes and counts[status]]
        if not found and not counts["agrees"] + counts["known"]:
            return "No subject answered any case."
        if found:
            return f"{', '.join(found).replace('entrys', 'entries')}."
        return (
            "Nothing new: every divergence is known." if counts["known"] else "Every answer agrees with the reference."
        )


def view_of(run: Run, comparison: Comparison | None = None) -> View:
    """The view model of a run, and of its comparison with an earlier one."""
    entries = tuple(Entry(place, row, row_ratio(row)) for place, row in enumerate(run.rows))
    counted = Counter(row.status for row in run.rows)
    order = {row.subject: row.order[1] for row in run.rows}
    subjects = tuple(sorted(order, key=lambda subject: (order[subject], subject)))
    clustered = _clustered(entries)
    return View(
        run=run,
        entries=entries,
        counts={status: counted[status] for status in SEVERITY},
        files=tuple(dict.fromkeys(row.file for row in run.rows)),
        subjects=subjects,
        matrix=_matrix(entries),
        families=_families([entry for entry in entries if entry.row.status in DIVERGING]),
        refusals=_refusals(entries),
        agreements=_agreements(entries),
        clustered=clustered,
        patterns=patterns_of(clustered, subjects),
        comparison=comparison,
    )


def _clustered(entries: Iterable[Entry]) -> tuple[tuple[Cluster, ...], ...]:
    cases: dict[tuple[str, str], list[Entry]] = defaultdict(list)
    for entry in entries:
        cases[entry.row.file, entry.row.case].append(entry)
    return tuple(clusters(found) for found in cases.values())


def _matrix(entries: Sequence[Entry]) -> dict[tuple[str, str], Cell]:
    gathered: dict[tuple[str, str], list[Entry]] = defaultdict(list)
    for entry in entries:
        gathered[entry.row.file, entry.row.subject].append(entry)
    return {(file, subject): _cell(file, subject, found) for (file, subject), found in gathered.items()}


def _cell(file: str, subject: str, entries: Sequence[Entry]) -> Cell:
    counts = Counter(entry.row.status for entry in entries)
    status = next(status for status in SEVERITY if status in counts)
    ratios = [entry.ratio for entry in entries if entry.row.status == status and entry.ratio is not None]
    return Cell(file, subject, counts, status, max(ratios, default=None))


def _families(entries: Sequence[Entry]) -> tuple[Family, ...]:
    gathered: dict[tuple[Status, str, str], dict[tuple[str, str], list[Entry]]] = {}
    for entry in entries:
        groups = gathered.setdefault((entry.row.status, entry.row.subject, entry.kind), {})
        groups.setdefault((entry.mask, entry.dtype), []).append(entry)
    families = [Family(*shared, groups=_groups(groups)) for shared, groups in gathered.items()]
    return tuple(
        sorted(families, key=lambda family: (SEVERITY.index(family.status), -family.worst.weight, -family.count))
    )


def _groups(gathered: Mapping[tuple[str, str], list[Entry]]) -> tuple[Group, ...]:
    groups = [
        Group(mask, dtype, tuple(sorted(entries, key=lambda entry: -entry.weight)))
        for (mask, dtype), entries in gathered.items()
    ]
    return tuple(sorted(groups, key=lambda group: -group.worst.weight))


def _refusals(entries: Iterable[Entry]) -> tuple[Refusal, ...]:
    rows = [entry.row for entry in entries if entry.row.status in ("unsupported", "missing")]
    counts = Counter((row.status, row.subject, row.summary) for row in rows)
    return tuple(Refusal(*shared, count=count) for shared, count in counts.items())


def _agreements(entries: Iterable[Entry]) -> tuple[Agreement, ...]:
    gathered: dict[str, list[Entry]] = defaultdict(list)
    for entry in entries:
        if entry.row.status == "agrees":
            gathered[entry.row.file].append(entry)
    return tuple(
        Agreement(file, len(found), max(found, key=lambda entry: entry.ratio or 0.0))
        for file, found in gathered.items()
    )


def _tally(values: Iterable[str]) -> tuple[tuple[str, int], ...]:
    return tuple(Counter(values).most_common())
