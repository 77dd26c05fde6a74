"""Which rows of one case behave alike: the rule by which subjects are said to agree with each other."""

from __future__ import annotations

from collections.abc import Hashable, Iterable, Iterator

from conformance.report.entry import DIVERGING, SEVERITY, Entry

FACTOR = 2.0  # within which the worst ratios of rows that behave alike lie
Cluster = tuple[Entry, ...]


def clusters(entries: Iterable[Entry]) -> tuple[Cluster, ...]:
    """The rows of one case in groups that behave alike, in order of severity, then of the worst ratio.

    Diverging rows are alike when they have one status, the same kinds of finding in the same outputs, and worst ratios
    within :data:`FACTOR` of each other (∞ only with ∞, no ratio only with none); they are not compared element by
    element. Agreeing rows are alike save where their summaries differ, which are refusals of an ill-formed call.
    """
    gathered: dict[Hashable, list[Entry]] = {}
    for entry in entries:
        gathered.setdefault(_behaviour(entry), []).append(entry)
    found = [cluster for alike in gathered.values() for cluster in _by_ratio(alike)]
    return tuple(sorted(found, key=lambda cluster: (SEVERITY.index(cluster[0].row.status), -cluster[0].weight)))


def _behaviour(entry: Entry) -> Hashable:
    """What must be equal."""
    row = entry.row
    if row.status in DIVERGING:
        found = frozenset((str(finding["kind"]), str(finding.get("output"))) for finding in row.findings)
        return row.status, found, () if found else entry.kinds, entry.ratio is None
    return row.status, row.summary if row.status == "agrees" else ""


def _by_ratio(entries: list[Entry]) -> Iterator[Cluster]:
    """Rows of one behaviour, diverging ones split where ratios leave the factor; parts are in the order of the run."""
    if entries[0].row.status not in DIVERGING:
        yield tuple(entries)
        return
    part: list[Entry] = []
    for entry in sorted(entries, key=lambda entry: -entry.weight):
        if part and entry.weight < part[0].weight and entry.weight * FACTOR < part[0].weight:
            yield tuple(sorted(part, key=lambda one: one.number))
            part = []
        part.append(entry)
    yield tuple(sorted(part, key=lambda one: one.number))
