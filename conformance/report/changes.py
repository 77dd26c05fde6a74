"""What changed between two runs, pair by pair: what began and ceased to diverge, and where errors grew or shrank."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass
from functools import cached_property
from typing import Literal, NamedTuple

from conformance.report.elements import row_ratio
from conformance.store import Run

FACTOR = 2.0  # by which a ratio must change to be told
LEAST = 0.05  # ratios below it are alike: a twentieth of what rounding explains
HALF = 0.5  # share of a run's pairs that an earlier one must hold to be compared with it
MOST = 0.8  # share of an earlier run's pairs that a run must hold to tell which it did not run
FAILING = frozenset({"new", "stale", "errored"})
Kind = Literal["new", "fixed", "worse", "better", "changed", "added", "gone"]
KINDS: Mapping[Kind, str] = {
    "new": "now diverges, and nothing accounts for it",
    "fixed": "no longer diverges, or is accounted for",
    "worse": "larger error/bound",
    "better": "smaller error/bound",
    "changed": "another status",
    "added": "not in the old run",
    "gone": "not in the new run",
}
_TOLD: Mapping[Kind, str] = {
    "new": "newly failing",
    "fixed": "no longer failing",
    "worse": "worse",
    "better": "better",
    "changed": "otherwise changed",
    "added": "added",
    "gone": "not run this time",
}


class Outcome(NamedTuple):
    """What became of one pair. ``pair`` is its id, ``suite/case[subject]``; ``ratio`` its worst error/bound."""

    pair: str
    status: str
    ratio: float | None


Outcomes = Mapping[str, Outcome]  # by node id


@dataclass(frozen=True)
class Change:
    """One pair in two runs; an outcome is None where its run has none."""

    kind: Kind
    node: str
    old: Outcome | None
    new: Outcome | None

    @property
    def outcome(self) -> Outcome:
        """The newer of the two."""
        found = self.new or self.old
        assert found is not None  # noqa: S101  # a change has a side
        return found

    @property
    def factor(self) -> float:
        """New error/bound over old; 1 where one of them was not measured."""
        return _factor(self.old, self.new)

    @property
    def weight(self) -> float:
        """How far the factor is from 1, in either direction."""
        return max(self.factor, 1 / self.factor if self.factor else math.inf)


@dataclass(frozen=True)
class Comparison:
    """A run compared with an earlier one. A run of a part of the other's pairs does not tell those it left out."""

    name: str  # of the earlier run
    pairs: int  # in it
    changes: tuple[Change, ...]

    @classmethod
    def of(cls, name: str, old: Outcomes, new: Outcomes) -> Comparison:
        """Compare ``new`` with the earlier run ``name`` of the outcomes ``old``."""
        whole = covers(new, old, MOST)
        found = compare(old, new)
        return cls(name, len(old), tuple(change for change in found if whole or change.kind != "gone"))

    @cached_property
    def by_kind(self) -> Mapping[Kind, tuple[Change, ...]]:
        """The kinds that occur, in the order of :data:`KINDS`."""
        found = {kind: tuple(change for change in self.changes if change.kind == kind) for kind in KINDS}
        return {kind: changes for kind, changes in found.items() if changes}

    @property
    def told(self) -> str:
        """``3 newly failing, 1 added``, or ``nothing changed``."""
        counts = Counter(change.kind for change in self.changes)
        return (
            ", ".join(f"{counts[kind]:,} {told}" for kind, told in _TOLD.items() if counts[kind]) or "nothing changed"
        )

    @property
    def sentence(self) -> str:
        return f"{self.told} since {self.name}"


def outcomes_of(run: Run) -> dict[str, Outcome]:
    return {row.node: Outcome(f"{row.case}[{row.subject}]", row.status, row_ratio(row)) for row in run.rows}


def covers(some: Mapping[str, object], others: Mapping[str, object], share: float = HALF) -> bool:
    """Whether ``some`` holds at least a share of the pairs of ``others``."""
    return len(some.keys() & others.keys()) >= share * len(others)


def compare(old: Outcomes, new: Outcomes) -> tuple[Change, ...]:
    """Every pair whose status or error changed, those of one kind together, the largest factor first."""
    found = [Change("gone", node, outcome, None) for node, outcome in old.items() if node not in new]
    for node, outcome in new.items():
        kind = kind_of(old.get(node), outcome)
        if kind is not None:
            found.append(Change(kind, node, old.get(node), outcome))
    order = list(KINDS)
    return tuple(sorted(found, key=lambda change: (order.index(change.kind), -change.weight)))


def kind_of(old: Outcome | None, new: Outcome) -> Kind | None:
    """How a pair changed; None where it did not. One that fails and was not there before is new."""
    if old is None:
        return "new" if new.status in FAILING else "added"
    if (old.status in FAILING) != (new.status in FAILING):
        return "new" if new.status in FAILING else "fixed"
    factor = _factor(old, new)
    if factor >= FACTOR or factor <= 1 / FACTOR:
        return "worse" if factor > 1 else "better"
    return None if old.status == new.status else "changed"


def _factor(old: Outcome | None, new: Outcome | None) -> float:
    before, after = (None if side is None else side.ratio for side in (old, new))
    if before is None or after is None or before == after:
        return 1.0
    return max(after, LEAST) / max(before, LEAST)
