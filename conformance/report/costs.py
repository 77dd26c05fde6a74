"""What the subjects and the suites of a run cost: CPU seconds, compiling, running and judging apart."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Literal

from conformance.report.text import clipped, one_line, plural
from conformance.store import Row

COMPILING, RUNNING, JUDGING = ("compile",), ("subject",), ("reference", "compare")  # stages of Row.seconds


@dataclass(frozen=True)
class Cost:
    """CPU seconds of the pairs of one subject or suite. ``compiling`` is that of calls for which the subject built or
    compiled something new; ``judging`` is the reference, the bounds and the comparison."""

    name: str
    pairs: int
    compiling: float
    running: float
    judging: float

    @property
    def total(self) -> float:
        return self.compiling + self.running + self.judging


def costs_of(rows: Sequence[Row], by: Literal["subject", "suite"]) -> tuple[Cost, ...]:
    """The costs of every subject or suite whose pairs cost anything, the dearest first."""
    gathered: dict[str, list[Row]] = defaultdict(list)
    for row in rows:
        gathered[row.subject if by == "subject" else row.suite].append(row)
    costs = (_cost(name, own) for name, own in gathered.items())
    return tuple(sorted((cost for cost in costs if cost.total > 0), key=lambda cost: -cost.total))


def cost_lines(rows: Sequence[Row], count: int, width: int = 100) -> Iterator[str]:
    """The dearest subjects and suites as text, ``count`` of each, or all for 0."""
    kinds: tuple[Literal["subject", "suite"], ...] = ("subject", "suite")
    for by in kinds:
        costs = costs_of(rows, by)
        yield f"CPU seconds by {by}: {plural(len(costs), by)}, {sum(cost.total for cost in costs):.1f} s"
        for cost in costs[: count or None]:
            yield clipped(
                f"  {cost.total:8.1f} s  compile {cost.compiling:7.1f}  run {cost.running:7.1f}  "
                f"judge {cost.judging:7.1f}  {one_line(cost.name)}, {plural(cost.pairs, 'pair')}",
                width,
            )


def _cost(name: str, rows: Sequence[Row]) -> Cost:
    compiling, running, judging = (
        sum(row.seconds.get(stage, 0.0) for row in rows for stage in stages) for stages in (COMPILING, RUNNING, JUDGING)
    )
    return Cost(name, len(rows), compiling, running, judging)
