"""Two runs compared pair by pair: what began and ceased to diverge, and where errors grew or shrank, with factors."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Literal

from conformance.changes import DIVERGING, change
from conformance.report.elements import row_ratio
from conformance.report.text import clipped, plural, ratio_text
from conformance.store import Row, Run

FACTOR = 2.0  # by which a ratio must change to be told
LEAST = 0.05  # ratios below it are alike: a twentieth of what rounding explains
Kind = Literal["new", "fixed", "worse", "better", "changed", "added", "gone"]
KINDS: dict[Kind, str] = {
    "new": "now diverges, and nothing accounts for it",
    "fixed": "no longer does",
    "worse": "larger error/bound",
    "better": "smaller error/bound",
    "changed": "another status",
    "added": "not in the old run",
    "gone": "not in the new run",
}


@dataclass(frozen=True)
class Difference:
    """One pair in two runs; a row is None where its run has none."""

    kind: Kind
    old: Row | None
    new: Row | None

    @property
    def row(self) -> Row:
        """The newer row of the two."""
        row = self.new or self.old
        assert row is not None  # noqa: S101  # a difference has a side
        return row

    @property
    def factor(self) -> float:
        """New error/bound over old; 1 where one of them was not measured."""
        ratios = [row_ratio(row) if row is not None else None for row in (self.old, self.new)]
        if ratios[0] is None or ratios[1] is None or ratios[0] == ratios[1]:
            return 1.0
        return max(ratios[1], LEAST) / max(ratios[0], LEAST)


def differences(old: Run, new: Run) -> tuple[Difference, ...]:
    """Every pair whose status or error changed, those of one kind together, the largest factor first."""
    before, after = ({row.node: row for row in run.rows} for run in (old, new))
    found = [Difference("gone", row, None) for node, row in before.items() if node not in after]
    for node, row in after.items():
        kind = _kind(before.get(node), row)
        if kind is not None:
            found.append(Difference(kind, before.get(node), row))
    order = list(KINDS)
    return tuple(sorted(found, key=lambda one: (order.index(one.kind), -max(one.factor, 1 / (one.factor or 1)))))


def _kind(old: Row | None, new: Row) -> Kind | None:
    if old is None:
        return "new" if new.status in DIVERGING else "added"
    found = change(old.status, new.status)
    if found in ("new", "fixed"):
        return found
    factor = Difference("changed", old, new).factor
    if factor >= FACTOR or factor <= 1 / FACTOR:
        return "worse" if factor > 1 else "better"
    return None if found == "same" else found


def difference_lines(old: Run, new: Run, shown: int = 10, width: int = 140) -> Iterator[str]:
    """The comparison as text: a line for each kind, and under it its first pairs."""
    found = differences(old, new)
    yield f"{old.folder.name} → {new.folder.name}: {len(new.rows):,} pairs, {len(found):,} differ"
    for kind, meaning in KINDS.items():
        own = [one for one in found if one.kind == kind]
        if not own:
            continue
        yield f"{kind:<8} {plural(len(own), 'pair')}: {meaning}"
        yield from (clipped(f"  {_line(one)}", width) for one in own[:shown])
        if len(own) > shown:
            yield f"  and {len(own) - shown:,} more"


def _line(one: Difference) -> str:
    pair = f"{one.row.case}[{one.row.subject}]"
    if one.old is None or one.new is None:
        return f"{pair} ({one.row.status})"
    ratios = " → ".join(ratio_text(row_ratio(row)) for row in (one.old, one.new))
    status = one.new.status if one.old.status == one.new.status else f"{one.old.status} → {one.new.status}"
    factor = "" if one.factor == 1 else f", ×{ratio_text(one.factor)}"
    return f"{pair} {status}, error/bound {ratios}{factor}"


def is_worse(found: Sequence[Difference]) -> bool:
    """Whether anything diverges that did not."""
    return any(one.kind == "new" for one in found)
