"""Two runs compared, as text."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from conformance.report.changes import KINDS, Change, compare, outcomes_of
from conformance.report.text import clipped, plural, ratio_text
from conformance.store import Run


def differences(old: Run, new: Run) -> tuple[Change, ...]:
    """Every pair whose status or error changed, as :func:`conformance.report.changes.compare` gives them."""
    return compare(outcomes_of(old), outcomes_of(new))


def difference_lines(old: Run, new: Run, shown: int = 10, width: int = 140) -> Iterator[str]:
    """The comparison as text: a line for each kind, and under it its first pairs."""
    found = differences(old, new)
    yield f"{old.folder.name} → {new.folder.name}: {len(new.rows):,} pairs, {len(found):,} differ"
    for kind, meaning in KINDS.items():
        own = [change for change in found if change.kind == kind]
        if not own:
            continue
        yield f"{kind:<8} {plural(len(own), 'pair')}: {meaning}"
        yield from (clipped(f"  {_line(change)}", width) for change in own[:shown])
        if len(own) > shown:
            yield f"  and {len(own) - shown:,} more"


def is_worse(found: Sequence[Change]) -> bool:
    """Whether anything diverges that did not."""
    return any(change.kind == "new" for change in found)


def _line(change: Change) -> str:
    old, new = change.old, change.new
    if old is None or new is None:
        return f"{change.outcome.pair} ({change.outcome.status})"
    ratios = f"{ratio_text(old.ratio)} → {ratio_text(new.ratio)}"
    status = new.status if old.status == new.status else f"{old.status} → {new.status}"
    factor = "" if change.factor == 1 else f", ×{ratio_text(change.factor)}"
    return f"{new.pair} {status}, error/bound {ratios}{factor}"
