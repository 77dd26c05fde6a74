"""Who agrees with whom over a whole run: the ways in which subjects part on a case, each with its cases.

A case's clusters put every subject that answered it in a place: with the reference, or in one of the diverging parts.
Cases that put the same subjects in the same places show one pattern. As not every subject answers every case, a case
also joins a pattern that puts the subjects of both, at least one of which diverges, in the same places; the pattern
then speaks of the subjects of all its cases.
"""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property

from conformance.report.alike import Cluster
from conformance.report.entry import DIVERGING, SEVERITY, Entry
from conformance.store import Status

Place = tuple[Status, str, int] | None  # status, kind and number of a diverging part; None beside the reference
Placed = dict[str, Place]  # by subject


@dataclass(frozen=True)
class Part:
    """Subjects that diverge alike."""

    status: Status
    kind: str
    subjects: tuple[str, ...]


@dataclass(frozen=True)
class Pattern:
    """One way in which subjects part, and the cases that show it."""

    parts: tuple[Part, ...]  # the most severe first
    agreeing: tuple[str, ...]
    cases: tuple[Entry, ...]  # one row of each

    @cached_property
    def masks(self) -> tuple[str, ...]:
        """Masks of the cases, those of most cases first."""
        return tuple(mask for mask, _ in Counter(entry.mask for entry in self.cases).most_common())

    @cached_property
    def dtypes(self) -> tuple[str, ...]:
        return tuple(dtype for dtype, _ in Counter(entry.dtype for entry in self.cases).most_common())


@dataclass
class _Growing:
    """A pattern to which cases are still added."""

    placed: Placed
    cases: list[Entry] = field(default_factory=list)

    def matched(self, other: Placed) -> dict[Place, Place] | None:
        """The places of ``other`` by its own names for them; None where it puts a subject elsewhere."""
        shared = {(place, self.placed[subject]) for subject, place in other.items() if subject in self.placed}
        fits = (
            len(shared) == len({place for place, _ in shared}) == len({place for _, place in shared})
            and all((one and one[:2]) == (another and another[:2]) for one, another in shared)
            and any(place is not None for place, _ in shared)
        )
        return dict(shared) if fits else None

    def add(self, other: Placed, known: dict[Place, Place], cases: Iterable[Entry]) -> None:
        """Put the subjects of ``other`` that are not yet placed beside those they stand with there."""
        for subject, place in other.items():
            if place is not None and place not in known:
                taken = [one[2] for one in self.placed.values() if one is not None]
                known[place] = (*place[:2], max(taken) + 1)
            self.placed.setdefault(subject, known.get(place))
        self.cases.extend(cases)


def patterns_of(clustered: Iterable[Sequence[Cluster]], subjects: Sequence[str]) -> tuple[Pattern, ...]:
    """The patterns of all cases on which a subject diverges: what is not known first, then those of most cases.

    ``subjects`` gives the order in which names are written.
    """
    cases: dict[tuple[tuple[str, Place], ...], list[Entry]] = defaultdict(list)
    for clusters in clustered:
        if clusters[0][0].row.status in DIVERGING:
            cases[tuple(sorted(_placed(clusters).items()))].append(clusters[0][0])
    growing: list[_Growing] = []
    for placed, entries in sorted(cases.items(), key=lambda item: -len(item[1])):
        other = dict(placed)
        for pattern in growing:
            known = pattern.matched(other)
            if known is not None:
                pattern.add(other, known, entries)
                break
        else:
            growing.append(_Growing(other, list(entries)))
    found = [_pattern(pattern, subjects) for pattern in growing]
    return tuple(sorted(found, key=lambda pattern: (_severity(pattern.parts[0]), -len(pattern.cases))))


def _placed(clusters: Sequence[Cluster]) -> Placed:
    placed: Placed = {}
    for number, cluster in enumerate(clusters):
        for entry in cluster:
            if entry.row.status in DIVERGING:
                placed.setdefault(entry.row.subject, (entry.row.status, cluster[0].kind, number))
            elif entry.row.status == "agrees":
                placed.setdefault(entry.row.subject, None)
    return placed


def _pattern(growing: _Growing, subjects: Sequence[str]) -> Pattern:
    parts: Mapping[Place, list[str]] = defaultdict(list)
    for subject in subjects:
        if subject in growing.placed:
            parts[growing.placed[subject]].append(subject)
    diverging = [Part(*place[:2], tuple(names)) for place, names in parts.items() if place is not None]
    ordered = tuple(sorted(diverging, key=lambda part: (_severity(part), -len(part.subjects))))
    cases = sorted(growing.cases, key=lambda entry: entry.number)
    return Pattern(ordered, tuple(parts.get(None, ())), tuple(cases))


def _severity(part: Part) -> int:
    return SEVERITY.index(part.status)
